"""A schedule in rows: real Postgres, the coordinator's watch and ticks, ScheduleService over gRPC, each under its own login. Only the clock is the story's."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import Any

import asyncpg
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec.structs import replace

from ductor.workflow.v1 import definition_pb2 as definitions
from ductor.workflow.v1 import schedule_service_pb2 as api
from ductor.workflow.v1.schedule_service_pb2_grpc import ScheduleServiceStub
from ductord.coordinator.cache import Cache
from ductord.coordinator.tick import tick
from ductord.engine.compile import compile_definition
from ductord.engine.limits import LIMITS
from ductord.model.manifest import Manifest
from ductord.model.starting import OWN_SCHEDULE, ScheduleSpec, TriggerSpec, schedule_id
from ductord.trigger.service import SERVICE
from tests.conftest import Database
from tests.coordinator.timetables import drained
from tests.schedules.playing import Fire, State
from tests.support.books import TENANT
from tests.support.edges import Catalogue, Edges, as_tenant, serving

_CLOCK = """
create table if not exists story_clock (at timestamptz not null);
truncate story_clock;
grant select on story_clock to public;
insert into story_clock values ('1970-01-01Z');
create or replace function eec_now() returns timestamptz language sql stable parallel safe as $$ select at from story_clock $$;
"""
_POLICIES = {"skip": definitions.OVERLAP_POLICY_SKIP, "allow_all": definitions.OVERLAP_POLICY_ALLOW_ALL}


class PostgresSchedule:
    """Implements `World`. Its runs end when they are ticked."""

    def __init__(self, owner: asyncpg.Connection, coordinator: asyncpg.Connection, edges: Edges) -> None:
        self._owner = owner
        self._coordinator = coordinator
        self._catalogue = Catalogue(owner)
        self._stub = ScheduleServiceStub(edges.channel)
        self._definition_id = ""
        self._schedule_id = ""

    async def at(self, moment: datetime) -> None:
        await self._owner.execute("update story_clock set at = $1", moment)

    async def publish(self, spec: ScheduleSpec) -> None:
        self._definition_id = self._definition_id or await self._catalogue.define("story")
        self._schedule_id = schedule_id(self._definition_id, OWN_SCHEDULE)
        await self._catalogue.publish(self._definition_id, _manifest(spec))

    async def watch(self) -> None:
        turned = await drained(self._coordinator)
        assert turned.broken == []

    async def end(self) -> None:
        cache = Cache()
        while (await tick(self._coordinator, cache, LIMITS, 500)).claimed:
            pass
        going = "select count(*) from eec_workflow_run_start left join eec_workflow_run r using (tenant_id, run_id) where r.end_time is null"
        assert await self._owner.fetchval(going) == 0

    async def pause(self) -> None:
        await self._call("PauseSchedule", reason="the story says so")

    async def resume(self) -> None:
        await self._call("ResumeSchedule", reason="the story says so")

    async def now(self, request_id: str) -> None:
        await self._call("TriggerScheduleNow", request_id=request_id)

    async def backfill(self, begin: datetime, end: datetime, overlap_policy: str) -> tuple[int, int, int]:
        policy = _POLICIES[overlap_policy]
        answer = await self._call(
            "BackfillSchedule", from_time=_stamp(begin), to_time=_stamp(end), overlap_policy=policy
        )
        assert answer.failed_count == 0
        return len(answer.started_run_ids), answer.already_started_count, answer.skipped_count

    async def fires(self) -> list[Fire]:
        rows = await self._owner.fetch(
            "select nominal_time, kind, outcome, source, count, until_time, coalesce(run_id::text, '') as run_id from eec_workflow_schedule_fire"
            " order by nominal_time, kind"
        )
        return [Fire(**dict(row)) for row in rows]

    async def state(self) -> State:
        row = await self._owner.fetchrow(
            "select next_time, pause_time is not null as paused, started_count as started, skipped_count as skipped, missed_count as missed,"
            " dropped_count as dropped from eec_workflow_schedule where schedule_id = $1 and live and error_code = ''",
            self._schedule_id,
        )
        assert row is not None
        return State(**dict(row))

    async def whole(self) -> None:
        """What must hold after every story: a run for every time that started one, born once, and told when that was (TC-08)."""
        rows = await self._owner.fetch(
            "select f.nominal_time, (s.origin ->> 'nominal_time')::timestamptz as born, s.actor from eec_workflow_schedule_fire f"
            " full join eec_workflow_run_start s using (tenant_id, run_id) where f.outcome = 'started' or f.outcome is null"
        )
        assert all(row["nominal_time"] == row["born"] and row["actor"] == f"schedule:{OWN_SCHEDULE}" for row in rows)

    async def _call(self, rpc: str, **fields: Any) -> Any:
        request = getattr(api, f"{rpc}Request")(schedule_id=self._schedule_id, **fields)
        return await getattr(self._stub, rpc)(request, metadata=as_tenant(TENANT), timeout=60)


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[PostgresSchedule]:
    """A schedule in this database. What other stories left there is gone."""
    async with AsyncExitStack() as stack:
        owner, coordinator = [await asyncpg.connect(dsn) for dsn in (database.owner, database.dsn("coordinator"))]
        for connection in (owner, coordinator):
            stack.push_async_callback(connection.close)
        tables = "select string_agg(quote_ident(relname), ', ') from pg_class where relkind = 'r' and relname like 'eec\\_workflow\\_%'"
        await owner.execute(f"truncate {await owner.fetchval(tables)}")
        await owner.execute(_CLOCK)
        edges = await stack.enter_async_context(serving(database, [SERVICE], pool_max_size=1))
        yield PostgresSchedule(owner, coordinator, edges)


def _manifest(spec: ScheduleSpec) -> Manifest:
    """One that a tick runs to its end."""
    sums = {"operation": "map", "items_expr": "[1]", "expr": "ITEM"}
    step = {"ref": "sums", "type": "dataflow", "dataflow": sums}
    manifest = compile_definition({"family_slug": "story", "steps": [step]}).manifest
    assert manifest is not None
    return replace(manifest, engine_level=5, triggers=(TriggerSpec(id=OWN_SCHEDULE, schedule=spec),))


def _stamp(moment: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(moment)
    return message
