"""ScheduleService: timetables, as they are told, listed and looked ahead in (T2, TC-01, TC-02, TN-01). The clock is stepped; nothing fires by itself here."""

from datetime import timedelta
from typing import Any

import asyncpg
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from msgspec.structs import replace

from ductor.workflow.v1 import schedule_service_pb2 as api
from ductord.db.ids import new_id
from ductord.model.starting import ScheduleSpec, TriggerSpec
from tests.support.books import TENANT, chain
from tests.support.edges import refusal
from tests.trigger.operated import ACTIVE, ALLOW, BROKEN, NOON, PAUSED, RETIRED, Operator, clock, firing, stamp


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
