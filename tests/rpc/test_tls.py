"""TLS and mutual TLS of both ports and of calls to others: who gets in, what happens when files change, what never starts."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ductor.workflow.v1 import workflow_trigger_service_pb2 as trigger_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as trigger_grpc
from ductord.rpc import renewal
from ductord.rpc.channels import exposed, open_channel, outgoing
from ductord.rpc.config import ConfigurationRefused, Settings
from ductord.rpc.host import Host, Scope, Service, hosting
from ductord.rpc.server import _bound
from tests.rpc.echo import Echo, loopback, refusal_of
from tests.support.certificates import Authority


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    """The authority that everybody trusts."""
    return Authority(tmp_path / "ours")


@pytest.fixture
def foreign(tmp_path: Path) -> Authority:
    """One that nobody here trusts."""
    return Authority(tmp_path / "foreign")


async def trigger(address: str, options: dict[str, Any]) -> str:
    """The tenant that one call over a new channel was made for."""
    async with open_channel(address, loopback(**options)) as channel:
        stub = trigger_grpc.WorkflowTriggerServiceStub(channel)
        request = trigger_pb2.TriggerWorkflowRequest()
        return (await stub.TriggerWorkflow(request, metadata=outgoing(tenant_id="acme"), timeout=20)).run_id


async def refused(address: str, options: dict[str, Any]) -> str:
    """The reason of a call that does not get in."""
    return (await refusal_of(lambda: trigger(address, options))).reason


async def test_mutual_tls_lets_in_who_has_a_certificate_of_the_authority(ours: Authority, foreign: Authority) -> None:
    settings = loopback(**ours.server("tls", mutual=True))
    async with hosting([Echo().service], settings) as host:
        address = host.grpc_address.reachable
        assert await trigger(address, ours.client()) == "acme"
        certificate, key = foreign.issue("client", "client.ductor.test")
        assert await refused(address, ours.client(own=False)) == "SERVICE_UNAVAILABLE"
        strange = {**ours.client(own=False), "target_cert_file": certificate, "target_key_file": key}
        assert await refused(address, strange) == "SERVICE_UNAVAILABLE"
        assert await refused(address, {**ours.client(), "target_ca_file": foreign.file}) == "SERVICE_UNAVAILABLE"
        assert await refused(address, {}) == "SERVICE_UNAVAILABLE", "plaintext"


async def test_a_certificate_for_another_name_needs_to_be_expected(ours: Authority) -> None:
    certificate, key = ours.issue("server", "ductor.internal")
    async with hosting([Echo().service], loopback(tls_cert_file=certificate, tls_key_file=key)) as host:
        address = host.grpc_address.reachable
        client = ours.client(own=False)
        assert await refused(address, client) == "SERVICE_UNAVAILABLE"
        assert await trigger(address, {**client, "target_server_name": "ductor.internal"}) == "acme"


async def test_the_grpc_port_follows_its_files_without_a_restart(
    ours: Authority, foreign: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    """A renewed certificate, another authority of callers, and files that are no good for a while."""
    options = ours.server("tls", mutual=True)
    async with hosting([Echo().service], loopback(**options)) as host:
        address = host.grpc_address.reachable
        assert await trigger(address, ours.client()) == "acme"
        # A new authority signs both sides: first half of the files is there, then all of them.
        certificate, key = (Path(path) for path in foreign.issue("server"))
        os.replace(certificate, options["tls_cert_file"])
        assert await trigger(address, ours.client()) == "acme", "what does not fit together is not taken"
        assert await trigger(address, ours.client()) == "acme"
        warned = [r.getMessage() for r in caplog.records if r.name == "ductor.tls"]
        assert [w.partition("=")[0] for w in warned] == ["DUCTOR_TLS_KEY_FILE"], "told once"
        os.replace(key, options["tls_key_file"])
        Path(options["tls_client_ca_file"]).write_bytes(Path(foreign.file).read_bytes())
        assert await trigger(address, foreign.client()) == "acme"
        stale = {**foreign.client(own=False), "target_cert_file": ours.issue("old", "c")[0]}
        stale["target_key_file"] = stale["target_cert_file"].replace(".pem", ".key")
        assert await refused(address, stale) == "SERVICE_UNAVAILABLE"
        Path(options["tls_cert_file"]).unlink()
        assert await trigger(address, foreign.client()) == "acme", "a file that is gone closes no port"


async def test_a_client_follows_its_files_and_cuts_no_call_short(
    ours: Authority, foreign: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A channel that was opened before the renewal calls with the new certificate, trusts the new authority, and ends what it had begun as it was begun."""
    monkeypatch.setattr(renewal, "LOOK_S", 0.0)
    options = ours.server("tls", mutual=True)
    client = ours.client()
    echo = Echo()
    async with hosting([echo.service], loopback(**options)) as host:
        async with open_channel(host.grpc_address.reachable, loopback(**client)) as channel:
            stub = trigger_grpc.WorkflowTriggerServiceStub(channel)

            def call(what: str = "") -> Any:
                request = trigger_pb2.TriggerWorkflowRequest(definition_id=what)
                return stub.TriggerWorkflow(request, metadata=outgoing(tenant_id="acme"), timeout=20)

            assert (await call()).run_id == "acme"
            begun = call("wait")
            await echo.trigger.entered.wait()
            # Everything is of the other authority from now on, at the server and at the client.
            for owner, name in (("tls", "server"), ("target", "client")):
                for fresh, kind in zip(foreign.issue(name), ("cert", "key"), strict=True):
                    os.replace(fresh, {**options, **client}[f"{owner}_{kind}_file"])
            Path(ours.file).write_bytes(Path(foreign.file).read_bytes())
            assert (await call()).run_id == "acme"
            assert isinstance(channel, renewal.RenewingChannel)
            assert len(channel._replaced) == 1
            echo.trigger.let_go.set()
            assert (await begun).run_id == "acme"
            async with asyncio.timeout(20):
                await asyncio.gather(*channel._replaced)
            assert not channel._replaced
            echo.trigger.let_go.clear()
            echo.trigger.entered.clear()
            last = call("wait")
            await echo.trigger.entered.wait()
        with pytest.raises(asyncio.CancelledError):  # closing it is closing it
            await last


