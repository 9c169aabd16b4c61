"""Beside the port that speaks TLS: the private socket of a process, and the port of the probes."""

import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ductor.workflow.v1 import workflow_trigger_service_pb2 as trigger_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as trigger_grpc
from ductord.rpc.channels import outgoing
from ductord.rpc.config import ConfigurationRefused
from ductord.rpc.host import Host, Scope, Service, hosting
from ductord.rpc.process import Process
from ductord.rpc.server import _bound
from tests.rpc.echo import Echo, loopback
from tests.rpc.trusting import refused, trigger
from tests.support.certificates import Authority


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

    async def health(host: Process) -> list[int]:
        assert host.health_address is not None
        async with grpc.aio.insecure_channel(host.health_address.reachable) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            asked = [health_pb2.HealthCheckRequest(service=name) for name in ("", "live")]
            return [(await stub.Check(request, timeout=20)).status for request in asked]

    async def start(scope: Scope) -> None:
        seen.append(await health(scope._process))

        async def drain() -> None:
            seen.append(await health(scope._process))

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
