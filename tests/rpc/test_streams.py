"""Streamed answers go through the same pipeline: identity, errors in the middle, a caller who leaves."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from ductor.workflow.v1.workflow_trigger_service_pb2 import TriggerWorkflowRequest, TriggerWorkflowResponse
from ductord.rpc.caller import caller
from ductord.rpc.channels import outgoing
from ductord.rpc.errors import refusal_from, refused
from ductord.rpc.host import Scope, Service, hosting
from tests.rpc.echo import loopback, until

PATH = "/test.Streams/Watch"


class Watching:
    """Counts for ever; `missing` fails at the third answer."""

    def __init__(self) -> None:
        self.left = asyncio.Event()

    async def watch(self, request: TriggerWorkflowRequest, context: Any) -> AsyncIterator[TriggerWorkflowResponse]:
        try:
            for number in range(1_000_000):
                if number == 2 and request.definition_id == "missing":
                    raise refused("RUN_NOT_FOUND", "gone")
                yield TriggerWorkflowResponse(run_id=f"{caller().tenant} {number}")
                await asyncio.sleep(0.001)
        finally:
            self.left.set()


def add(servicer: Watching, server: Any) -> None:
    """As generated code does it, for an RPC that the contract gets later."""
    rpc = grpc.unary_stream_rpc_method_handler(
        servicer.watch, TriggerWorkflowRequest.FromString, TriggerWorkflowResponse.SerializeToString
    )
    server.add_registered_method_handlers("test.Streams", {"Watch": rpc})


@pytest.fixture
async def watching() -> AsyncIterator[tuple[Watching, Any]]:
    """A served stream and its client."""
    servicer = Watching()

    async def start(scope: Scope) -> None:
        scope.rpcs(add, servicer)

    async with hosting([Service(name="reads", start=start)], loopback()) as host:
        channel = grpc.aio.insecure_channel(host.grpc_address.reachable)
        yield (
            servicer,
            channel.unary_stream(PATH, TriggerWorkflowRequest.SerializeToString, TriggerWorkflowResponse.FromString),
        )
        await channel.close(None)


async def test_a_stream_ends_with_a_coded_error(watching: tuple[Watching, Any]) -> None:
    _, watch = watching
    call = watch(TriggerWorkflowRequest(definition_id="missing"), metadata=outgoing(tenant_id="acme"))
    assert [(await call.read()).run_id for _ in range(2)] == ["acme 0", "acme 1"]
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call.read()
    assert refusal_from(raised.value).reason == "RUN_NOT_FOUND"
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await watch(TriggerWorkflowRequest()).read()
    assert refusal_from(raised.value).reason == "TENANT_REQUIRED"


async def test_a_caller_who_leaves_ends_the_work(
    watching: tuple[Watching, Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ductor.access")
    servicer, watch = watching
    call = watch(TriggerWorkflowRequest(), metadata=outgoing(tenant_id="acme"))
    assert (await call.read()).run_id == "acme 0"
    call.cancel()
    async with asyncio.timeout(30):
        await servicer.left.wait()
    await until(lambda: any(r.name == "ductor.access" for r in caplog.records))
    assert [r.__dict__["code"] for r in caplog.records if r.name == "ductor.access"] == ["CANCELLED"]