async def test_the_http_port_follows_its_files_without_a_restart(ours: Authority, foreign: Authority) -> None:
    options = ours.server("http_tls", mutual=True)

    async def livez(authority: Authority, certificate: tuple[str, str] | None) -> int:
        async with httpx.AsyncClient(verify=authority.context(certificate)) as client:
            return (await client.get(f"https://{host.http_address}/livez", timeout=20)).status_code

    async with hosting([], loopback(**options)) as host:
        mine, theirs = ours.issue("client", "c"), foreign.issue("client", "c")
        assert await livez(ours, mine) == 200
        for unwelcome in (None, theirs):
            with pytest.raises(httpx.TransportError):
                await livez(ours, unwelcome)
        with pytest.raises(httpx.TransportError):
            async with httpx.AsyncClient() as plain:
                await plain.get(f"http://{host.http_address}/livez", timeout=20)
        for fresh, used in zip(foreign.issue("server"), ("http_tls_cert_file", "http_tls_key_file"), strict=True):
            os.replace(fresh, options[used])
        Path(options["http_tls_client_ca_file"]).write_bytes(Path(foreign.file).read_bytes())
        assert await livez(foreign, theirs) == 200
        with pytest.raises(httpx.TransportError):
            await livez(foreign, mine)


@asynccontextmanager
async def asking(options: dict[str, Any]) -> AsyncIterator[tuple[Host, list[str], grpc.aio.Channel]]:
    """A process with a service and one that calls it: the host, where it calls, and its channel."""
    targets: list[str] = []
    channels: list[grpc.aio.Channel] = []

    async def start(scope: Scope) -> None:
        targets.append(scope.target("trigger"))
        channels.append(scope.channel("trigger"))

    caller = Service(name="gateway", start=start)
    async with hosting([Echo().service, caller], loopback(**options)) as host:
        yield host, targets, channels[0]


