"""Schedules paused, resumed and fired by hand (T2, TC-06). The database's clock is stepped; nothing fires by itself here."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import msgspec
from msgspec.structs import replace

from ductor.workflow.v1 import schedule_service_pb2 as api
from ductord.model.specs import Template
from ductord.model.starting import asked_run_id, schedule_id
from tests.conftest import Database
from tests.support.books import chain
from tests.support.edges import refusal
from tests.trigger.operated import ACTIVE, ALLOW, NOON, PAUSED, Operator, clock, firing


async def test_t2_a_pause_and_its_end(operator: Operator) -> None:
    """T2, TC-06: what falls due while it is paused is one dropped gap; the next time is the first behind the resume. Twice is once."""
    schedule = await operator.published(firing("*/10 * * * *"))
    for reason in ("month's end", "again"):
        answer = await operator.call("PauseSchedule", schedule_id=schedule, reason=reason, request_id="p")
        assert (answer.data.status, answer.data.pause_reason, answer.data.paused_by) == (
            PAUSED,
            "month's end",
            "anonymous",
        )
        assert not answer.data.HasField("next_fire_time")
        assert clock(answer.data.pause_time) == "12:00:30"
    await operator.clock(NOON + timedelta(hours=1))
    for _ in range(2):
        answer = await operator.call("ResumeSchedule", schedule_id=schedule, reason="done", request_id="r")
        assert (answer.data.status, clock(answer.data.next_fire_time)) == (ACTIVE, "13:10")
        assert (answer.data.dropped_count, clock(answer.data.last_fire_time)) == (6, "13:00")
        assert not answer.data.HasField("pause_time")
        assert (answer.data.pause_reason, answer.data.paused_by) == ("", "")
    assert await operator.fires(schedule) == [("12:10", "dropped", "timetable", 6)]
    [gap] = (await operator.call("ListScheduleFires", schedule_id=schedule)).data
    assert clock(gap.until_time) == "13:00"
    assert await operator.audit() == [
        ("pause_schedule", f"schedule:{schedule}", "month's end", "p"),
        ("resume_schedule", f"schedule:{schedule}", "done", "r"),
    ]


async def test_t2_what_was_due_when_it_was_paused_is_told_too(operator: Operator) -> None:
    """T2: a coordinator that was away had not fired three times when somebody paused: they are dropped and counted, once, and not lost."""
    schedule = await operator.published(firing("*/10 * * * *"))
    await operator.clock(NOON + timedelta(minutes=30))
    answer = await operator.call("PauseSchedule", schedule_id=schedule)
    assert (answer.data.dropped_count, clock(answer.data.last_fire_time)) == (3, "12:30")
    await operator.clock(NOON + timedelta(minutes=45))
    answer = await operator.call("ResumeSchedule", schedule_id=schedule)
    assert (answer.data.dropped_count, clock(answer.data.next_fire_time)) == (4, "12:50")
    assert await operator.fires(schedule) == [
        ("12:40", "dropped", "timetable", 1),
        ("12:10", "dropped", "timetable", 3),
    ]


async def test_t2_a_long_pause_is_counted_so_far(operator: Operator) -> None:
    """T2: ten thousand and no further."""
    schedule = await operator.published(firing("* * * * *"))
    await operator.call("PauseSchedule", schedule_id=schedule)
    await operator.clock(NOON + timedelta(days=30))
    answer = await operator.call("ResumeSchedule", schedule_id=schedule)
    assert answer.data.dropped_count == 10_000
    assert answer.data.next_fire_time.ToDatetime() == (NOON + timedelta(days=30, seconds=30)).replace(tzinfo=None)


async def test_t2_a_resume_wakes_who_watches(operator: Operator, database: Database) -> None:
    """A resume says so, so that a next time that is near is not slept through."""
    schedule = await operator.published(firing("*/10 * * * *"))
    await operator.call("PauseSchedule", schedule_id=schedule)
    heard = asyncio.Event()
    listening = await asyncpg.connect(database.owner)
    await listening.add_listener("ductor_schedule", lambda *_: heard.set())
    await operator.call("ResumeSchedule", schedule_id=schedule)
    await asyncio.wait_for(heard.wait(), 20)
    await listening.close()


async def test_t2_by_hand_and_a_request_that_comes_twice(operator: Operator, owner: asyncpg.Connection) -> None:
    """T2: one run under a derived id, beside the timetable, paused or not; the same request finds it, even when the schedule is gone."""
    schedule = await operator.published(firing("*/10 * * * *"))
    await operator.call("PauseSchedule", schedule_id=schedule)
    for again in (False, True):
        answer = await operator.call("TriggerScheduleNow", schedule_id=schedule, request_id="q1", reason="now")
        assert (answer.duplicate, answer.data.run_id) == (again, asked_run_id(schedule, "q1"))
        assert (answer.data.outcome, answer.data.source) == (api.FIRE_OUTCOME_STARTED, api.FIRE_SOURCE_MANUAL)
        assert clock(answer.data.nominal_time) == "12:00:30"
    [row] = await owner.fetch("select * from eec_workflow_run_start")
    origin = msgspec.json.decode(row["origin"])
    assert (origin["trigger_id"], origin["schedule_id"], row["actor"]) == ("schedule", schedule, "schedule:schedule")
    assert (row["input"], row["version"], row["environment"]) == ("{}", 1, "")
    told = await operator.get(schedule)
    assert (told.started_count, told.last_run_id, told.status) == (1, str(row["run_id"]), PAUSED)
    definition_id = told.definition_id
    await operator.catalogue.publish(definition_id, chain(1))
    assert (await operator.call("TriggerScheduleNow", schedule_id=schedule, request_id="q1")).duplicate
    refused = await refusal(operator.call("TriggerScheduleNow", schedule_id=schedule, request_id="q2"))
    assert (refused.reason, refused.metadata) == (
        "SCHEDULE_RETIRED", {"schedule_id": schedule, "definition_id": definition_id},
    )  # fmt: skip
    assert [entry for entry in await operator.audit() if entry[0] == "trigger_schedule"] == [
        ("trigger_schedule", f"schedule:{schedule}", "now", "q1")
    ]


async def test_t2_ten_at_once_under_one_name_start_one_run(operator: Operator, owner: asyncpg.Connection) -> None:
    """T2, IL-01: requests of one name that meet are one; those without a name are each their own."""
    schedule = await operator.published(firing("*/10 * * * *", overlap_policy="allow_all"))
    calls = [operator.call("TriggerScheduleNow", schedule_id=schedule, request_id="same") for _ in range(10)]
    answers = await asyncio.gather(*calls)
    assert len({answer.data.run_id for answer in answers}) == 1
    assert sorted(answer.duplicate for answer in answers) == [False] + [True] * 9
    answers = await asyncio.gather(*(operator.call("TriggerScheduleNow", schedule_id=schedule) for _ in range(5)))
    assert len({answer.data.run_id for answer in answers}) == 5
    assert await owner.fetchval("select count(*) from eec_workflow_run_start") == 6


async def test_t2_by_hand_the_overlap_policy_counts(operator: Operator) -> None:
    """T2: the schedule's own policy, unless the call has one; an ended run is in nobody's way."""
    schedule = await operator.published(firing("*/10 * * * *"))

    async def fire(**fields: Any) -> int:
        answer = await operator.call("TriggerScheduleNow", schedule_id=schedule, **fields)
        return int(answer.data.outcome)

    assert await fire() == api.FIRE_OUTCOME_STARTED
    assert await fire() == api.FIRE_OUTCOME_SKIPPED
    assert await fire(overlap_policy=ALLOW) == api.FIRE_OUTCOME_STARTED
    await operator.end_runs()
    assert await fire() == api.FIRE_OUTCOME_STARTED
    told = await operator.get(schedule)
    assert (told.started_count, told.skipped_count) == (3, 1)


async def test_t2_an_input_that_cannot_be_is_a_failed_fire(operator: Operator, owner: asyncpg.Connection) -> None:
    """T2, L4: no run, a code and a text, a counter; and the schedule goes on."""
    wrong = replace(firing("*/10 * * * *"), input_schema={"type": "object", "required": ["day"]})
    schedule = await operator.published(wrong)
    answer = await operator.call("TriggerScheduleNow", schedule_id=schedule)
    assert (answer.data.outcome, answer.data.run_id) == (api.FIRE_OUTCOME_FAILED, "")
    assert answer.data.error.code == "INPUT_SCHEMA_MISMATCH"
    told = await operator.get(schedule)
    assert (told.failed_count, told.error.code, told.status) == (1, "INPUT_SCHEMA_MISMATCH", ACTIVE)
    assert await owner.fetchval("select count(*) from eec_workflow_run_start") == 0
    backfilled = await operator.backfill(schedule, "11:00:00", "12:00:00")
    assert (backfilled.failed_count, list(backfilled.started_run_ids)) == (6, [])


async def test_t2_the_input_knows_its_time(operator: Operator, owner: asyncpg.Connection) -> None:
    """T2: a backfilled run learns the time that it is for, not the time that it is."""
    template = Template(tree={"for": "${{ TRIGGER.scheduled_time }}"}, static=False, names=("TRIGGER",))
    schedule = await operator.published(firing("*/10 * * * *", input_=template))
    answer = await operator.backfill(schedule, "11:50:00", "12:00:00")
    text = await owner.fetchval(
        "select input::text from eec_workflow_run_start where run_id = $1", answer.started_run_ids[0]
    )
    assert msgspec.json.decode(text)["for"].startswith("2030-01-02T12:00:00")
    assert schedule == schedule_id((await operator.get(schedule)).definition_id, "schedule")
