"""ScheduleService: timetables, looked at, paused, and fired by hand (T2, TC-06). The database's clock is stepped; nothing fires by itself here."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
import msgspec
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec.structs import replace

from ductor.workflow.v1 import definition_pb2
from ductor.workflow.v1 import schedule_service_pb2 as api
from ductord.db.ids import new_id
from ductord.model.specs import Template
from ductord.model.starting import ScheduleSpec, TriggerSpec, asked_run_id, fired_run_id, schedule_id
from tests.conftest import Database
from tests.support.books import TENANT, chain
from tests.support.edges import Edges, refusal
from tests.trigger.operated import NOON, Operator, at, clock, firing, stamp

ACTIVE, PAUSED = api.SCHEDULE_STATUS_ACTIVE, api.SCHEDULE_STATUS_PAUSED
RETIRED, BROKEN = api.SCHEDULE_STATUS_RETIRED, api.SCHEDULE_STATUS_BROKEN
SKIP, ALLOW = definition_pb2.OVERLAP_POLICY_SKIP, definition_pb2.OVERLAP_POLICY_ALLOW_ALL


@pytest.fixture
async def operator(owner: asyncpg.Connection, edges: Edges) -> Operator:
    """At half a minute past noon."""
    operator = Operator(owner, edges)
    await operator.clock(NOON)
    return operator


async def test_t2_what_is_told_of_a_schedule(operator: Operator) -> None:
    """T2: the definition, the timetable with every default, where it stands."""
    schedule = await operator.published(firing("*/10 * * * *", timezone="Europe/Berlin", overlap_policy="allow_all"))
    answer = await operator.call("GetSchedule", schedule_id=schedule.upper())
    told = answer.data
    assert (told.schedule_id, told.workflow_type, told.version, told.trigger_id) == (schedule, "report", 1, "schedule")
    assert told.spec.cron_expression == "*/10 * * * *"
    assert (told.spec.timezone, told.spec.catchup_window_ms, told.spec.overlap_policy) == (
        "Europe/Berlin",
        600_000,
        ALLOW,
    )
    assert (told.status, clock(told.next_fire_time)) == (ACTIVE, "12:10")
    assert not told.HasField("last_fire_time")
    assert not told.HasField("error")
    assert clock(answer.metadata.fetched_at) == "12:00:30"


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


RPCS = (
    "GetSchedule",
    "PauseSchedule",
    "ResumeSchedule",
    "TriggerScheduleNow",
    "BackfillSchedule",
    "PreviewSchedule",
    "ListScheduleFires",
)


@pytest.mark.parametrize("rpc", RPCS)
async def test_tn01_what_is_not_the_tenants_is_not_there(rpc: str, operator: Operator) -> None:
    """TN-01: another tenant's schedule, an unknown one and a text that is no id are one answer; none at all is a missing field."""
    schedule = await operator.published(firing("*/10 * * * *"))
    span: dict[str, Any] = (
        {"from_time": stamp("11:00:00"), "to_time": stamp("12:00:00")} if rpc == "BackfillSchedule" else {}
    )
    for wrong, tenant in ((schedule, "other"), (new_id(), TENANT), ("nonsense", TENANT)):
        refused = await refusal(operator.call(rpc, tenant=tenant, schedule_id=wrong, **span))
        assert (refused.code, refused.reason, refused.metadata) == ("NOT_FOUND", "SCHEDULE_NOT_FOUND", {})
    assert (await refusal(operator.call(rpc, **span))).reason == "FIELD_REQUIRED"