async def test_when_certificates_end_is_told(
    ours: Authority, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By a gauge that follows a renewal, of those that we show as a server and as a client; and one that is over by a line in the log."""
    soon, over = datetime(2100, 1, 1, tzinfo=UTC), datetime(2020, 2, 2, tzinfo=UTC)
    server, client = ours.issue("server", ends=soon), ours.issue("client", "c", ends=over)
    options = {"tls_cert_file": server[0], "tls_key_file": server[1], **ours.client(own=False)}
    options |= {"target_cert_file": client[0], "target_key_file": client[1], **ours.server("http_tls", name="http")}
    async with hosting([Echo().service], loopback(**options)) as host:

        def told() -> dict[str, float]:
            lines = host.metrics.exposition().decode().splitlines()
            found = [line for line in lines if line.startswith("ductor_certificate_expiry_timestamp_seconds{")]
            return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in found}

        before = told()
        assert (before["grpc"], before["target"]) == (soon.timestamp(), over.timestamp())
        assert before["http"] > over.timestamp()
        assert "DUCTOR_TARGET_CERT_FILE" in caplog.text
        assert "ended on 2020-02-02" in caplog.text
        ours.issue("server", ends=soon + timedelta(days=1))
        assert await trigger(host.grpc_address.reachable, ours.client(own=False)) == "acme"
        assert told()["grpc"] == (soon + timedelta(days=1)).timestamp()


async def test_inside_a_process_calls_take_a_private_socket(ours: Authority) -> None:
    """With TLS no second port is opened and no certificate of our own is needed; the socket goes with the process."""
    async with asking(ours.server("tls", mutual=True)) as (host, [target], channel):
        stub = trigger_grpc.WorkflowTriggerServiceStub(channel)
        answer = await stub.TriggerWorkflow(
            trigger_pb2.TriggerWorkflowRequest(), metadata=outgoing(tenant_id="acme"), timeout=20
        )
        assert answer.run_id == "acme"
        folder = Path(target.removeprefix("unix:")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert await trigger(host.grpc_address.reachable, ours.client()) == "acme"
    assert not folder.exists()
    async with asking({}) as (host, [target], _):
        assert target == host.grpc_address.reachable, "in plaintext the port is good enough"


async def test_no_folder_for_the_socket_is_told(
    ours: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ConfigurationRefused, match="TMPDIR"):
        async with asking(ours.server("tls")):
            pass


async def test_probes_have_a_plaintext_port_with_health_and_nothing_else(ours: Authority) -> None:
    """KB-02: open before the services start, `live` from then until the end, ready only in between."""
    seen: list[list[int]] = []

    async def health(host: Host) -> list[int]:
        assert host.health_address is not None
        async with grpc.aio.insecure_channel(host.health_address.reachable) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            asked = [health_pb2.HealthCheckRequest(service=name) for name in ("", "live")]
            return [(await stub.Check(request, timeout=20)).status for request in asked]

    async def start(scope: Scope) -> None:
        seen.append(await health(scope._host))

        async def drain() -> None:
            seen.append(await health(scope._host))

        scope.on_drain(drain)

    settings = loopback(health_address="127.0.0.1:0", **ours.server("tls", mutual=True))
    slow = Service(name="reads", start=start)
    serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
    async with hosting([Echo().service, slow], settings) as host:
        assert await health(host) == [serving, serving]
        assert host.health_address is not None
        assert await refused(host.health_address.reachable, {}) == "RPC_NOT_FOUND"
    assert seen == [[not_serving, serving]] * 2


async def test_a_taken_probe_port_is_named() -> None:
    server = grpc.aio.server()
    taken = _bound(server, loopback().grpc, None)
    await server.start()
    with pytest.raises(OSError, match=str(taken)):
        async with hosting([], loopback(health_address=str(taken))):
            pass
    await server.stop(0)


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
