"""TLS and mutual TLS of both ports and of calls to others: who gets in, what happens when files change."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from ductor.workflow.v1 import workflow_trigger_service_pb2 as trigger_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as trigger_grpc
from ductord.rpc import renewal
from ductord.rpc.channels import open_channel, outgoing
from ductord.rpc.host import hosting
from tests.rpc.echo import Echo, loopback
from tests.rpc.trusting import refused, trigger
from tests.support.certificates import Authority


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
