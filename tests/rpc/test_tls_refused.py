"""Options and files of TLS that are no good: the process does not start, and says which; what is plaintext and should not be is warned of."""

from pathlib import Path
from typing import Any

import pytest

from ductord.rpc.channels import exposed, open_channel
from ductord.rpc.config import ConfigurationRefused, Settings
from ductord.rpc.host import hosting
from tests.rpc.echo import loopback
from tests.support.certificates import Authority


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tls_cert_file": "C"}, "DUCTOR_TLS_CERT_FILE needs DUCTOR_TLS_KEY_FILE"),
        ({"http_tls_key_file": "K"}, "DUCTOR_HTTP_TLS_KEY_FILE needs DUCTOR_HTTP_TLS_CERT_FILE"),
        ({"target_tls": True, "target_key_file": "K"}, "DUCTOR_TARGET_KEY_FILE needs DUCTOR_TARGET_CERT_FILE"),
        ({"tls_client_ca_file": "A"}, "DUCTOR_TLS_CLIENT_CA_FILE needs DUCTOR_TLS_CERT_FILE"),
        ({"http_tls_client_ca_file": "A"}, "DUCTOR_HTTP_TLS_CLIENT_CA_FILE needs DUCTOR_HTTP_TLS_CERT_FILE"),
        ({"target_ca_file": "A"}, "DUCTOR_TARGET_CA_FILE needs DUCTOR_TARGET_TLS"),
        ({"target_server_name": "x"}, "DUCTOR_TARGET_SERVER_NAME needs DUCTOR_TARGET_TLS"),
        ({"target_cert_file": "C", "target_key_file": "K"}, "DUCTOR_TARGET_CERT_FILE needs DUCTOR_TARGET_TLS"),
        ({"api_key": "dk_acme." + "0" * 32 + "." + "x" * 43, "api_key_file": "K"}, "DUCTOR_API_KEY_FILE"),
        ({"api_key": "password"}, "DUCTOR_API_KEY: Value error, has not the form of a key"),
        ({"health_address": "9091"}, "DUCTOR_HEALTH_ADDRESS"),
    ],
)
def test_options_that_contradict_each_other_are_named(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationRefused, match=said) as refusal:
        Settings.load(**options)
    assert "password" not in str(refusal.value)


@pytest.mark.parametrize(
    ("change", "option"),
    [
        ({"tls_cert_file": "missing"}, "DUCTOR_TLS_CERT_FILE=.*missing cannot be read: No such file"),
        ({"tls_key_file": "other.key"}, "DUCTOR_TLS_KEY_FILE=.*does not fit"),
        ({"tls_key_file": "locked.key"}, "DUCTOR_TLS_KEY_FILE=.*encrypted"),
        ({"tls_cert_file": "text"}, "DUCTOR_TLS_CERT_FILE=.*no pair in PEM"),
        ({"tls_client_ca_file": "text"}, "DUCTOR_TLS_CLIENT_CA_FILE=.*no certificate in PEM"),
        ({"tls_client_ca_file": "."}, "DUCTOR_TLS_CLIENT_CA_FILE=.*cannot be read"),
        ({"tls_client_ca_file": "wide"}, "DUCTOR_TLS_CLIENT_CA_FILE=.*larger than"),
    ],
)
async def test_files_that_are_no_good_keep_the_process_from_starting(
    ours: Authority, tmp_path: Path, change: dict[str, str], option: str
) -> None:
    good = ours.server("tls", mutual=True)
    other = Path(ours.issue("other")[1])
    other.rename(tmp_path / "other.key")
    (tmp_path / "locked.key").write_text(
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
    )
    (tmp_path / "text").write_text("not PEM at all\n")
    (tmp_path / "wide").write_bytes(b"#" * (5 << 20))
    bad = {name: str(tmp_path / file) for name, file in change.items()}
    with pytest.raises(ConfigurationRefused, match=option):
        async with hosting([], loopback(**{**good, **bad})):
            pass
    http = {f"http_{name}": path for name, path in {**good, **bad}.items()}
    with pytest.raises(ConfigurationRefused, match=option.replace("DUCTOR_TLS", "DUCTOR_HTTP_TLS")):
        async with hosting([], loopback(**http)):
            pass


async def test_files_of_a_client_that_are_no_good_are_named(ours: Authority) -> None:
    for name in ("target_ca_file", "target_cert_file", "target_key_file"):
        with pytest.raises(ConfigurationRefused, match=f"DUCTOR_{name.upper()}=/nowhere cannot be read"):
            open_channel("127.0.0.1:1", loopback(**{**ours.client(), name: "/nowhere"}))


@pytest.mark.parametrize(
    ("target", "warned"),
    [
        ("127.0.0.1:9090", False),
        ("dns:///localhost:9090", False),
        ("unix:/run/ductor.sock", False),
        ("ipv6:[::1]:9090", False),
        ("dispatch:9090", True),
        ("dns:///dispatch.ductor:9090", True),
        ("10.0.0.7:9090", True),
    ],
)
def test_keys_in_plaintext_beyond_loopback_are_warned_of(target: str, warned: bool) -> None:
    assert bool(exposed(target, Settings(auth="keys"))) is warned
    assert bool(exposed(target, Settings(api_key_file="k"))) is warned
    assert not exposed(target, Settings(auth="keys", target_tls=True))
    assert not exposed(target, Settings())


async def test_ports_that_take_keys_in_plaintext_are_warned_of(
    ours: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    wide = {"grpc_address": "0.0.0.0:0", "http_address": "0.0.0.0:0", "auth": "keys"}
    async with hosting([], loopback(**wide)):
        warned = [r.getMessage().partition("=")[0] for r in caplog.records if r.name == "ductor.host"]
    assert warned == ["DUCTOR_GRPC_ADDRESS", "DUCTOR_HTTP_ADDRESS"]
    caplog.clear()
    async with hosting([], loopback(**wide, **ours.server("tls"), **ours.server("http_tls"))):
        assert not [r for r in caplog.records if r.name == "ductor.host"]


def test_a_key_is_not_printed() -> None:
    key = "dk_acme." + "0" * 32 + "." + "s" * 43
    shown = Settings(api_key=key, database_url="host=db password=secret").printable()
    assert (shown["DUCTOR_API_KEY"], shown["DUCTOR_DATABASE_URL"]) == ("dk_acme.00000000***", "***")
