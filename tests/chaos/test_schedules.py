"""Chaos for schedules: two coordinators are killed with -9 in turn while 200 schedules come due every second. Each time has one row and one run (T2, TC-08).

Cron knows minutes only, so the database's clock runs sixty times as fast; nothing here waits for a worker or a lease, which would hurry too.
"""

import asyncio
import os
import random
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from tests.coordinator.timetables import HURRY
from tests.support.api import Api
from tests.support.stack import TENANT, Stack, running_stack

LONG = os.environ.get("DUCTOR_CHAOS") == "long"
SCHEDULES = 200 if LONG else 60
SECONDS = 60 if LONG else 8
_EACH = 20
"""Schedules of one definition."""

FAST: dict[str, Any] = {"DUCTOR_POLL_MS": "100", "DUCTOR_SWEEP_MS": "1000"}
MINUTE = timedelta(minutes=1)

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300), pytest.mark.xdist_group("stack")]


def _definition(number: int) -> dict[str, Any]:
    schedule = {"cron_expression": "* * * * *", "catchup_window_ms": 86_400_000, "overlap_policy": "allow_all"}
    input_ = {"at": "${{ TRIGGER.scheduled_time }}"}
    triggers = [{"id": f"t{n}", "type": "schedule", "schedule": schedule, "input": input_} for n in range(_EACH)]
    steps = [{"ref": "person", "type": "approval"}]
    return {"family_slug": f"ticks-{number}", "title": "ticks", "triggers": triggers, "steps": steps, "edges": []}


async def test_killed_coordinators_fire_each_time_once() -> None:
    """Acceptance (T2, TC-08): the set of (schedule, time) in the rows and in the runs is the expected one, each once."""
    context = running_stack(coordinators=2, workers=0, dispatchers=0, **FAST)
    stack = await asyncio.to_thread(context.__enter__)
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    try:
        for number in range(2):
            await asyncio.to_thread(stack[f"coordinator{number}"].kill)
        async with Api(stack["edges"].target, TENANT) as api:
            for number in range(SCHEDULES // _EACH):
                await api.publish(_definition(number))
        rows = await owner.fetch("select schedule_id::text, next_time from eec_workflow_schedule")
        first: dict[str, datetime] = {row["schedule_id"]: row["next_time"] for row in rows}
        assert len(first) == SCHEDULES
        await owner.execute(HURRY)
        kills = await _killed_in_turn(stack)
        end = await owner.fetchval("select eec_now()")
        async with asyncio.timeout(120):
            while await owner.fetchval("select min(next_time) from eec_workflow_schedule") <= end:  # noqa: ASYNC110  # rows have no event
                await asyncio.sleep(0.1)
        for number in range(2):
            await asyncio.to_thread(stack[f"coordinator{number}"].kill)
        rows = await owner.fetch("select schedule_id::text, next_time from eec_workflow_schedule")
        expected = sorted(
            (row["schedule_id"], time) for row in rows for time in _minutes(first[row["schedule_id"]], row["next_time"])
        )
        assert len(expected) > SCHEDULES * SECONDS * 0.9, "every second of the killing"
        assert kills >= (8 if LONG else 2)
        fired = "select schedule_id::text, nominal_time from eec_workflow_schedule_fire where kind = 'fire' and outcome = 'started' order by 1, 2"
        assert [tuple(row) for row in await owner.fetch(fired)] == expected
        started = (
            "select origin ->> 'schedule_id', (origin ->> 'nominal_time')::timestamptz,"
            " (input ->> 'at')::timestamptz = (origin ->> 'nominal_time')::timestamptz"
            " from eec_workflow_run_start order by 1, 2"
        )
        assert [tuple(row) for row in await owner.fetch(started)] == [(*one, True) for one in expected]
        counted = "select sum(started_count)::int, sum(skipped_count + failed_count + missed_count + dropped_count)::int from eec_workflow_schedule"
        assert tuple(await owner.fetchrow(counted)) == (len(expected), 0)
        assert await owner.fetchval("select count(*) from eec_workflow_schedule_fire") == len(expected)
        assert await owner.fetchval("select count(*) from eec_workflow_quarantine") == 0
    finally:
        await owner.close()
        await asyncio.to_thread(context.__exit__, None, None, None)


async def _killed_in_turn(stack: Stack) -> int:
    """Kill one and the other, at random moments of their work, and start them again at once; how often one was killed."""
    chance, kills = random.Random(8), 0
    members = [stack["coordinator0"], stack["coordinator1"]]
    for member in members:
        member.start()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + SECONDS
    while loop.time() < deadline or kills < 2:
        member = members[kills % 2]
        await asyncio.to_thread(member.wait_ready)
        await asyncio.sleep(chance.uniform(0, 1.2))
        await asyncio.to_thread(member.kill)
        member.start()
        kills += 1
    return kills


def _minutes(first: datetime, end: datetime) -> list[datetime]:
    """The minutes from `first` until before `end`."""
    return [first + MINUTE * n for n in range((end - first) // MINUTE)]