async def test_d3_a_retired_schedule_is_seen_and_not_operated(operator: Operator) -> None:
    """D3: a newer version without the trigger retires it; a pause outlasts that, and a version that has it again revives it, paused."""
    schedule = await operator.published(firing("*/10 * * * *"))
    await operator.call("PauseSchedule", schedule_id=schedule)
    definition_id = (await operator.get(schedule)).definition_id
    await operator.catalogue.publish(definition_id, chain(1))
    told = await operator.get(schedule)
    assert (told.status, told.HasField("next_fire_time")) == (RETIRED, False)
    for rpc in ("PauseSchedule", "ResumeSchedule", "TriggerScheduleNow"):
        assert (await refusal(operator.call(rpc, schedule_id=schedule))).reason == "SCHEDULE_RETIRED"
    assert (await refusal(operator.backfill(schedule, "11:00:00", "12:00:00"))).reason == "SCHEDULE_RETIRED"
    await operator.catalogue.publish(definition_id, firing("*/5 * * * *"))
    told = await operator.get(schedule)
    assert (told.status, told.version, told.spec.cron_expression) == (PAUSED, 3, "*/5 * * * *")
    assert clock((await operator.call("ResumeSchedule", schedule_id=schedule)).data.next_fire_time) == "12:05"


async def test_a_schedule_that_is_broken_is_told_and_mended(operator: Operator, owner: asyncpg.Connection) -> None:
    """A time zone that went with a release: seen as broken, not previewed and not backfilled; fired by hand it starts all the same; a pause and a resume
    under a release that has it mend it."""
    schedule = await operator.published(firing("*/10 * * * *"))
    put = "update eec_workflow_schedule set timezone = $1, next_time = $2, error_code = $3, error_message = $3"
    await owner.execute(put, "Atlantis/Main", None, "TIMETABLE_INVALID")
    told = await operator.get(schedule)
    assert (told.status, told.error.code) == (BROKEN, "TIMETABLE_INVALID")
    for call in (
        operator.call("PreviewSchedule", schedule_id=schedule),
        operator.backfill(schedule, "11:00:00", "12:00:00"),
    ):
        refused = await refusal(call)
        assert (refused.code, refused.reason, refused.metadata) == (
            "FAILED_PRECONDITION", "SCHEDULE_BROKEN", {"schedule_id": schedule},
        )  # fmt: skip
    assert (await operator.call("TriggerScheduleNow", schedule_id=schedule)).data.run_id
    await operator.call("PauseSchedule", schedule_id=schedule)
    await operator.clock(NOON + timedelta(minutes=20))
    told = (await operator.call("ResumeSchedule", schedule_id=schedule)).data
    assert (told.status, told.error.code) == (BROKEN, "TIMETABLE_INVALID")
    await operator.call("PauseSchedule", schedule_id=schedule)
    await owner.execute("update eec_workflow_schedule set timezone = 'UTC'")
    told = (await operator.call("ResumeSchedule", schedule_id=schedule)).data
    assert (told.status, told.error.code, clock(told.next_fire_time)) == (ACTIVE, "", "12:30")


async def test_schedules_are_listed_by_page(operator: Operator) -> None:
    """By workflow type and trigger; filters by definition, by the id of a version, by type and by status; keyset pages of one entry."""
    two = replace(
        chain(1),
        triggers=tuple(TriggerSpec(id=name, schedule=ScheduleSpec(cron_expression="0 3 * * *")) for name in ("b", "a")),
    )
    one = await operator.published(two, slug="zebra")
    other = await operator.published(firing("*/10 * * * *"), slug="apple")
    gone = await operator.published(firing("*/10 * * * *"), slug="melon")
    await operator.catalogue.publish((await operator.get(gone)).definition_id, chain(1))
    await operator.published(firing("*/10 * * * *"), slug="foreign", tenant="other")
    await operator.call("PauseSchedule", schedule_id=one)

    async def listed(**fields: Any) -> list[str]:
        found, token = [], ""
        while True:
            page = await operator.call("ListSchedules", page_size=1, page_token=token, **fields)
            found += [f"{entry.workflow_type}/{entry.trigger_id}" for entry in page.data]
            token = page.next_page_token
            if not token:
                return found

    apple = await operator.get(other)
    zebra = await operator.get(one)
    assert await listed() == ["apple/schedule", "zebra/a", "zebra/b"]
    assert await listed(status=RETIRED) == ["melon/schedule"]
    assert await listed(status=PAUSED) == ["zebra/b"]
    assert await listed(status=ACTIVE) == ["apple/schedule", "zebra/a"]
    assert await listed(status=BROKEN) == []
    assert await listed(workflow_type="zebra") == ["zebra/a", "zebra/b"]
    assert await listed(workflow_type="zebra", status=ACTIVE) == ["zebra/a"]
    assert await listed(definition_id=apple.definition_id) == ["apple/schedule"]
    assert await listed(definition_id=zebra.version_id) == ["zebra/a", "zebra/b"]
    assert await listed(definition_id=apple.definition_id, workflow_type="zebra") == []
    assert await listed(definition_id=new_id()) == []
    assert (await refusal(operator.call("ListSchedules", definition_id="nonsense"))).reason == "DEFINITION_NOT_FOUND"
    assert (await refusal(operator.call("ListSchedules", page_size=1001))).reason == "FIELD_INVALID"
    token = (await operator.call("ListSchedules", page_size=1)).next_page_token
    for wrong in ({"page_token": token, "status": PAUSED}, {"page_token": "x"}):
        assert (await refusal(operator.call("ListSchedules", **wrong))).reason == "PAGE_TOKEN_INVALID"


