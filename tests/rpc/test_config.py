"""Every option: where it is read from, what is refused, what is shown."""

import re
from pathlib import Path

import pytest

from ductord.engine.limits import LIMITS, Limits
from ductord.rpc.addresses import AddressInvalid, parse_address
from ductord.rpc.config import ConfigurationRefused, Settings

SERVICES = Path(__file__).parents[2] / "services" / "ductord"
URL = "postgresql://owner:s3cret@db.example:5432/ductor?sslmode=require&password=alsosecret"

UNREAD: frozenset[str] = frozenset()
"""Options that nothing reads. Must stay empty."""


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The options of the machine that runs the tests do not matter."""
    import os

    for name in list(os.environ):
        if name.startswith(("DUCTOR_", "OTEL_")):
            monkeypatch.delenv(name)


def test_defaults_are_those_of_the_contract_and_ruling_a4() -> None:
    settings = Settings()
    assert (settings.grpc_address, settings.http_address) == (":9090", ":8080")
    assert (settings.lease_ms, settings.heartbeat_ms, settings.sweep_ms, settings.drain_ms) == (
        15_000,
        5_000,
        5_000,
        10_000,
    )
    assert (settings.payload_max_bytes, settings.payload_warn_bytes) == (1 << 20, 256 << 10)


def test_the_environment_fills_it_and_arguments_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCTOR_LEASE_MS", "3000")
    monkeypatch.setenv("DUCTOR_NOTIFY", "off")
    monkeypatch.setenv("DUCTOR_INSECURE", "1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317")
    settings = Settings.load(sweep_ms=700)
    assert (settings.lease_ms, settings.sweep_ms, settings.notify, settings.insecure) == (3000, 700, False, True)
    assert settings.otlp_endpoint == "http://collector:4317"


def test_what_is_wrong_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCTOR_LEASE_MS", "-1")
    monkeypatch.setenv("DUCTOR_GRPC_ADDRESS", "9090")
    monkeypatch.setenv("DUCTOR_AUTH", "maybe")
    with pytest.raises(ConfigurationRefused) as refused:
        Settings.load()
    for name in ("DUCTOR_LEASE_MS", "DUCTOR_GRPC_ADDRESS", "DUCTOR_AUTH"):
        assert name in str(refused.value)


def test_the_tiers_of_a_historys_length_are_in_order_c6() -> None:
    """C6: defaults are the engine's own; a soft tier above the hard one is refused."""
    assert Limits(**Settings().engine_limits) == LIMITS
    assert Settings.load(history_soft=5, history_hard=5, history_terminate=5).engine_limits["history_hard"] == 5
    with pytest.raises(ConfigurationRefused, match="DUCTOR_HISTORY_SOFT"):
        Settings.load(history_soft=9_000)


def test_misspelt_options_are_found() -> None:
    wrong = Settings.unknown({"DUCTOR_LEESE_MS": "1", "DUCTOR_LEASE_MS": "1", "DUCTOR_TENANT_ID": "dev", "PATH": "/"})
    assert wrong == ["DUCTOR_LEESE_MS (did you mean DUCTOR_LEASE_MS?)"]


@pytest.mark.parametrize("grpc", [":9090", "0.0.0.0:9090", "[::]:9090", "192.168.1.5:9090", "some-host:9090"])
def test_auth_off_stays_on_loopback_n3(grpc: str) -> None:
    settings = Settings(grpc_address=grpc, http_address="off")
    with pytest.raises(ConfigurationRefused, match="DUCTOR_INSECURE=1"):
        settings.refuse_insecure()
    settings.model_copy(update={"insecure": True}).refuse_insecure()


@pytest.mark.parametrize(
    "grpc", ["127.0.0.1:9090", "127.9.9.9:1", "[::1]:9090", "localhost:0", "unix:/run/ductor.sock"]
)
def test_loopback_needs_no_leave_n3(grpc: str) -> None:
    Settings(grpc_address=grpc, http_address="127.0.0.1:0").refuse_insecure()
    with pytest.raises(ConfigurationRefused, match="DUCTOR_HTTP_ADDRESS"):
        Settings(grpc_address=grpc).refuse_insecure()


