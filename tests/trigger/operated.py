"""Schedules as an operator sees them, under a clock that a test steps."""

from datetime import UTC, datetime
from typing import Any

import asyncpg
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec.structs import replace

from ductor.workflow.v1 import definition_pb2
from ductor.workflow.v1 import schedule_service_pb2 as api
from ductor.workflow.v1.schedule_service_pb2_grpc import ScheduleServiceStub
from ductord.model.manifest import Manifest
from ductord.model.specs import Template
from ductord.model.starting import OWN_SCHEDULE, ScheduleSpec, TriggerSpec, schedule_id
from tests.support.books import TENANT, chain
from tests.support.edges import Catalogue, Edges, as_tenant

NOON = datetime(2030, 1, 2, 12, 0, 30, tzinfo=UTC)
"""Half a minute after twelve: no tick of any cron."""
ACTIVE, PAUSED = api.SCHEDULE_STATUS_ACTIVE, api.SCHEDULE_STATUS_PAUSED
RETIRED, BROKEN = api.SCHEDULE_STATUS_RETIRED, api.SCHEDULE_STATUS_BROKEN
SKIP, ALLOW = definition_pb2.OVERLAP_POLICY_SKIP, definition_pb2.OVERLAP_POLICY_ALLOW_ALL


def at(text: str) -> datetime:
    """A time of day (UTC), or a whole time."""
    return datetime.fromisoformat(text if "T" in text else f"2030-01-02T{text}").replace(tzinfo=UTC)


def stamp(text: str) -> Timestamp:
    """The same in a message."""
    message = Timestamp()
    message.FromDatetime(at(text))
    return message


def clock(message: Timestamp) -> str:
    """A time of a message as its time of day."""
    return f"{message.ToDatetime():%H:%M:%S}".removesuffix(":00")


def firing(cron: str, *, trigger_id: str = OWN_SCHEDULE, input_: Template | None = None, **settings: Any) -> Manifest:
    """A manifest of one step on a timetable; `settings` go to the schedule."""
    trigger = TriggerSpec(id=trigger_id, schedule=ScheduleSpec(cron_expression=cron, **settings), input=input_)
    return replace(chain(1), triggers=(trigger,))


class Operator:
    """Who calls ScheduleService, and the clock that the database then has."""

    def __init__(self, owner: asyncpg.Connection, edges: Edges) -> None:
        self.owner = owner
        self.catalogue = Catalogue(owner)
        self._stub = ScheduleServiceStub(edges.channel)

    async def clock(self, now: datetime) -> None:
        """The clock stands still there."""
        await self.owner.execute(
            "create or replace function eec_now() returns timestamptz language sql stable as"
            f" $$ select timestamptz '{now.isoformat()}' $$"
        )

    async def published(self, manifest: Manifest, *, slug: str = "report", tenant: str = TENANT) -> str:
        """A definition with one version; the id of its first schedule."""
        definition_id = await self.catalogue.published(manifest, slug=slug, tenant=tenant)
        return schedule_id(definition_id, manifest.triggers[0].id)

    async def call(self, rpc: str, *, tenant: str = TENANT, **fields: Any) -> Any:
        """One RPC."""
        request = getattr(api, f"{rpc}Request")(**fields)
        return await getattr(self._stub, rpc)(request, metadata=as_tenant(tenant), timeout=60)

    async def get(self, schedule: str) -> Any:
        """GetSchedule."""
        return (await self.call("GetSchedule", schedule_id=schedule)).data

    async def fires(self, schedule: str, **fields: Any) -> list[tuple[str, str, str, int]]:
        """ListScheduleFires: (time, outcome, source, how many)."""
        answer = await self.call("ListScheduleFires", schedule_id=schedule, **fields)
        return [
            (
                clock(fire.nominal_time),
                api.FireOutcome.Name(fire.outcome).removeprefix("FIRE_OUTCOME_").lower(),
                api.FireSource.Name(fire.source).removeprefix("FIRE_SOURCE_").lower(),
                fire.count,
            )
            for fire in answer.data
        ]

    async def backfill(self, schedule: str, begin: str, end: str, **fields: Any) -> Any:
        """BackfillSchedule of (begin, end]."""
        return await self.call(
            "BackfillSchedule", schedule_id=schedule, from_time=stamp(begin), to_time=stamp(end), **fields
        )

    async def audit(self) -> list[tuple[str, str, str, str]]:
        """The audit trail: (action, target, reason, request)."""
        rows = await self.owner.fetch(
            "select action, target, reason, request_id from eec_workflow_audit order by at, audit_id"
        )
        return [tuple(row) for row in rows]

    async def end_runs(self) -> None:
        """All runs that were started and have no state end here."""
        await self.owner.execute(
            "insert into eec_workflow_run (tenant_id, run_id, status, record_version, version_id, format_version, engine_level, start_time, update_time,"
            " end_time)"
            " select tenant_id, run_id, 'completed', 1, version_id, 1, 1, eec_now(), eec_now(), eec_now() from eec_workflow_run_start on conflict do nothing"
        )
