"""Schedules in the books, under a clock that a test sets: what a publish writes of them, and what has become of their times."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from ductord.coordinator.schedules import Turned, turn
from ductord.engine import moments
from ductord.model.manifest import Manifest
from ductord.model.specs import Template
from ductord.model.starting import OWN_SCHEDULE, ScheduleSpec, TriggerSpec, schedule_id
from ductord.starting.fires import Asked, Fires, Scheduled
from ductord.starting.versions import Versions
from tests.support.books import TENANT, Books, chain

_CLOCK = (
    "create table test_clock (at timestamptz not null); grant select on test_clock to public; insert into test_clock values ($clock$START$clock$);"
    " create or replace function eec_now() returns timestamptz language sql stable parallel safe as $$ select at from test_clock $$"
)
HURRY = (
    "do $$ begin execute format('create or replace function eec_now() returns timestamptz language sql stable parallel safe as"
    " $f$ select %1$L::timestamptz + 60 * (statement_timestamp() - %1$L::timestamptz) $f$', statement_timestamp()); end $$"
)
"""From now on a minute of the database's clock is a second: cron knows minutes only."""
_ROW = (
    "insert into eec_workflow_schedule (tenant_id, schedule_id, definition_id, family_slug, trigger_id, version_id, version, cron_expression, timezone,"
    " catchup_window_ms, overlap_policy, next_time)"
    " select v.tenant_id, $3, v.definition_id, d.family_slug, $4, v.version_id, v.version, $5, $6, $7, $8, $9 from eec_workflow_version v"
    " join eec_workflow_definition d using (tenant_id, definition_id) where v.tenant_id = $1 and v.version_id = $2"
)
_COLUMNS = (
    "select tenant_id, schedule_id::text, definition_id::text, family_slug, trigger_id, version_id::text, version, overlap_policy from eec_workflow_schedule"
    " where schedule_id = $1 for update"
)


def at(text: str, day: str = "2030-01-02") -> datetime:
    """A moment, by its time of day (UTC) or as a whole."""
    whole = text if "T" in text else f"{day}T{text}"
    return datetime.fromisoformat(whole).replace(tzinfo=UTC)


def template(tree: Any, *names: str) -> Template:
    """An input that reads these names."""
    return Template(tree=tree, static=not names, names=names)


def firing(cron: str, *, input_: Template | None = None, trigger_id: str = OWN_SCHEDULE, **settings: Any) -> Manifest:
    """A manifest of one step on a timetable; `settings` go to the schedule."""
    trigger = TriggerSpec(id=trigger_id, schedule=ScheduleSpec(cron_expression=cron, **settings), input=input_)
    return replace(chain(1), triggers=(trigger,))


def fires(*, environment: str = "", payload_max_bytes: int = 1 << 20) -> Fires:
    """What a process that was just started fires with."""
    return Fires(Versions(), environment=environment, payload_max_bytes=payload_max_bytes)