def test_dev_binds_loopback_and_honours_the_addresses_n3() -> None:
    settings = Settings.for_dev(http_address=":8081")
    assert (settings.grpc_address, settings.http_address) == ("127.0.0.1:9090", "127.0.0.1:8081")
    settings.refuse_insecure()
    with pytest.raises(ConfigurationRefused):
        Settings.for_dev(grpc_address="0.0.0.0:9090").refuse_insecure()


def test_with_keys_any_address_will_do_n3() -> None:
    Settings(auth="keys").refuse_insecure()


@pytest.mark.parametrize(
    "text",
    ["https://ops.example/", "ops.example", "https://Ops.example", "https://ops.example:443", "null", "https://a,*.b",
     "https://*.example", "http://a:0", "http://a:65536"],
)  # fmt: skip
def test_what_no_browser_sends_fails_the_start(text: str) -> None:
    with pytest.raises(ConfigurationRefused, match="DUCTOR_CORS_ORIGINS"):
        Settings.load(cors_origins=text)


def test_every_page_may_not_call_whom_nobody_asks_for_a_key_n3() -> None:
    settings = Settings.load(cors_origins="*", grpc_address="127.0.0.1:0", http_address="127.0.0.1:0")
    with pytest.raises(ConfigurationRefused, match="DUCTOR_CORS_ORIGINS"):
        settings.refuse_insecure()
    assert Settings.load(cors_origins="http://localhost:5173,http://[::1]:8000").origins == {
        "http://localhost:5173",
        "http://[::1]:8000",
    }


def test_a_login_per_service_none_of_them_the_owner() -> None:
    settings = Settings(database_url=URL, trigger_database_url="postgresql://app@other/x")
    assert settings.database("reads")[0].startswith("postgresql://ductor_reads:s3cret@db.example:5432/ductor?")
    assert settings.database("trigger") == ("postgresql://app@other/x", False)
    assert Settings(database_url=URL, database_set_role=True).database("reads") == (URL, True)
    assert (
        Settings(database_url="postgresql://postgres@/ductor?host=/tmp/x").pool("coordinator")["dsn"]
        == "postgresql://ductor_coordinator@/ductor?host=/tmp/x"
    )
    assert Settings(database_url="postgresql:///ductor").pool("reads")["dsn"] == "postgresql://ductor_reads@/ductor"
    with pytest.raises(ConfigurationRefused, match="DUCTOR_READS_DATABASE_URL or DUCTOR_DATABASE_URL"):
        Settings().database("reads")


def test_printing_hides_passwords_and_nothing_else() -> None:
    shown = Settings(database_url=URL).printable()
    assert shown["DUCTOR_DATABASE_URL"] == "postgresql://owner:***@db.example:5432/ductor?sslmode=require"
    assert shown["DUCTOR_TRIGGER_DATABASE_URL"] == ""
    assert shown["DUCTOR_LEASE_MS"] == 15_000
    assert "secret" not in str(shown)


def test_every_option_is_read_by_something() -> None:
    own = {SERVICES / "rpc" / "config.py", *(SERVICES / "rpc" / "options").glob("*.py")}
    source = "\n".join(p.read_text("utf-8") for p in SERVICES.rglob("*.py") if p not in own)
    inside = "\n".join(p.read_text("utf-8") for p in own)
    unread = {
        name
        for name in Settings.model_fields
        if not re.search(rf"\b{name}\b", source)
        and not re.search(rf"self\.{name}\b", inside)
        and not name.endswith(("_database_url", "_target"))
    }
    assert unread == UNREAD


@pytest.mark.parametrize("text", ["", "9090", "host", "::1:9090", "host:-1", "host:65536", "host:²", "unix:"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(AddressInvalid):
        parse_address(text)


def test_addresses_are_reached_by_loopback_from_within() -> None:
    assert parse_address(":9090").reachable == parse_address("0.0.0.0:9090").reachable == "127.0.0.1:9090"
    assert parse_address("[::]:1").reachable == "[::1]:1"
    assert str(parse_address("[::1]:9090")) == "[::1]:9090"
    assert parse_address("unix:/run/d.sock").grpc == "unix:/run/d.sock"
