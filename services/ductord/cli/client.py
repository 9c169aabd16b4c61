"""A client of the services: the generated stubs, the tenant's metadata, time limits, and errors as the refusals that they are.

All stubs share the address of `--target` / `DUCTOR_TARGET`; without one, `DUCTOR_<SERVICE>_TARGET` where services run apart, else where `ductor dev`
listens. It never reads a row and knows no service's module.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final, TypeVar
from uuid import UUID

import grpc
import msgspec

from ductor.workflow.v1 import workflow_definition_service_pb2 as definition_api
from ductor.workflow.v1.admin_service_pb2_grpc import AdminServiceStub
from ductor.workflow.v1.schedule_service_pb2_grpc import ScheduleServiceStub
from ductor.workflow.v1.task_service_pb2_grpc import TaskServiceStub
from ductor.workflow.v1.workflow_definition_service_pb2_grpc import WorkflowDefinitionServiceStub
from ductor.workflow.v1.workflow_run_control_service_pb2_grpc import WorkflowRunControlServiceStub
from ductor.workflow.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from ductor.workflow.v1.workflow_signal_service_pb2_grpc import WorkflowSignalServiceStub
from ductor.workflow.v1.workflow_trigger_service_pb2_grpc import WorkflowTriggerServiceStub
from ductord.cli.configured import configured, misconfigured
from ductord.cli.ending import MISUSED, CommandFailed
from ductord.cli.output import say
from ductord.model.errors import Refusal
from ductord.rpc.channels import exposed, open_channel, outgoing
from ductord.rpc.config import ConfigurationRefused, TargetService
from ductord.rpc.credentials import Credential, Metadata
from ductord.rpc.errors import refusal_from

DEFAULT_TARGET: Final = "127.0.0.1:9090"
CALL_LIMIT_S: Final = 30.0
PAGE: Final = 500

Ask = TypeVar("Ask")
Answer = TypeVar("Answer")


class Connection(msgspec.Struct, frozen=True, kw_only=True):
    """What every client command is told: where to, in whose name, and where the key is that says so."""

    target: str
    tenant: str
    key_file: str = ""


class Client:
    """Open stubs. Made by `connected`."""

    def __init__(
        self, connection: Connection, credential: Credential, channel: Callable[[TargetService], grpc.aio.Channel]
    ) -> None:
        self.tenant = connection.tenant or None
        """None: the one that the key names."""
        self.credential = credential
        self.sign = credential.metadata
        self.definitions = WorkflowDefinitionServiceStub(channel("definition"))
        self.triggers = WorkflowTriggerServiceStub(channel("trigger"))
        self.schedules = ScheduleServiceStub(channel("trigger"))
        self.runs = WorkflowServiceStub(channel("reads"))
        self.controls = WorkflowRunControlServiceStub(channel("run_control"))
        self.signals = WorkflowSignalServiceStub(channel("signals"))
        self.admin = AdminServiceStub(channel("admin"))
        self.tasks = TaskServiceStub(channel("dispatch"))

    async def call(
        self, rpc: grpc.aio.UnaryUnaryMultiCallable[Ask, Answer], request: Ask, *, limit_s: float = CALL_LIMIT_S
    ) -> Answer:
        """One call. Raises `Refusal`."""
        try:
            return await rpc(request, metadata=self._metadata(), timeout=limit_s)
        except grpc.aio.AioRpcError as error:
            raise refusal_from(error) from None

    async def stream(
        self, rpc: grpc.aio.UnaryStreamMultiCallable[Ask, Answer], request: Ask, *, limit_s: float
    ) -> AsyncGenerator[Answer]:
        """The answers of a server stream. Raises `Refusal`, DEADLINE_EXCEEDED when it takes longer than `limit_s`. Leaving it ends the call."""
        call: Any = rpc(request, metadata=self._metadata(), timeout=limit_s)
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise refusal_from(error) from None
        finally:
            call.cancel()

    def _metadata(self) -> Metadata:
        return *outgoing(tenant_id=self.tenant), *self.sign()

    async def definition_id(self, name: str) -> str:
        """The definition id of a family slug; an id is answered as it is."""
        if is_id(name):
            return name
        request = definition_api.ListWorkflowDefinitionsRequest(family_slug=name, page_size=1)
        found = await self.call(self.definitions.ListWorkflowDefinitions, request)
        if not found.data:
            raise Refusal("NOT_FOUND", "DEFINITION_NOT_FOUND", f"this tenant has no workflow {name!r}")
        return found.data[0].definition_id


@asynccontextmanager
async def connected(connection: Connection) -> AsyncIterator[Client]:
    """A client while the context is open; channels connect at their first call. Raises `CommandFailed` when neither a tenant nor a key was named."""
    settings = configured(**({"api_key_file": connection.key_file, "api_key": ""} if connection.key_file else {}))
    try:
        credential = Credential(settings)
    except ConfigurationRefused as refused:
        raise misconfigured(refused) from None
    if not connection.tenant and credential.token is None:
        raise CommandFailed(
            "which tenant? There is no default",
            way_out="give --tenant or set DUCTOR_TENANT_ID (`ductor dev` uses `dev`), or give a key, which names it (--api-key-file)",
            code=MISUSED,
        )
    channels: dict[str, grpc.aio.Channel] = {}
    async with AsyncExitStack() as stack:

        def channel(service: TargetService) -> grpc.aio.Channel:
            target = connection.target or settings.target(service) or DEFAULT_TARGET
            if target not in channels:
                if credential.token is not None and (warning := exposed(target, settings)):
                    say(f"warning: {warning}", "yellow")
                try:
                    channels[target] = open_channel(target, settings)
                except ConfigurationRefused as refused:
                    raise misconfigured(refused) from None
                stack.push_async_callback(channels[target].close, None)
            return channels[target]

        yield Client(connection, credential, channel)


async def pages(fetch: Callable[[str, int], Any], limit: int) -> Sequence[Any]:
    """Up to `limit` entries of a listing: `fetch(page_token, page_size)` gives an answer with `data` and `next_page_token`."""
    entries: list[Any] = []
    token = ""
    while True:
        page = await fetch(token, min(limit - len(entries), PAGE))
        entries += page.data
        token = page.next_page_token
        if not token or len(entries) >= limit:
            return entries


def is_id(name: str) -> bool:
    """Whether `name` is an id; else it is taken for a family slug. (Short hexadecimal words are slugs.)"""
    if re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", name) is None:
        return False
    UUID(name)
    return True
