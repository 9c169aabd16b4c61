"""Operators beside the coordinator and beside publishes (TC-08, D3): whoever comes first to the row of a schedule, each time is told once."""

import asyncio
from collections import Counter
from datetime import datetime, timedelta

import asyncpg
import pytest
from msgspec.structs import replace

from ductord.coordinator.schedules import turn
from ductord.db.pool import open_pool
from ductord.model.starting import ScheduleSpec
from ductord.starting.fires import Fires
from ductord.starting.versions import Versions
from tests.conftest import Database
from tests.support.edges import Edges
from tests.trigger.operated import NOON, Operator, firing

MINUTE = timedelta(minutes=1)


async def _told(owner: asyncpg.Connection) -> Counter[datetime]:
    """How often each time of a timetable by the minute is told, in fires and in gaps."""
    rows = await owner.fetch("select nominal_time, kind, count, until_time from eec_workflow_schedule_fire")
    told: Counter[datetime] = Counter()
    for row in rows:
        assert row["kind"] == "fire" or row["until_time"] == row["nominal_time"] + (row["count"] - 1) * MINUTE
        told.update(row["nominal_time"] + n * MINUTE for n in range(row["count"]))
    return told


@pytest.mark.parametrize("seed", range(3))
async def test_tc08_pauses_beside_a_coordinator(
    seed: int, database: Database, owner: asyncpg.Connection, edges: Edges
) -> None:
    """TC-08, TC-06: two coordinators fire while somebody pauses and resumes: each minute is fired or in a gap, never both and never neither."""
    operator = Operator(owner, edges)
    await operator.clock(NOON)
    schedule = await operator.published(firing("* * * * *", overlap_policy="allow_all"))
    pool = await open_pool(database.dsn("coordinator"), "coordinator", max_size=2)
    fires = Fires(Versions(), environment="", payload_max_bytes=1 << 20)

    async def coordinate() -> None:
        async with pool.acquire() as connection:
            await turn(connection, fires)

    async def operate(number: int) -> None:
        if (number + seed) % 4 == 0:
            await operator.call("PauseSchedule", schedule_id=schedule)
        elif (number + seed) % 4 == 2:
            await operator.call("ResumeSchedule", schedule_id=schedule)

    for number in range(1, 25):
        await operator.clock(NOON + number * MINUTE)
        await asyncio.gather(coordinate(), operate(number), coordinate())
    for rpc in ("ResumeSchedule", "PauseSchedule"):  # whatever was open is told
        await operator.call(rpc, schedule_id=schedule)
    await pool.close()
    first = NOON + timedelta(seconds=30)
    told = await _told(owner)
    assert told == Counter(first + n * MINUTE for n in range(24))
    row = await operator.get(schedule)
    assert row.started_count + row.dropped_count == 24
    assert row.started_count == await owner.fetchval("select count(*) from eec_workflow_run_start")


async def test_d3_backfills_beside_publishes_are_of_one_version(owner: asyncpg.Connection, edges: Edges) -> None:
    """D3: runs of one backfill are of one version and its input, whatever is published meanwhile."""
    operator = Operator(owner, edges)
    await operator.clock(NOON)
    manifest = firing("* * * * *")
    schedule = await operator.published(manifest)
    definition_id = (await operator.get(schedule)).definition_id

    async def publish() -> None:
        async with owner.transaction():
            await operator.catalogue.publish(definition_id, other)

    for number in range(6):
        spec = ScheduleSpec(cron_expression="* * * * *", catchup_window_ms=1_000 + number)
        other = replace(manifest, triggers=(replace(manifest.triggers[0], schedule=spec),))
        begin = f"{number + 1:02}:00:00", f"{number + 1:02}:30:00"
        answer, _ = await asyncio.gather(operator.backfill(schedule, *begin), publish())
        versions = await owner.fetch(
            "select version, version_id from eec_workflow_run_start where run_id = any($1::uuid[]) group by 1, 2",
            list(answer.started_run_ids),
        )
        assert len(answer.started_run_ids) == 30
        assert len(versions) == 1
        assert versions[0]["version"] in (number + 1, number + 2)
