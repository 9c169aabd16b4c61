"""Schedules with everybody at them at once: two coordinators, and operators who pause, resume, backfill and fire by hand (T2, TC-08)."""

import asyncio
import random
from datetime import datetime, timedelta
from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from ductor.workflow.v1 import definition_pb2
from ductor.workflow.v1 import schedule_service_pb2 as api
from ductor.workflow.v1 import schedule_service_pb2_grpc as rpc
from ductord.coordinator.service import SERVICE as COORDINATOR
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.coordinator.timetables import HURRY, Timetables, firing
from tests.support.books import TENANT, Books
from tests.support.edges import serving

pytestmark = pytest.mark.timeout(120)

SCHEDULES = 12
ACTS = 80
MINUTE = timedelta(minutes=1)
METADATA = (("x-tenant-id", TENANT),)
SETTINGS = {"poll_ms": 50, "sweep_ms": 500, "pool_max_size": 6}
POLICIES = (definition_pb2.OVERLAP_POLICY_SKIP, definition_pb2.OVERLAP_POLICY_ALLOW_ALL)


class _Operator:
    """Somebody who does this and that, with whichever process answers."""

    def __init__(self, stubs: list[Any], schedules: list[str], seed: int) -> None:
        self._stubs, self._schedules, self._chance = stubs, schedules, random.Random(seed)

    async def act(self, number: int) -> None:
        """One act on one of the schedules. What was asked for under a name is asked for twice, now and then."""
        chance = self._chance
        stub, schedule, name = chance.choice(self._stubs), chance.choice(self._schedules), f"r{number // 2}"
        match chance.choice(("pause", "resume", "resume", "now", "backfill")):
            case "pause":
                pause = api.PauseScheduleRequest(schedule_id=schedule, request_id=name)
                await stub.PauseSchedule(pause, metadata=METADATA, timeout=30)
            case "resume":
                resume = api.ResumeScheduleRequest(schedule_id=schedule, request_id=name)
                await stub.ResumeSchedule(resume, metadata=METADATA, timeout=30)
            case "now":
                policy = chance.choice(POLICIES)
                now = api.TriggerScheduleNowRequest(schedule_id=schedule, request_id=name, overlap_policy=policy)
                answers = [await stub.TriggerScheduleNow(now, metadata=METADATA, timeout=30) for _ in range(2)]
                assert answers[0].data == answers[1].data
                assert answers[1].duplicate
            case _:
                answer = await stub.GetSchedule(
                    api.GetScheduleRequest(schedule_id=schedule), metadata=METADATA, timeout=30
                )
                end = answer.metadata.fetched_at
                begin = Timestamp(seconds=end.seconds - 60 * chance.randint(1, 9))
                policy = chance.choice(POLICIES)
                span = api.BackfillScheduleRequest(
                    schedule_id=schedule, from_time=begin, to_time=end, overlap_policy=policy
                )
                await stub.BackfillSchedule(span, metadata=METADATA, timeout=30)


async def test_everybody_at_once(database: Database, books: Books) -> None:
    """T2: no time is lost and none fires twice: each has a row of its own or is in a gap, and each that started has its one run."""
    timetables = Timetables(books)
    await books.owner.execute(HURRY)
    schedules = [
        await timetables.publish(firing("* * * * *", overlap_policy=policy, catchup_window_ms=120_000))
        for policy in ("allow_all", "skip") * (SCHEDULES // 2)
    ]
    first = {schedule: (await timetables.row(schedule))["next_time"] for schedule in schedules}
    async with (
        serving(database, [TRIGGER, COORDINATOR], **SETTINGS) as one,
        serving(database, [TRIGGER, COORDINATOR], **SETTINGS) as other,
    ):
        stubs = [rpc.ScheduleServiceStub(served.channel) for served in (one, other)]
        await asyncio.gather(*(_acting(_Operator(stubs, schedules, seed)) for seed in range(3)))
        pause = api.PauseScheduleRequest(schedule_id=schedules[0])
        await stubs[1].PauseSchedule(pause, metadata=METADATA, timeout=30)
        await _until(books, "eec_now()", await books.owner.fetchval("select eec_now()") + 2 * MINUTE)
        for schedule in schedules:
            resume = api.ResumeScheduleRequest(schedule_id=schedule)
            await stubs[0].ResumeSchedule(resume, metadata=METADATA, timeout=30)
        end = await books.owner.fetchval("select eec_now()")
        await _until(books, "(select min(next_time) from eec_workflow_schedule)", end + 2 * MINUTE)
    for schedule in schedules:
        row = await timetables.row(schedule)
        assert row["error_code"] == ""
        covered = await _covered(books, schedule)
        lost = [time for time in _minutes(first[schedule], row["next_time"]) if time not in covered]
        assert lost == [], f"{lost} of {schedule}"
        started = "select run_id::text, nominal_time from eec_workflow_schedule_fire where schedule_id = $1 and outcome = 'started' order by 2"
        fires = [(fire["run_id"], fire["nominal_time"]) for fire in await books.owner.fetch(started, schedule)]
        runs = "select run_id::text, (origin ->> 'nominal_time')::timestamptz from eec_workflow_run_start where origin ->> 'schedule_id' = $1 order by 2"
        assert [tuple(run) for run in await books.owner.fetch(runs, schedule)] == fires
        assert row["started_count"] == len(fires)
    outcomes = {
        tuple(pair)
        for pair in await books.owner.fetch("select distinct source, outcome from eec_workflow_schedule_fire")
    }
    assert outcomes >= {
        ("timetable", "started"), ("timetable", "skipped"), ("timetable", "dropped"), ("backfill", "started"), ("manual", "started"),
    }  # fmt: skip


async def _acting(operator: _Operator) -> None:
    for number in range(ACTS):
        await operator.act(number)


async def _until(books: Books, what: str, time: datetime) -> None:
    """Wait until `what` is behind a time of the database's clock."""
    async with asyncio.timeout(60):
        while await books.owner.fetchval(f"select {what}") <= time:  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.05)


async def _covered(books: Books, schedule: str) -> set[datetime]:
    """The minutes that have a row, alone or in a gap."""
    rows = await books.owner.fetch(
        "select nominal_time, coalesce(until_time, nominal_time) as until_time from eec_workflow_schedule_fire where schedule_id = $1",
        schedule,
    )
    return {time for row in rows for time in _minutes(row["nominal_time"], row["until_time"] + MINUTE)}


def _minutes(begin: datetime, end: datetime) -> list[datetime]:
    """The moments from `begin` until before `end`, a minute apart."""
    return [begin + MINUTE * n for n in range(-((begin - end) // MINUTE))]
