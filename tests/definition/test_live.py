"""What a publish and an archiving do to the rows by which runs start by themselves (D3, T2, T3). The clock is the database's, stepped by hand."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest_asyncio

from ductord.db.ids import new_id
from ductord.db.pool import open_pool, tenant_transaction
from ductord.definition import live
from ductord.model.specs import Expression
from ductord.model.starting import ScheduleSpec, TriggerSpec, schedule_id
from tests.conftest import Database

TENANT = "acme"
NOON = datetime(2026, 3, 1, 12, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
STANDING = "trigger_id, live, version, next_time, pause_time is not null, error_code"


class Family:
    """A definition of which versions go live, as the service's own login."""

    def __init__(self, owner: asyncpg.Connection, pool: asyncpg.Pool) -> None:
        self.owner = owner
        self.pool = pool
        self.definition_id = new_id()
        self.version = 0

    async def publish(self, *triggers: TriggerSpec) -> str:
        """Let a next version follow; its id."""
        self.version += 1
        version_id = new_id()
        async with tenant_transaction(self.pool, TENANT) as db:
            await live.follow(db, TENANT, self.definition_id, "order", version_id, self.version, triggers)
        return version_id

    async def archive(self) -> None:
        """Retire all."""
        async with tenant_transaction(self.pool, TENANT) as db:
            await live.retire(db, TENANT, self.definition_id)

    async def at(self, time: datetime) -> None:
        """Step the clock."""
        body = f"select timestamptz '{time.isoformat()}'"
        await self.owner.execute(
            f"create or replace function eec_now() returns timestamptz language sql stable as $$ {body} $$"
        )

    async def schedules(self, columns: str = STANDING) -> list[tuple[Any, ...]]:
        """The schedules by trigger."""
        rows = await self.owner.fetch(f"select {columns} from eec_workflow_schedule order by trigger_id")
        return [tuple(row) for row in rows]

    async def patterns(self) -> list[tuple[Any, ...]]:
        """The event triggers."""
        columns = "pattern, trigger_id, version, filter"
        rows = await self.owner.fetch(f"select {columns} from eec_workflow_event_trigger order by 1, 2")
        return [tuple(row) for row in rows]

    async def change(self, trigger_id: str, assignments: str) -> None:
        """What another service does to a schedule."""
        await self.owner.execute(f"update eec_workflow_schedule set {assignments} where trigger_id = $1", trigger_id)


@pytest_asyncio.fixture
async def family(database: Database) -> AsyncIterator[Family]:
    """A family at 12:00:30."""
    owner = await asyncpg.connect(database.owner)
    pool = await open_pool(database.dsn("definition"), "definition")
    of = Family(owner, pool)
    await of.at(NOON)
    yield of
    await pool.close()
    await owner.close()


def every(trigger_id: str, cron: str = "* * * * *", **fields: Any) -> TriggerSpec:
    """A schedule trigger."""
    return TriggerSpec(id=trigger_id, schedule=ScheduleSpec(cron_expression=cron, **fields))


def on(trigger_id: str, *patterns: str, filter: str = "") -> TriggerSpec:
    """An event trigger."""
    return TriggerSpec(id=trigger_id, patterns=patterns, filter=Expression(source=filter) if filter else None)


async def test_a_version_brings_its_timetables_and_patterns(family: Family) -> None:
    """D3: all that the manifest says, with ids that are the family's, and the first time after now in the schedule's zone."""
    version_id = await family.publish(
        every("tick"),
        on("paid", "order.paid", "order.*", "order.paid", filter="EVENT.payload.amount > 5"),
        every("nightly", "30 2 * * *", timezone="Europe/Berlin", catchup_window_ms=5_000, overlap_policy="allow_all"),
    )
    columns = "schedule_id::text, family_slug, trigger_id, version_id::text, cron_expression, timezone, catchup_window_ms, overlap_policy, next_time"
    assert await family.schedules(columns) == [
        (schedule_id(family.definition_id, "nightly"), "order", "nightly", version_id, "30 2 * * *", "Europe/Berlin", 5_000, "allow_all",
         datetime(2026, 3, 2, 1, 30, tzinfo=UTC)),
        (schedule_id(family.definition_id, "tick"), "order", "tick", version_id, "* * * * *", "UTC", 600_000, "skip",
         datetime(2026, 3, 1, 12, 1, tzinfo=UTC)),
    ]  # fmt: skip
    condition = "EVENT.payload.amount > 5"
    assert await family.patterns() == [("order.*", "paid", 1, condition), ("order.paid", "paid", 1, condition)]


async def test_what_is_gone_retires_and_what_comes_back_begins_after_now(family: Family) -> None:
    """D3: rows of exactly the newest version; a schedule's row outlasts its trigger with what it counted."""
    await family.publish(every("a"), every("b"), on("e", "x.y", "x.z"), on("f", "x.y"))
    await family.change("b", "started_count = 7, last_time = eec_now()")
    await family.publish(every("a"), on("e", "x.z", "x.w"))
    first = NOON.replace(second=0) + MINUTE
    assert await family.schedules() == [("a", True, 2, first, False, ""), ("b", False, 1, None, False, "")]
    assert await family.patterns() == [("x.w", "e", 2, ""), ("x.z", "e", 2, "")]

    await family.publish()
    assert await family.schedules() == [("a", False, 2, None, False, ""), ("b", False, 1, None, False, "")]
    assert await family.patterns() == []

    await family.at(NOON + 10 * MINUTE)
    await family.publish(every("b"))
    assert (await family.schedules())[1] == ("b", True, 4, first + 10 * MINUTE, False, "")
    assert (await family.schedules("started_count, last_time"))[1] == (7, NOON)