class Timetables:
    """The schedules of one test's books."""

    def __init__(self, books: Books) -> None:
        self.books = books
        self.owner = books.owner

    async def begin(self, now: datetime) -> None:
        """The clock stands still here from now on."""
        await self.owner.execute(_CLOCK.replace("START", now.isoformat()))

    async def set(self, now: datetime) -> None:
        """Forth or back."""
        await self.owner.execute("update test_clock set at = $1", now)

    async def publish(self, manifest: Manifest, *, tenant: str = TENANT, **how: Any) -> str:
        """A version and the rows of its schedules; the id of the first."""
        return await self.follow(await self.books.publish(manifest, tenant=tenant, **how), manifest, tenant=tenant)

    async def follow(
        self, version_id: str, manifest: Manifest, *, tenant: str = TENANT, next_time: datetime | None = None
    ) -> str:
        """The rows of a version's schedules, from the next tick on; the id of the first."""
        of = "select definition_id::text from eec_workflow_version where version_id = $1"
        definition_id = await self.owner.fetchval(of, version_id)
        now = await self.owner.fetchval("select eec_now()")
        first = ""
        for trigger in manifest.triggers:
            spec = trigger.schedule
            assert spec is not None
            if next_time is None:
                next_time = moments.next_tick(spec.cron_expression, spec.timezone, now)
            schedule = schedule_id(definition_id, trigger.id)
            await self.owner.execute(
                _ROW, tenant, version_id, schedule, trigger.id, spec.cron_expression, spec.timezone, spec.catchup_window_ms, spec.overlap_policy, next_time,
            )  # fmt: skip
            first = first or schedule
        return first

    async def at(self, connection: asyncpg.Connection, now: datetime) -> Turned:
        """Set the clock; a process that was just started deals with all that is due. The sum of its turns."""
        await self.set(now)
        return await drained(connection)

    async def fired(self, schedule: str, *, kind: str = "fire") -> list[tuple[str, str]]:
        """What became of its times, oldest first: (time of day, outcome)."""
        rows = await self.owner.fetch(
            "select nominal_time, outcome from eec_workflow_schedule_fire where schedule_id = $1 and kind = $2 order by 1",
            schedule,
            kind,
        )
        return [(row["nominal_time"].strftime("%H:%M"), row["outcome"]) for row in rows]

    async def gaps(self, schedule: str) -> list[tuple[str, str, int, str]]:
        """What was passed over: (first, last, how many, outcome)."""
        rows = await self.owner.fetch(
            "select nominal_time, until_time, count, outcome from eec_workflow_schedule_fire where schedule_id = $1 and kind = 'gap' order by 1",
            schedule,
        )
        return [(f"{row[0]:%H:%M}", f"{row[1]:%H:%M}", row[2], row[3]) for row in rows]

    async def row(self, schedule: str) -> asyncpg.Record:
        """Where it stands."""
        return await self.owner.fetchrow("select * from eec_workflow_schedule where schedule_id = $1", schedule)

    async def runs(self, schedule: str) -> list[asyncpg.Record]:
        """The runs that it started, by their time."""
        rows: list[asyncpg.Record] = await self.owner.fetch(
            "select run_id::text, origin ->> 'nominal_time' as nominal_time, input::text, version_id::text, version, variables::text, environment, actor"
            " from eec_workflow_run_start where origin ->> 'schedule_id' = $1 order by 2, create_time",
            schedule,
        )
        return rows

    async def whole(self) -> None:
        """Every start of a timetable has its row and every row its start; the counters say the same; nothing is due twice."""
        rows = await self.owner.fetch(
            "select schedule_id::text, run_id::text, nominal_time from eec_workflow_schedule_fire where outcome = 'started' order by 2"
        )
        starts = await self.owner.fetch(
            "select origin ->> 'schedule_id' as schedule_id, run_id::text, (origin ->> 'nominal_time')::timestamptz as nominal_time"
            " from eec_workflow_run_start order by 2"
        )
        assert [tuple(row) for row in rows] == [tuple(row) for row in starts]
        wrong = await self.owner.fetch(
            "select s.schedule_id from eec_workflow_schedule s left join lateral ("
            "   select coalesce(sum(count) filter (where outcome = 'started'), 0) as started,"
            "          coalesce(sum(count) filter (where outcome = 'skipped'), 0) as skipped,"
            "          coalesce(sum(count) filter (where outcome = 'failed'), 0) as failed, coalesce(sum(count) filter (where outcome = 'missed'), 0) as missed"
            "   from eec_workflow_schedule_fire f where f.tenant_id = s.tenant_id and f.schedule_id = s.schedule_id) f on true"
            " where (s.started_count, s.skipped_count, s.failed_count, s.missed_count) <> (f.started, f.skipped, f.failed, f.missed)"
        )
        assert wrong == []

    async def ask(
        self, connection: asyncpg.Connection, schedule: str, times: Sequence[datetime], **asked: Any
    ) -> list[tuple[str, str]]:
        """A backfill, or a fire by hand, as who asks for it makes it; (time of day, outcome) of each."""
        async with connection.transaction():
            await connection.execute(f"set local ductor.tenant_id = '{TENANT}'")
            of = Scheduled.of(await connection.fetchrow(_COLUMNS, schedule))
            [became] = await fires().fire(connection, [Asked(schedule=of, times=tuple(times), **asked)])
        return [(f"{one.nominal_time:%H:%M}", one.outcome) for one in became]


@pytest.fixture
async def timetables(books: Books) -> Timetables:
    """Schedules under a clock that stands at half a minute past ten."""
    timetables = Timetables(books)
    await timetables.begin(at("10:00:30"))
    return timetables


async def drained(connection: asyncpg.Connection, firing_with: Fires | None = None) -> Turned:
    """Turns until nothing is due; their sum."""
    total, with_ = Turned(), firing_with or fires()
    since = None
    while True:
        turned = await turn(connection, with_, since)
        since = turned.since
        for name in ("fired", "late_s", "missed", "broken"):
            getattr(total, name).extend(getattr(turned, name))
        if not turned.left:
            total.next_s, total.since = turned.next_s, turned.since
            return total


def minutes(first: datetime, count: int, step: int = 1) -> list[datetime]:
    """`count` moments, `step` minutes apart."""
    return [first + timedelta(minutes=step * n) for n in range(count)]
