"""What starts runs, at the HTTP doors: every path of schedules, event triggers and release policies; times and words in either dialect."""

from typing import Any

import pytest

from ductor.workflow.v1 import admin_service_pb2 as admin
from ductor.workflow.v1 import definition_pb2
from ductor.workflow.v1 import schedule_service_pb2 as api
from tests.gateway.peers import Running, fault

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCHEDULES = "/api/v2/workflow-schedules"
POLICY = "/api/v2/admin/release-policy"
ONE = [
    ("GET", "", "GetSchedule"),
    ("GET", ":preview", "PreviewSchedule"),
    ("GET", "/fires", "ListScheduleFires"),
    ("POST", ":pause", "PauseSchedule"),
    ("POST", ":resume", "ResumeSchedule"),
    ("POST", ":trigger", "TriggerScheduleNow"),
    ("POST", ":backfill", "BackfillSchedule"),
]


@pytest.mark.parametrize(("method", "verb", "rpc"), ONE)
async def test_each_path_of_a_schedule(method: str, verb: str, rpc: str, gateway: Running) -> None:
    """The id of the path reaches the service; the other method is refused."""
    response = await gateway.http.request(method, f"{SCHEDULES}/s1{verb}")
    assert response.status_code == 200, response.text
    assert (gateway.peers.last.rpc, gateway.peers.last.request.schedule_id) == (rpc, "s1")
    other = "POST" if method == "GET" else "GET"
    assert (await gateway.http.request(other, f"{SCHEDULES}/s1{verb}")).status_code in (404, 405)


async def test_filters_reach_the_service(gateway: Running) -> None:
    assert (await gateway.http.get(f"{SCHEDULES}?workflow_type=report&status=paused&page_size=3")).status_code == 200
    assert gateway.peers.last.request == api.ListSchedulesRequest(
        workflow_type="report", status=api.SCHEDULE_STATUS_PAUSED, page_size=3
    )
    assert (await gateway.http.get(f"{SCHEDULES}/s1/fires?outcome=missed")).status_code == 200
    assert gateway.peers.last.request.outcome == api.FIRE_OUTCOME_MISSED
    query = "after=2030-03-30T12:00:00%2B01:00&count=2"
    assert (await gateway.http.get(f"{SCHEDULES}/s1:preview?{query}")).status_code == 200
    asked = gateway.peers.last.request
    assert (asked.after.ToJsonString(), asked.count) == ("2030-03-30T11:00:00Z", 2)
    assert (await gateway.http.get("/api/v2/workflow-event-triggers?event_name=a.b&definition_id=d")).status_code == 200
    asked = gateway.peers.last.request
    assert (gateway.peers.last.rpc, asked.event_name, asked.definition_id) == ("ListEventTriggers", "a.b", "d")


async def test_a_backfill_in_either_dialect(gateway: Running) -> None:
    """REST has short words, Connect the names of the contract; a time that is none names its field."""
    rest = {"from_time": "2030-01-01T00:00:00Z", "to_time": "2030-01-02T00:00:00Z", "overlap_policy": "skip"}
    gateway.peers.answers["BackfillSchedule"] = api.BackfillScheduleResponse(started_run_ids=["r1"], skipped_count=2)
    response = await gateway.http.post(f"{SCHEDULES}/s1:backfill", json=rest)
    assert response.status_code == 200
    told = response.json()
    assert (told["started_run_ids"], told["already_started_count"], told["skipped_count"]) == (["r1"], 0, 2)
    asked = gateway.peers.last.request
    assert (asked.overlap_policy, asked.to_time.ToJsonString()) == (
        definition_pb2.OVERLAP_POLICY_SKIP, "2030-01-02T00:00:00Z",
    )  # fmt: skip
    connect = {"scheduleId": "s1", "fromTime": rest["from_time"], "overlapPolicy": "OVERLAP_POLICY_ALLOW_ALL"}
    response = await gateway.connect("ScheduleService/BackfillSchedule", connect)
    assert (response.status_code, response.json()) == (200, {"startedRunIds": ["r1"], "skippedCount": 2})
    assert gateway.peers.last.request.overlap_policy == definition_pb2.OVERLAP_POLICY_ALLOW_ALL
    bad: list[tuple[dict[str, Any], str]] = [
        ({"from_time": "yesterday"}, "from_time"),
        ({"overlap_policy": "buffer"}, "overlap_policy"),
        ({"until": "2030-01-02T00:00:00Z"}, "until"),
    ]
    for body, field in bad:
        response = await gateway.http.post(f"{SCHEDULES}/s1:backfill", json=body)
        assert (response.status_code, fault(response)[3]["field"]) == (400, field)


async def test_a_release_policy(gateway: Running) -> None:
    """GET and PUT; the mode as a short word."""
    policy = admin.ReleasePolicy(mode=admin.RELEASE_MODE_REQUIRED, live_release_ids=["blue"])
    gateway.peers.answers["GetReleasePolicy"] = admin.GetReleasePolicyResponse(data=policy)
    told = (await gateway.http.get(POLICY)).json()["data"]
    assert (told["mode"], told["live_release_ids"], told["updated_by"]) == ("required", ["blue"], "")
    response = await gateway.http.put(POLICY, json={"mode": "off", "reason": "over"})
    assert response.status_code == 200
    assert gateway.peers.last.request == admin.SetReleasePolicyRequest(mode=admin.RELEASE_MODE_OFF, reason="over")
    assert (await gateway.http.post(POLICY, json={})).status_code == 405
