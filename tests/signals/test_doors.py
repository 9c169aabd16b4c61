"""Signals as HTTP callers meet them: the real gateway before the real service, with the guide's own examples."""

from collections.abc import AsyncIterator

import httpx
import pytest

from ductord.admin.service import SERVICE as ADMIN
from ductord.definition.service import SERVICE as DEFINITION
from ductord.dispatch.service import SERVICE as DISPATCH
from ductord.gateway.service import SERVICE as GATEWAY
from ductord.model.enums import RunStatus
from ductord.model.starting import event_run_id
from ductord.reads.service import SERVICE as READS
from ductord.rpc.config import Settings
from ductord.rpc.host import hosting
from ductord.run_control.service import SERVICE as RUN_CONTROL
from ductord.signals.service import SERVICE
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.signals.live import Live, on
from tests.signals.standing import CONTINUED, CUT, SUCCESSOR, Desk
from tests.support.books import TENANT


@pytest.fixture
async def http(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the gateway, which has the tenant of the books."""
    local = "127.0.0.1:0"
    settings = Settings(database_url=database.owner, grpc_address=local, http_address=local, access_log="off")
    async with hosting([DEFINITION, TRIGGER, RUN_CONTROL, SERVICE, READS, ADMIN, DISPATCH, GATEWAY], settings) as host:
        assert host.http_address is not None
        base = f"http://{host.http_address.reachable}"
        async with httpx.AsyncClient(base_url=base, headers={"x-tenant-id": TENANT}, timeout=30) as client:
            yield client


async def test_the_guides_approval(http: httpx.AsyncClient, desk: Desk) -> None:
    """Accepted, twice; the payload is exact."""
    run_id = await desk.run()
    body = '{"request_id":"sig-1","approver_id":"alex@algib.com","comment":"cleared","payload":{"tier":"gold","n":9007199254740993}}'
    for _ in range(2):
        response = await http.post(
            f"/api/v2/workflow-runs/{run_id}/steps/ap:approve",
            content=body,
            headers={"content-type": "application/json"},
        )
        told = response.json()
        assert (response.status_code, told["status"], told["run_id"], told["request_id"]) == (
            200,
            "accepted",
            run_id,
            "sig-1",
        )
        assert set(told["metadata"]) == {"trace_id", "request_id", "fetched_at"}
    [row] = await desk.signals(run_id)
    assert (row["payload"], row["approver_id"]) == ('{"tier":"gold","n":9007199254740993}', "alex@algib.com")


async def test_reject_and_resolve(http: httpx.AsyncClient, desk: Desk) -> None:
    run_id = await desk.run()
    base = f"/api/v2/workflow-runs/{run_id}/steps"
    assert (await http.post(f"{base}/ap:reject", json={"comment": "no"})).json()["status"] == "accepted"
    answer = await http.post(f"{base}/case:resolveInteraction", json={"status": "closed", "payload": {"a": None}})
    assert answer.json()["request_id"]
    rows = await desk.signals(run_id)
    assert [(r["verb"], r["case_status"], r["payload"]) for r in rows] == [
        ("reject", "", "null"),
        ("resolve_interaction", "closed", '{"a":null}'),
    ]


async def test_the_guides_event(http: httpx.AsyncClient, desk: Desk) -> None:
    """matched and duplicate; zero values are written."""
    run_id = await desk.open(name="order.paid", key="order-42")
    event = {
        "event_name": "order.paid",
        "correlation_key": "order-42",
        "event_id": "evt-abc",
        "payload": {"amount": 12900},
    }
    answers = [(await http.post("/api/v2/workflow-events:publish", json=event)).json() for _ in range(2)]
    told = [(a["matched"], a["duplicate"], a["started_run_ids"], a["event_id"]) for a in answers]
    assert told == [(1, False, [], "evt-abc"), (0, True, [], "evt-abc")]
    await desk.open(run_id, "set", name="order.paid", key="order-42", requirement="money")
    sample = {"event_name": "order.paid", "correlation_key": "order-43"}
    response = await http.post("/api/v2/workflow-events:explainEventSetMatch", json=sample)
    explained = response.json()
    assert explained.pop("metadata")
    assert explained == {
        "candidate_waits": 1,
        "matched": 0,
        "reasons": [{"code": "correlation_key_differs", "count": 1}],
    }
    assert "order-42" not in response.text
    receipts = (await http.get(f"/api/v2/workflow-runs/{run_id}/steps/ev/receipts?page_size=1")).json()
    [receipt] = receipts["data"]
    assert (receipt["event_id"], receipt["event_name"], receipt["requirement"]) == ("evt-abc", "order.paid", "")
    assert receipts["next_page_token"] == ""


async def test_an_event_that_starts_runs(http: httpx.AsyncClient, desk: Desk) -> None:
    """T3: what started, and what could not, as REST has it."""
    definition = await Live(desk.owner).define(
        on("order.paid"), on("order.paid", id_="bad", input_="${{ EVENT.payload.x.y }}")
    )
    answer = (
        await http.post("/api/v2/workflow-events:publish", json={"event_name": "order.paid", "event_id": "e"})
    ).json()
    assert answer["started_run_ids"] == [event_run_id(definition, "on", "order.paid", "e")]
    [refused] = answer["refused_triggers"]
    assert refused.pop("message").startswith("expression `EVENT.payload.x.y`")
    assert refused == {"definition_id": definition, "trigger_id": "bad", "code": "EXPRESSION_ERROR"}


async def test_refusals(http: httpx.AsyncClient, desk: Desk) -> None:
    """AIP-193 with google.rpc's table: each with its reason and what a machine wants to know; PL-01 with the path."""
    ended = await desk.run(CUT, RunStatus.TERMINATED, **CONTINUED)
    error = (await http.post(f"/api/v2/workflow-runs/{ended}/steps/ap:approve", json={})).json()["error"]
    assert (error["code"], error["status"]) == (400, "FAILED_PRECONDITION")
    [info] = [d for d in error["details"] if d["@type"].endswith("ErrorInfo")]
    assert (info["reason"], info["metadata"]["continued_to_run_id"]) == ("RUN_TERMINAL", SUCCESSOR)
    run_id = await desk.run()
    base = f"/api/v2/workflow-runs/{run_id}/steps"
    assert (await http.post(f"{base}/nope:approve", json={})).status_code == 404
    assert (await http.post(f"{base}/vip:approve", json={})).status_code == 403
    assert (await http.post(f"{base}/ap:approve", json={"request_id": "a"})).status_code == 200
    assert (await http.post(f"{base}/ap:reject", json={"request_id": "a"})).status_code == 409
    for body in ({"payload": {"a": ["x\0y"]}}, {"payload": {"k\0": 1}}):
        response = await http.post(f"{base}/ap:approve", json=body)
        assert (response.status_code, "payload" in response.text) == (400, True)
    response = await http.post("/api/v2/workflow-events:publish", json={"event_name": "e", "ttl_seconds": -1})
    assert (response.status_code, "ttl_seconds" in response.text) == (400, True)
    assert (
        await http.post("/api/v2/workflow-events:publish", json={"event_name": "e", "eventId": "x", "nope": 1})
    ).status_code == 400


async def test_connect(http: httpx.AsyncClient, desk: Desk) -> None:
    """Canonical proto JSON through the same gateway."""
    run_id = await desk.open()
    service = "/ductor.workflow.v1.WorkflowSignalService"
    response = await http.post(f"{service}/ApproveStep", json={"runId": run_id, "stepRef": "ap", "payload": {"a": 1}})
    assert response.json()["status"] == "ACCEPT_STATUS_ACCEPTED"
    response = await http.post(f"{service}/PublishEvent", json={"eventName": "paid", "correlationKey": "k"})
    assert response.json()["matched"] == 1
    response = await http.post(f"{service}/PublishEvent", json={"eventName": ""})
    assert (response.status_code, response.json()["code"]) == (400, "invalid_argument")
