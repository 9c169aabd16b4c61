"""Trigger, run control, signals and reads on loopback over one test database, called through generated stubs; a coordinator and workers are played by hand.

The tables are the real ones: versions go in as the definition service writes them, runs move by the coordinator's own tick, attempts are
reported as dispatch does.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import grpc
import msgspec

from ductor.workflow.v1 import workflow_run_control_service_pb2_grpc as controls_grpc
from ductor.workflow.v1 import workflow_service_pb2_grpc as reads_grpc
from ductor.workflow.v1 import workflow_signal_service_pb2_grpc as signals_grpc
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as triggers_grpc
from ductord.db.ids import new_id
from ductord.definition import live
from ductord.model import manifest as manifests
from ductord.model.errors import Refusal
from ductord.model.manifest import Checkpoint, Manifest
from ductord.rpc.config import Settings
from ductord.rpc.errors import refusal_from
from ductord.rpc.host import Host, Service, hosting
from tests.conftest import Database
from tests.support.books import TENANT, chain


class Edges:
    """A running process of edge services, as a tenant sees it."""

    def __init__(self, host: Host, channel: grpc.aio.Channel) -> None:
        self.host = host
        self.channel = channel
        self.trigger = triggers_grpc.WorkflowTriggerServiceStub(channel)
        self.controls = controls_grpc.WorkflowRunControlServiceStub(channel)
        self.signals = signals_grpc.WorkflowSignalServiceStub(channel)
        self.reads = reads_grpc.WorkflowServiceStub(channel)

    async def start(
        self, definition_id: str, *, tenant: str = TENANT, **fields: Any
    ) -> triggers.TriggerWorkflowResponse:
        """TriggerWorkflow."""
        request = triggers.TriggerWorkflowRequest(definition_id=definition_id, **fields)
        return await self.trigger.TriggerWorkflow(request, metadata=as_tenant(tenant), timeout=60)

    async def batch(
        self, definition_id: str, items: Sequence[triggers.BatchTriggerItem], *, tenant: str = TENANT
    ) -> Sequence[triggers.BatchTriggerResult]:
        """BatchTriggerWorkflow; the results."""
        request = triggers.BatchTriggerWorkflowRequest(definition_id=definition_id, items=items)
        answer = await self.trigger.BatchTriggerWorkflow(request, metadata=as_tenant(tenant), timeout=60)
        assert len(answer.results) == len(items)
        return answer.results


def as_tenant(tenant: str) -> tuple[tuple[str, str], ...]:
    """The metadata of a call."""
    return (("x-tenant-id", tenant),)


async def refusal(call: Any) -> Refusal:
    """Await a call that is refused; how."""
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return refusal_from(error)
    raise AssertionError("the call was not refused")


@asynccontextmanager
async def serving(database: Database, services: Sequence[Service], **options: Any) -> AsyncIterator[Edges]:
    """The services in this event loop, each with its own login."""
    settings = Settings(
        database_url=database.owner, grpc_address="127.0.0.1:0", http_address="off", access_log="off", **options
    )
    async with hosting(services, settings) as host, grpc.aio.insecure_channel(host.grpc_address.reachable) as channel:
        yield Edges(host, channel)


class Catalogue:
    """Definitions and their versions, written as the definition service does."""

    def __init__(self, owner: asyncpg.Connection) -> None:
        self._owner = owner
        self.manifests: dict[str, Manifest] = {}

    async def define(self, slug: str = "chain", *, tenant: str = TENANT) -> str:
        """A definition without a version; its id."""
        definition_id = new_id()
        await self._owner.execute(
            "insert into eec_workflow_definition (tenant_id, definition_id, family_slug) values ($1, $2, $3)",
            tenant,
            definition_id,
            slug,
        )
        return definition_id

    async def publish(self, definition_id: str, manifest: Manifest, *, tenant: str = TENANT) -> str:
        """The next version of a definition; its version id. Its triggers are live from then on."""
        version_id = new_id()
        slug, number = await self._owner.fetchrow(
            "update eec_workflow_definition set latest_version = latest_version + 1 where tenant_id = $1 and definition_id = $2"
            " returning family_slug, latest_version",
            tenant,
            definition_id,
        )
        await self._owner.execute(
            "insert into eec_workflow_version (tenant_id, version_id, definition_id, version, document, manifest, manifest_hash, format_version,"
            " engine_level, draft_revision) values ($1, $2, $3, $4, '{}', $5, 'hash', 1, 1, 1)",
            tenant, version_id, definition_id, number, manifests.encode(manifest),
        )  # fmt: skip
        await live.follow(self._owner, tenant, definition_id, slug, version_id, number, manifest.triggers)
        self.manifests[version_id] = manifest
        return version_id

    async def published(self, manifest: Manifest | None = None, *, slug: str = "chain", tenant: str = TENANT) -> str:
        """A definition with one version; the definition id."""
        definition_id = await self.define(slug, tenant=tenant)
        await self.publish(definition_id, manifest or chain(1), tenant=tenant)
        return definition_id

    async def archive(self, version_id: str) -> None:
        """Retire a version."""
        await self._owner.execute(
            "update eec_workflow_version set status = 'archived' where version_id = $1", version_id
        )


def with_checkpoints(manifest: Manifest, *names: str, response: str | None = None) -> Manifest:
    """The manifest with checkpoints over its first step, its second, …"""
    checkpoints = tuple(Checkpoint(name=name, steps=(index,)) for index, name in enumerate(names))
    return msgspec.structs.replace(manifest, checkpoints=checkpoints, response_checkpoint=response)


def wide(count: int) -> Manifest:
    """A manifest of `count` steps that know nothing of each other."""
    manifest = chain(count)
    steps = tuple(msgspec.structs.replace(step, incoming=(), outgoing=()) for step in manifest.steps)
    return msgspec.structs.replace(manifest, steps=steps, edges=(), entrypoints=tuple(range(count)))