async def test_a_time_that_is_due_stays_due_over_a_publish(family: Family) -> None:
    """T2: only another cron or another zone begins anew after now; a window or a policy changes no times."""
    await family.publish(every("cron"), every("zone", "0 12 * * *"), every("window"), every("same"))
    due = NOON.replace(second=0) + MINUTE
    await family.at(NOON + 5 * MINUTE)
    await family.publish(
        every("cron", "*/2 * * * *"),
        every("zone", "0 12 * * *", timezone="Asia/Tokyo"),
        every("window", catchup_window_ms=1_000, overlap_policy="allow_all"),
        every("same"),
    )
    assert await family.schedules("trigger_id, next_time") == [
        ("cron", NOON.replace(second=0) + 6 * MINUTE),
        ("same", due),
        ("window", due),
        ("zone", datetime(2026, 3, 2, 3, tzinfo=UTC)),
    ]
    assert (await family.schedules("catchup_window_ms, overlap_policy"))[2] == (1_000, "allow_all")


async def test_a_pause_outlasts_publishes_and_retirement(family: Family) -> None:
    """TC-06, D3: a paused schedule has no next time, whatever is published; also one that was gone meanwhile."""
    await family.publish(every("a"))
    await family.change(
        "a", "pause_time = eec_now(), paused_by = 'eve', pause_reason = 'broken feed', next_time = null"
    )
    for triggers in ([every("a")], [every("a", "0 0 * * *")], [], [every("a")]):
        await family.publish(*triggers)
        ((_, alive, _, next_time, paused, _),) = await family.schedules()
        assert (alive, next_time, paused) == (bool(triggers), None, True)
    assert await family.schedules("version, paused_by, pause_reason") == [(5, "eve", "broken feed")]


async def test_a_publish_mends_what_broke(family: Family) -> None:
    """Decision of T2: a schedule that raised stands still until a version comes; then it begins after now."""
    await family.publish(every("a"), every("b"))
    broken = "next_time = null, error_code = 'INTERNAL', error_message = 'gone'"
    await family.change("a", broken)
    await family.change("b", f"{broken}, pause_time = eec_now()")
    await family.at(NOON + MINUTE)
    await family.publish(every("a"), every("b"))
    after = NOON.replace(second=0) + 2 * MINUTE
    assert await family.schedules() == [("a", True, 2, after, False, ""), ("b", True, 2, None, True, "")]


async def test_archiving_retires_all(family: Family) -> None:
    """D3: and the next version brings it back."""
    await family.publish(every("a"), on("e", "x.y"))
    await family.archive()
    assert await family.schedules() == [("a", False, 1, None, False, "")]
    assert await family.patterns() == []
    await family.publish(every("a"), on("e", "x.y"))
    assert await family.schedules("live, version") == [(True, 2)]
    assert await family.patterns() == [("x.y", "e", 2, "")]


async def test_a_publish_waits_for_a_fire_under_way_and_keeps_where_it_got(family: Family) -> None:
    """TC-01: a fire and a publish at once: the time that was fired is not fired again, by the new version or by the old."""
    await family.publish(every("a"))
    fired = NOON.replace(second=0) + 5 * MINUTE
    firing = family.owner.transaction()
    await firing.start()
    await family.change("a", f"next_time = timestamptz '{fired.isoformat()}', last_run_id = '{new_id()}'")
    publish = asyncio.create_task(family.publish(every("a")))
    waits = (
        "select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')"
    )
    while not await family.owner.fetchval(waits):
        assert not publish.done()
    await firing.commit()
    await publish
    assert await family.schedules("version, next_time") == [(2, fired)]


async def test_other_families_and_tenants_are_left_alone(family: Family) -> None:
    """N1: a retirement touches one definition of one tenant."""
    await family.publish(every("a"), on("e", "x.y"))
    other = Family(family.owner, family.pool)
    await other.publish(every("b"), on("e", "x.y"))
    await other.archive()
    assert await family.schedules("trigger_id, live") == [("a", True), ("b", False)]
    assert len(await family.patterns()) == 1
    async with tenant_transaction(family.pool, "stranger") as db:
        await live.retire(db, "stranger", family.definition_id)
        await live.follow(db, "stranger", family.definition_id, "order", new_id(), 1, [every("a"), on("e", "x.y")])
    rows = await family.owner.fetch(
        "select tenant_id, live, version from eec_workflow_schedule where trigger_id = 'a' order by 1"
    )
    assert [tuple(row) for row in rows] == [(TENANT, True, 1), ("stranger", True, 1)]


async def test_whoever_watches_the_timetables_is_told(family: Family) -> None:
    """A hint after the commit, of a publish that has times to come, and of no other."""
    heard: list[str] = []
    await family.owner.add_listener("ductor_schedule", lambda *args: heard.append(args[2]))
    await family.publish(on("e", "x.y"))
    await family.publish(every("a"))
    await family.owner.execute("select 1")
    assert heard == ["ductor_schedule"]
    await family.change("a", "pause_time = eec_now(), next_time = null")
    await family.publish(every("a"))
    await family.archive()
    await family.owner.execute("select 1")
    assert heard == ["ductor_schedule"]