async def test_fires_are_listed_by_page(operator: Operator) -> None:
    """Newest first; a fire and a gap that begin at one time are two entries, on whatever pages they fall."""
    schedule = await operator.published(firing("*/10 * * * *"))
    await operator.call("PauseSchedule", schedule_id=schedule)
    await operator.clock(NOON + timedelta(minutes=30))
    await operator.call("ResumeSchedule", schedule_id=schedule)
    await operator.backfill(schedule, "12:00:00", "12:20:00")
    found, token = [], ""
    while True:
        page = await operator.call("ListScheduleFires", schedule_id=schedule, page_size=1, page_token=token)
        found += [(clock(fire.nominal_time), fire.count) for fire in page.data]
        token = page.next_page_token
        if not token:
            break
    assert found == [("12:20", 1), ("12:10", 3), ("12:10", 1)]
    assert await operator.fires(schedule, outcome=api.FIRE_OUTCOME_DROPPED) == [("12:10", "dropped", "timetable", 3)]
    assert await operator.fires(schedule, outcome=api.FIRE_OUTCOME_FAILED) == []


async def test_tc01_tc02_a_preview_marks_what_the_clocks_do(operator: Operator) -> None:
    """TC-01, TC-02: the gap of spring, the hour of autumn that comes twice."""
    schedule = await operator.published(firing("30 2 * * *", timezone="Europe/Berlin"))
    spring = await operator.call("PreviewSchedule", schedule_id=schedule, after=stamp("2030-03-30T12:00:00"), count=2)
    assert [(entry.local_time[:19], entry.clock_change) for entry in spring.data] == [
        ("2030-03-31T03:00:00", api.CLOCK_CHANGE_GAP),
        ("2030-04-01T02:30:00", api.CLOCK_CHANGE_UNSPECIFIED),
    ]
    assert spring.data[0].local_time.endswith("+02:00")
    autumn = await operator.call("PreviewSchedule", schedule_id=schedule, after=stamp("2030-10-26T12:00:00"), count=2)
    assert autumn.data[0].clock_change == api.CLOCK_CHANGE_REPEAT_FIRST
    assert autumn.data[1].local_time[:10] == "2030-10-28"


async def test_t2_a_preview_is_bounded(operator: Operator) -> None:
    """From now on where nothing is said, ten of them; retired ones too; at the calendar's end it says less or that it cannot."""
    schedule = await operator.published(firing("*/10 * * * *"))
    told = await operator.call("PreviewSchedule", schedule_id=schedule)
    assert [clock(entry.fire_time) for entry in told.data][:2] == ["12:10", "12:20"]
    assert len(told.data) == 10
    assert len((await operator.call("PreviewSchedule", schedule_id=schedule, count=100)).data) == 100
    for fields in ({"count": 101}, {"count": -1}, {"after": Timestamp(seconds=1 << 60)}):
        refused = await refusal(operator.call("PreviewSchedule", schedule_id=schedule, **fields))
        assert refused.reason == "FIELD_INVALID"
    last = stamp("9999-12-31T23:55:00")
    assert (
        await refusal(operator.call("PreviewSchedule", schedule_id=schedule, after=last))
    ).reason == "SCHEDULE_BROKEN"


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
