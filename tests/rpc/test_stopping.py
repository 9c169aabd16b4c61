"""A process that stops answers what has reached it; what reached it too late tells its caller that it may be repeated (KB-01, KB-03)."""

import asyncio
import json
import time

import grpc
import pytest

from ductor.workflow.v1 import workflow_service_pb2 as reads_pb2
from ductor.workflow.v1 import workflow_service_pb2_grpc as reads_grpc
from ductord.rpc import channels, server
from ductord.rpc.channels import outage_of
from ductord.rpc.errors import refusal_from
from ductord.rpc.host import hosting
from tests.rpc.echo import Echo, loopback

CALLS = 30


async def test_kb_03_calls_that_have_arrived_when_a_server_stops_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """They arrive while the process is busy, and the stop comes before it has looked at them: gRPC itself would end all but one of them as CANCELLED."""
    monkeypatch.setattr(server, "QUIET_S", 0.05)  # as outside of tests
    monkeypatch.setattr(server, "QUIET_LIMIT_S", 10.0)  # however slow this machine is
    echo = Echo()
    async with hosting([echo.service], loopback()) as host:
        with grpc.insecure_channel(
            host.grpc_address.reachable
        ) as channel:  # its threads go on while the loop is held up
            stub = reads_grpc.WorkflowServiceStub(channel)
            metadata = (("x-tenant-id", "a"),)
            await asyncio.to_thread(stub.GetRun, reads_pb2.GetRunRequest(run_id="r"), metadata=metadata, timeout=60)
            calls = [
                stub.GetRun.future(reads_pb2.GetRunRequest(run_id="r"), metadata=metadata, timeout=60)
                for _ in range(CALLS)
            ]
            time.sleep(0.3)  # the process is busy
            await host.server.stop(2)
            errors = [await asyncio.to_thread(call.exception) for call in calls]
    assert errors.count(None) >= 0.8 * CALLS, "but for those that a busy machine had not brought here yet"
    passing = (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    assert all(error is None or error.code() in passing for error in errors)  # type: ignore[attr-defined]


async def test_a_call_that_its_server_ended_unheard_was_unavailable() -> None:
    """Whoever cancels gets no answer; so a CANCELLED that arrives is a server that went away, and the call may be repeated as after UNAVAILABLE."""
    nothing = grpc.aio.Metadata()
    error = grpc.aio.AioRpcError(grpc.StatusCode.CANCELLED, nothing, nothing, "CANCELLED", "")
    refusal = refusal_from(error)
    assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "SERVICE_UNAVAILABLE")
    assert outage_of(error) is not None
    [policy] = json.loads(channels._service_config())["methodConfig"]
    assert set(policy["retryPolicy"]["retryableStatusCodes"]) == {"UNAVAILABLE", "CANCELLED"}
