"""What a running stack answers over REST is what its OpenAPI document says: a life of definitions, runs, schedules, events and keys, and every operation
refused, all held against the schemas with no property allowed that they do not name.

The share of operations whose answers were seen is printed.
"""

import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import pytest_asyncio

from ductord.cli.roster import NAMES, services
from ductord.model.keys import PLATFORM_TENANT, TASKS
from ductord.rpc.config import Settings
from ductord.rpc.host import hosting
from tests.conftest import Cluster
from tests.contract.door import OPERATIONS, TREE, Door
from tests.support.keys import minted

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(120),
    pytest.mark.xdist_group("openapi"),  # what the last test counts is of this process
]

NOBODY = "01980000-0000-7000-8000-000000000000"
CLOSED = {"action": "core:fail", "args": {"code": "INVALID_ARGUMENT", "message": "the bank is closed"}}
OFFER = {
    "family_slug": "offer",
    "title": "Offer",
    "tags": ["sales"],
    "variables": {"limit": 9007199254740993},
    "input_schema": {"type": "object"},
    "triggers": [
        {"id": "hand", "type": "manual"},
        {"id": "wanted", "type": "event", "patterns": ["offer.wanted"], "filter": "EVENT.payload.of != ''"},
        {"id": "yearly", "type": "schedule", "schedule": {"cron_expression": "0 3 1 1 *", "timezone": "Europe/Berlin"}},
    ],
    "checkpoints": [{"name": "greeted", "step_refs": ["hello"]}],
    "steps": [
        {"ref": "hello", "type": "action", "action": "core:echo", "args": {"limit": "${{ VARS.limit }}"}},
        {"ref": "manager", "type": "approval"},
        {"ref": "director", "type": "approval"},
        {"ref": "paper", "type": "human_loop", "human_loop": {"case_type": "kyc"}},
        {
            "ref": "money",
            "type": "event_set",
            "event_set": {
                "correlation_key": "'o-1'",
                "requirements": [{"name": n, "event_name": f"order.{n}"} for n in ("paid", "sent")],
            },
        },
        {"ref": "pack", "type": "action", "action": "shop:pack", "queue": "nobody", "retry_max_attempts": 3},
        {"ref": "ship", "type": "action", "action": "core:echo"},
        {"ref": "regret", "type": "action", "action": "core:echo"},
    ],
    "edges": [
        {"source_ref": "pack", "target_ref": "ship", "type": "success"},
        {"source_ref": "director", "target_ref": "regret", "type": "rejected"},
    ],
}
PAYMENT = {
    "family_slug": "payment",
    "steps": [
        {"ref": "charge", "type": "action", "action": "core:echo", "compensation": {"on_failure": [CLOSED]}},
        {"ref": "pages", "type": "scatter", "scatter": {"items_expr": "[1, 2]", "action": "core:echo"}},
        {"ref": "deliver", "type": "action", **CLOSED},
    ],
    "edges": [
        {"source_ref": "charge", "target_ref": "pages", "type": "success"},
        {"source_ref": "pages", "target_ref": "deliver", "type": "success"},
    ],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def door(postgres: Cluster) -> AsyncIterator[Door]:
    """The whole suite in this process, over a database of its own, as the tenant `acme` sees it."""
    with postgres.database() as database:
        settings = Settings(
            database_url=database.owner,
            grpc_address="127.0.0.1:0",
            http_address="127.0.0.1:0",
            access_log="off",
            environment="test",
            auth="keys",
            key_attempts=1_000,
            api_key=(await minted(database, PLATFORM_TENANT, TASKS, name="worker")).token,
            poll_ms=200,
            drain_ms=1_000,
        )
        async with hosting(services(NAMES), settings) as host:
            base = f"http://{host.http_address.reachable if host.http_address else ''}"
            key = await minted(database, "acme", name="all")
            none = await minted(database, "acme", TASKS, name="none")
            async with httpx.AsyncClient(base_url=base, headers=_bearer(key.token), timeout=60) as http:
                yield Door(http, none=_bearer(none.token))


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def _until(door: Door, run_id: str, holds: Callable[[Any], bool]) -> Any:
    """Watch a run until its snapshot is as it shall be."""
    async for event in door.stream("WatchRun", run_id, min_interval_ms=100):
        run = (await door.ask("GetRun", run_id))["data"]
        if holds(run):
            return run
        assert not event["ended"], run
    raise AssertionError(run_id)


async def test_a_definition(door: Door) -> None:
    """Written, edited, judged, published, copied, exported, found, overridden, put away."""
    created = await door.ask("CreateWorkflowDefinition", **OFFER)
    offer = created["data"]["id"]
    await door.ask("CreateWorkflowDefinition", **PAYMENT, payload_format="json")
    edit = {"add_step": {"ref": "bye", "type": "action", "action": "core:echo"}}
    await door.ask("UpdateWorkflowDraft", offer, expected_draft_revision=1, operations=[edit], title="An offer")
    judged = await door.ask("ValidateWorkflowDefinition", id=offer)
    assert judged["data"]["violations"] == [], judged
    await door.ask("ValidateWorkflowDefinition", definition={"family_slug": "x", "steps": []})
    await door.ask("PublishWorkflowDefinition", offer)
    copy = (await door.ask("DuplicateWorkflowDefinition", offer, family_slug="copy"))["data"]["id"]
    await door.ask("DeleteWorkflowDraft", copy, reason="not needed")
    for fields in ({}, {"payload_format": "json"}, {"view": "draft"}):
        await door.ask("GetWorkflowDefinition", offer, **fields)
    await door.ask("ListWorkflowDefinitions", q="offer", page_size=1)
    await door.ask("ExportWorkflowDefinition", offer)
    await door.ask("UpsertWorkflowEnvOverride", offer, environment="test", variables={"limit": 4}, reason="less")
    assert (await door.ask("ListWorkflowEnvOverrides", offer))["data"][0]["variables"] == {"limit": 4}
    await door.ask("DeleteWorkflowEnvOverride", offer, "test", reason="as before")
    await door.ask("ListEventTriggers", event_name="offer.wanted")


async def test_a_run_that_waits(door: Door) -> None:
    """People and events move it, operators hold, tune, take apart and end it."""
    offer = (await door.ask("ListWorkflowDefinitions", family_slug="offer"))["data"][0]["id"]
    asked = {"input": {"of": "all"}, "wait_for_checkpoint": True, "correlation_labels": [{"key": "order", "id": "o-1"}]}
    started = await door.ask("TriggerWorkflow", offer, **asked)
    assert started["checkpoint_reached"] is True
    assert started["response_group_output"] == {"hello": {"limit": 9007199254740993}}
    run = started["run_id"]
    batch = await door.ask("BatchTriggerWorkflow", offer, items=[{"input": {}}, {"input": 1}])
    assert [bool(result["error"]) for result in batch["results"]] == [False, True]
    await door.ask("ApproveStep", run, "manager", payload={"ok": True})
    await door.ask("RejectStep", run, "director", comment="not now")
    await door.ask("ResolveInteraction", run, "paper", status="resolved")
    event = {"event_name": "order.paid", "correlation_key": "o-1", "payload": {"amount": 3}}
    assert (await door.ask("ExplainWorkflowEventSetMatch", **event))["matched"] >= 1
    await door.ask("PublishEvent", **event, event_id="e-1")
    assert (await door.ask("PublishEvent", event_name="offer.wanted", payload={"of": "it"}))["started_run_ids"]
    tuned = {
        "PauseNode": {},
        "ResumeNode": {},
        "UpdateNodeTimeout": {"timeouts": {"timeout_ms": 9000}},
        "UpdateNodeRetryPolicy": {"retry_policy": {"retry_max_attempts": 5}},
        "ResetNode": {},
    }
    for name, fields in tuned.items():
        done = await door.ask(name, run, "pack", reason="as agreed", request_id=name, **fields)
        await door.ask("WaitOperation", run, done["request_id"], timeout_seconds=20)
    await door.ask("GetOperation", run, "PauseNode")
    for name in ("PauseRun", "ResumeRun"):
        await door.ask(name, run, reason="as agreed", request_id=name)
        await door.ask("WaitOperation", run, name, timeout_seconds=20)
    await door.ask("ListWaitReceipts", run, "money")
    for fields in ({}, {"payload_format": "json"}):
        for name in ("GetRunSnapshot", "ListRunAttempts", "GetRun", "ListRunSteps", "GetRunTimeline", "ListRunEvents", "GetRunAudit"):  # fmt: skip
            await door.ask(name, run, **fields)
        await door.ask("GetRunStep", run, "hello", **fields)
        await door.ask("ListAudit", **fields)
    await door.ask("GetRunTimeline", run, unified=True)
    await door.ask("ListRuns", workflow_type="offer", label=["order:o-1"])
    await door.ask("ExportRun", run)
    targets = (await door.ask("ListResetTargets", run))["data"]
    await door.ask("PreviewReset", run, transition_seq=targets[-1]["transition_seq"])
    again = await door.ask("ContinueAsNewRun", run, reason="too long", discard_pending=True)
    await door.ask("WaitOperation", run, again["request_id"], timeout_seconds=20)
    other = batch["results"][0]["run_id"]
    ended = await door.ask("CancelRun", other, reason="not wanted")
    await door.ask("WaitOperation", other, ended["request_id"], timeout_seconds=20)
    reset = await door.ask("ResetRun", other, transition_seq=1, reason="once more")
    await door.ask("WaitOperation", other, reset["request_id"], timeout_seconds=20)
    await door.ask("TerminateRun", reset["new_run_id"], reason="enough")


async def test_a_run_that_fails(door: Door) -> None:
    """Its compensation needs a person; then it is driven again."""
    payment = (await door.ask("ListWorkflowDefinitions", family_slug="payment"))["data"][0]["id"]
    await door.ask("PublishWorkflowDefinition", payment)
    run = (await door.ask("TriggerWorkflow", payment, payload_format="json"))["run_id"]
    await _until(door, run, lambda run: run["summary"]["compensation_status"] == "manual_repair")
    assert (await door.ask("ListCompensations", status="manual_repair"))["data"]
    await door.ask("ListRunSteps", run, step_ref="pages")
    await door.ask("GetRun", run, include_tree=True)
    done = await door.ask("ResolveRepair", run, "charge", resolution="done", reason="by hand")
    await door.ask("WaitOperation", run, done["request_id"], timeout_seconds=20)
    await door.ask("RedriveRun", run, dry_run=True, force=True)
    await door.ask("ArchiveWorkflowDefinition", payment, reason="no more")


async def test_a_schedule_and_a_release_policy(door: Door) -> None:
    """Listed, seen ahead, held, fired by hand and for the past; who may start runs."""
    schedule = (await door.ask("ListSchedules"))["data"][0]["schedule_id"]
    await door.ask("GetSchedule", schedule)
    await door.ask("PreviewSchedule", schedule, count=2)
    await door.ask("PauseSchedule", schedule, reason="holiday")
    await door.ask("ResumeSchedule", schedule, reason="back")
    await door.ask("TriggerScheduleNow", schedule, overlap_policy="allow_all")
    span = {"from_time": "2025-12-31T00:00:00Z", "to_time": "2026-01-02T00:00:00Z"}
    await door.ask("BackfillSchedule", schedule, **span, overlap_policy="allow_all")
    assert (await door.ask("ListScheduleFires", schedule))["data"]
    await door.ask("SetReleasePolicy", mode="required", live_release_ids=["blue"], reason="wave 1")
    await door.ask("GetReleasePolicy")
    await door.ask("SetReleasePolicy", mode="off")


async def test_an_api_key(door: Door) -> None:
    """Made, shown, rotated, revoked."""
    made = await door.ask("CreateApiKey", name="ci", scopes=["workflow:read"], reason="for the pipeline")
    key = made["data"]["key_id"]
    await door.ask("GetApiKey", key)
    await door.ask("ListApiKeys")
    rotated = await door.ask("RotateApiKey", key, overlap_seconds=0)
    await door.ask("RevokeApiKey", rotated["data"]["key_id"], reason="over")


@pytest.mark.parametrize("name", OPERATIONS)
async def test_what_is_refused(door: Door, name: str) -> None:
    """Every operation: with a field that is none, without a key, with one that lacks its scope, for another tenant, about what is not there."""
    _, path, operation = OPERATIONS[name]
    given = [NOBODY] * path.count("{")
    body = "requestBody" in operation
    assert await door.fail(name, *given, **({"json": {"odd": 1}} if body else {"params": {"odd": 1}})) == 400
    assert await door.fail(name, *given, headers={"authorization": ""}) == 401
    assert await door.fail(name, *given, headers=door.none) == 403
    assert await door.fail(name, *given, headers={"x-tenant-id": "another"}) == 403
    if given and not operation["responses"]["200"]["content"].get("text/event-stream"):
        await door.fail(name, *given, **({"json": {"reason": "x"}} if body else {}))


async def test_the_document_is_open(door: Door) -> None:
    """What can be asked is told without a key, also to who shows a bad one."""
    for headers in ({"authorization": ""}, {"authorization": "Bearer dk_acme.x.y"}):
        assert await door.document(headers) == TREE


async def test_ob_01_nothing_of_callers_is_a_label(door: Door) -> None:
    """OB-01: after all this, with keys good and bad, no series of any service names a tenant, a run, a key, a workflow or a step."""
    lines = [line for line in (await door.metrics()).splitlines() if not line.startswith("#")]
    told = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}|acme|another|dk_|offer|payment|manager|odd")
    assert [line for line in lines if told.search(line)] == []
    assert any(line.startswith("ductor_auth_failures_total{") for line in lines)
    assert len(lines) < 4_000


async def test_the_share_of_operations_that_were_seen(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, answered and refused."""
    refused = {name for name, _ in door.refused}
    with capsys.disabled():
        statuses = sorted({status for _, status in door.refused})
        print(f"\nOpenAPI, held against live answers: {len(door.answered)} of {len(OPERATIONS)} operations answered,"
              f" {len(refused)} refused (with {statuses})")  # fmt: skip
    assert set(OPERATIONS) - door.answered == set()
    assert set(OPERATIONS) - refused == set()
