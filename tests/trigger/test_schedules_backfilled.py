"""Spans of a schedule's times, fired on demand (T2, TC-04). The database's clock is stepped; nothing fires by itself here."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from ductor.workflow.v1 import schedule_service_pb2 as api
from ductord.model.starting import fired_run_id
from tests.support.edges import refusal
from tests.trigger.operated import NOON, SKIP, Operator, at, clock, firing, stamp


async def test_t2_a_backfill_fires_what_has_started_nothing(operator: Operator, owner: asyncpg.Connection) -> None:
    """T2, TC-08: (from, to], oldest first, each time once whoever asks how often; what was skipped or dropped may start now."""
    schedule = await operator.published(firing("*/10 * * * *"))
    await operator.call("PauseSchedule", schedule_id=schedule)
    await operator.clock(NOON + timedelta(minutes=30))
    await operator.call("ResumeSchedule", schedule_id=schedule)
    answer = await operator.backfill(schedule, "12:00:00", "12:20:00", reason="lost", request_id="b")
    assert list(answer.started_run_ids) == [fired_run_id(schedule, at(f"12:{minute}:00")) for minute in (10, 20)]
    assert (answer.already_started_count, answer.skipped_count, answer.failed_count) == (0, 0, 0)
    answer = await operator.backfill(schedule, "12:00:00", "12:30:00")
    assert (len(answer.started_run_ids), answer.already_started_count) == (1, 2)
    assert await operator.fires(schedule, outcome=api.FIRE_OUTCOME_STARTED) == [
        (f"12:{minute}", "started", "backfill", 1) for minute in (30, 20, 10)
    ]
    told = await operator.get(schedule)
    assert (told.started_count, told.dropped_count, clock(told.next_fire_time)) == (3, 3, "12:40")
    assert await owner.fetchval("select count(distinct run_id) from eec_workflow_run_start") == 3
    assert ("backfill_schedule", f"schedule:{schedule}", "lost", "b") in await operator.audit()


async def test_t2_a_backfill_has_a_policy_of_its_own(operator: Operator) -> None:
    """T2: all of them by default; with skip the first, for as long as it is active."""
    schedule = await operator.published(firing("*/10 * * * *"))
    answer = await operator.backfill(schedule, "11:00:00", "12:00:00", overlap_policy=SKIP)
    assert (len(answer.started_run_ids), answer.skipped_count) == (1, 5)
    answer = await operator.backfill(schedule, "11:00:00", "12:00:00", overlap_policy=SKIP)
    assert (answer.already_started_count, answer.skipped_count) == (1, 5)
    answer = await operator.backfill(schedule, "11:00:00", "12:00:00")
    assert (len(answer.started_run_ids), answer.already_started_count, answer.skipped_count) == (5, 1, 0)


async def test_t2_two_backfills_at_once_start_each_time_once(operator: Operator, owner: asyncpg.Connection) -> None:
    """TC-08: the row's lock puts them one after the other."""
    schedule = await operator.published(firing("* * * * *"))
    answers = await asyncio.gather(*(operator.backfill(schedule, "09:00:00", "12:00:00") for _ in range(3)))
    assert sorted(len(answer.started_run_ids) for answer in answers) == [0, 0, 180]
    assert await owner.fetchval("select count(*) from eec_workflow_run_start") == 180


async def test_t2_a_backfill_is_bounded(operator: Operator, owner: asyncpg.Connection) -> None:
    """T2: a thousand times start; one more is refused as a whole."""
    schedule = await operator.published(firing("* * * * *"))
    refused = await refusal(operator.backfill(schedule, "2030-01-01T00:00:00", "12:00:00"))
    assert (refused.reason, refused.metadata) == ("BACKFILL_TOO_LARGE", {"field": "to_time", "limit": "1000"})
    end = at("2030-01-01T00:00:00") + timedelta(minutes=1001)
    refused = await refusal(operator.backfill(schedule, "2030-01-01T00:00:00", end.isoformat()[:19]))
    assert refused.reason == "BACKFILL_TOO_LARGE"
    assert await owner.fetchval("select count(*) from eec_workflow_schedule_fire") == 0
    end -= timedelta(minutes=1)
    answer = await operator.backfill(schedule, "2030-01-01T00:00:00", end.isoformat()[:19])
    assert len(answer.started_run_ids) == 1_000


SPANS: list[tuple[dict[str, Any], str, str]] = [
    ({}, "FIELD_REQUIRED", "from_time"),
    ({"from_time": stamp("11:00:00")}, "FIELD_REQUIRED", "to_time"),
    ({"from_time": stamp("11:00:00"), "to_time": stamp("11:00:00")}, "FIELD_INVALID", "from_time"),
    ({"from_time": stamp("11:00:01"), "to_time": stamp("11:00:00")}, "FIELD_INVALID", "from_time"),
    ({"from_time": stamp("11:00:00"), "to_time": stamp("12:00:31")}, "FIELD_INVALID", "to_time"),
    ({"from_time": stamp("11:00:00"), "to_time": Timestamp(seconds=1 << 60)}, "FIELD_INVALID", "to_time"),
    ({"from_time": Timestamp(nanos=-1), "to_time": stamp("11:00:00")}, "FIELD_INVALID", "from_time"),
    ({"from_time": stamp("11:00:00"), "to_time": stamp("12:00:00"), "overlap_policy": 7}, "FIELD_INVALID", "overlap_policy"),
    ({"from_time": stamp("11:00:00"), "to_time": stamp("12:00:00"), "reason": "r" * 1001}, "FIELD_INVALID", "reason"),
    ({"from_time": stamp("11:00:00"), "to_time": stamp("12:00:00"), "request_id": "r" * 257}, "FIELD_INVALID", "request_id"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "reason", "field"), SPANS)
async def test_t2_spans_that_cannot_be(fields: dict[str, Any], reason: str, field: str, operator: Operator) -> None:
    """T2: refused with the field; nothing fires."""
    schedule = await operator.published(firing("*/10 * * * *"))
    refused = await refusal(operator.call("BackfillSchedule", schedule_id=schedule, **fields))
    assert (refused.reason, refused.metadata["field"]) == (reason, field)
    assert await operator.fires(schedule) == []


async def test_t2_years_of_a_rare_timetable_are_looked_through(operator: Operator) -> None:
    """TC-04: the span may be as old as the calendar, the answer is quick."""
    schedule = await operator.published(firing("0 0 29 2 *"))
    answer = await operator.call(
        "BackfillSchedule", schedule_id=schedule, from_time=stamp("2000-03-01T00:00:00"), to_time=stamp("12:00:00")
    )
    assert len(answer.started_run_ids) == 7
    old = Timestamp(seconds=-62_000_000_000)
    answer = await operator.call("BackfillSchedule", schedule_id=schedule, from_time=old, to_time=stamp("12:00:00"))
    assert (len(answer.started_run_ids), answer.already_started_count) == (484, 7)
    first = Timestamp()
    first.FromJsonString("0001-01-01T00:00:00Z")
    answer = await operator.call("BackfillSchedule", schedule_id=schedule, from_time=first, to_time=stamp("12:00:00"))
    assert answer.already_started_count == 491
