"""All services of a suite in this event loop with authentication on, over one database, and every RPC of the contract as anybody may call it.

What is called is taken from the descriptors, so that an RPC that is added is called too.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import httpx
import msgspec
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc import error_details_pb2

from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from ductord.access import keys
from ductord.admin.service import SERVICE as ADMIN
from ductord.coordinator.service import SERVICE as COORDINATOR
from ductord.definition.service import SERVICE as DEFINITION
from ductord.dispatch.service import SERVICE as DISPATCH
from ductord.gateway.backends import BACKENDS
from ductord.gateway.routing import Route, Routes
from ductord.gateway.service import SERVICE as GATEWAY
from ductord.reads.service import SERVICE as READS
from ductord.rpc.config import Settings
from ductord.rpc.errors import refusal_from, refusal_of_status, status_from
from ductord.rpc.host import Host, hosting
from ductord.run_control.service import SERVICE as RUN_CONTROL
from ductord.signals.service import SERVICE as SIGNALS
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.support.keys import bearer

SERVICES = [DEFINITION, TRIGGER, RUN_CONTROL, SIGNALS, READS, ADMIN, DISPATCH, COORDINATOR, GATEWAY]
RPCS: list[MethodDescriptor] = [rpc for backend in BACKENDS for rpc in backend.service.methods]
ROUTES: list[Route] = Routes(backend.service for backend in BACKENDS).all
Metadata = tuple[tuple[str, str], ...]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller sees of an answer: of a refusal or of data all but the ids and times of the call itself."""

    code: str
    reason: str = ""
    details: dict[str, str] = {}
    body: bytes = b""
    retry: bool = False


class World:
    """The running suite."""

    def __init__(self, host: Host, database: Database, channel: grpc.aio.Channel, http: httpx.AsyncClient) -> None:
        self.host = host
        self.database = database
        self.channel = channel
        self.http = http

    async def call(self, rpc: MethodDescriptor, request: Message, metadata: Metadata) -> Answer:
        """An RPC over gRPC; of a stream the first answer."""
        answered = GetMessageClass(rpc.output_type)
        kind = self.channel.unary_stream if rpc.server_streaming else self.channel.unary_unary
        call: Any = kind(path_of(rpc), request.__class__.SerializeToString, answered.FromString)
        try:
            if rpc.server_streaming:
                stream = call(request, metadata=metadata, timeout=60)
                answer = await stream.read()
                stream.cancel()
            else:
                answer = await call(request, metadata=metadata, timeout=60)
        except grpc.aio.AioRpcError as error:
            status = status_from(error)
            refusal = refusal_of_status(status)
            kept = [detail for detail in status.details if not detail.Is(error_details_pb2.RequestInfo.DESCRIPTOR)]
            del status.details[:]
            status.details.extend(kept)
            return Answer(
                code=refusal.code,
                reason=refusal.reason,
                details=dict(refusal.metadata),
                body=status.SerializeToString(deterministic=True),
                retry=refusal.retry_after_ms is not None,
            )
        answer.ClearField("metadata")
        return Answer(code="OK", body=answer.SerializeToString(deterministic=True))


def request_of(rpc: MethodDescriptor) -> Any:
    """An empty request."""
    return GetMessageClass(rpc.input_type)()


def path_of(rpc: MethodDescriptor) -> str:
    """As gRPC and Connect name it."""
    return "/" + rpc.full_name.rpartition(".")[0] + "/" + rpc.name


@asynccontextmanager
async def suite(database: Database, **options: Any) -> AsyncIterator[World]:
    """The suite. What it has looked up it keeps for 100 ms; what it notes of keys is written when a test says so (`Keys.turn`)."""
    settings = Settings(
        **{
            "database_url": database.owner,
            "grpc_address": "127.0.0.1:0",
            "http_address": "127.0.0.1:0",
            "access_log": "off",
            "auth": "keys",
            "key_cache_ms": 100,
            "pool_max_size": 2,
            "lease_ms": 600_000,
            **options,
        }
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "TURN_MS", 3_600_000)  # a turn of its own between two attempts would tell them apart
        async with (
            hosting(SERVICES, settings) as host,
            grpc.aio.insecure_channel(host.grpc_address.reachable) as channel,
            httpx.AsyncClient(base_url=f"http://{host.http_address}", timeout=60) as http,
        ):
            yield World(host, database, channel, http)


async def list_runs(world: World, token: str, tenant_id: str = "") -> Any:
    """ListRuns."""
    stub = WorkflowServiceStub(world.channel)
    return await stub.ListRuns(reads.ListRunsRequest(), metadata=bearer(token, tenant_id), timeout=60)


async def reason_of(world: World, token: str) -> str:
    """Of the refusal of a ListRuns; empty if it is served."""
    try:
        await list_runs(world, token)
    except grpc.aio.AioRpcError as error:
        return refusal_from(error).reason
    return ""


async def until_reason(world: World, token: str, reason: str) -> None:
    """Await that a ListRuns is refused for `reason`, or served again where that is empty."""
    async with asyncio.timeout(60):
        while await reason_of(world, token) != reason:  # noqa: ASYNC110  # what is known of a key has no event that a caller sees
            await asyncio.sleep(0.01)
