"""Run control as HTTP callers meet it: the real gateway before the real service, with the guide's own examples."""

from collections.abc import AsyncIterator

import httpx
import pytest

from ductord.admin.service import SERVICE as ADMIN
from ductord.definition.service import SERVICE as DEFINITION
from ductord.dispatch.service import SERVICE as DISPATCH
from ductord.gateway.service import SERVICE as GATEWAY
from ductord.reads.service import SERVICE as READS
from ductord.rpc.config import Settings
from ductord.rpc.host import hosting
from ductord.run_control.service import SERVICE
from ductord.signals.service import SERVICE as SIGNALS
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.run_control.standing import Stands
from tests.support.books import TENANT


@pytest.fixture
async def http(database: Database) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the gateway, which has the tenant of the books."""
    local = "127.0.0.1:0"
    settings = Settings(database_url=database.owner, grpc_address=local, http_address=local, access_log="off")
    async with hosting([DEFINITION, TRIGGER, SERVICE, SIGNALS, READS, ADMIN, DISPATCH, GATEWAY], settings) as host:
        assert host.http_address is not None
        base = f"http://{host.http_address.reachable}/api/v2/workflow-runs"
        async with httpx.AsyncClient(base_url=base, headers={"x-tenant-id": TENANT}, timeout=30) as client:
            yield client


async def test_pause_and_its_operation(http: httpx.AsyncClient, stands: Stands) -> None:
    """The guide's pause, twice; its operation by a name that needs escapes (AP-05), waited for, settled."""
    run_id = await stands.run()
    body = {"request_id": "op/8f2a:1 ü", "reason": "manual hold pending review"}
    for _ in range(2):
        response = await http.post(f"/{run_id}:pause", json=body)
        told = response.json()
        assert (response.status_code, told["status"], told["run_id"]) == (200, "accepted", run_id)
        assert set(told["metadata"]) == {"trace_id", "request_id", "fetched_at"}
        assert told["metadata"]["request_id"] == response.headers["x-request-id"]
    path = f"/{run_id}/operations/op%2F8f2a%3A1%20%C3%BC"
    operation = (await http.get(path)).json()["data"]
    assert (operation["verb"], operation["status"], operation["actor"]) == ("pause", "pending", "anonymous")
    assert operation["request_id"] == body["request_id"]
    assert (await http.get(f"{path}:wait?timeout_seconds=1")).json()["data"]["status"] == "pending"
    await stands.settle(run_id, body["request_id"])
    assert (await http.get(f"{path}:wait")).json()["data"]["status"] == "applied"


async def test_refusals(http: httpx.AsyncClient, stands: Stands) -> None:
    """AIP-193 with google.rpc's table: 404, 400, 409, each with its reason and what a machine wants to know."""
    ended = await stands.run("continued")
    error = (await http.post(f"/{ended}:cancel", json={})).json()["error"]
    assert (error["code"], error["status"]) == (400, "FAILED_PRECONDITION")
    [info] = [d for d in error["details"] if d["@type"].endswith("ErrorInfo")]
    assert info["reason"] == "RUN_TERMINAL"
    assert info["metadata"]["continued_to_run_id"]
    assert (await http.post("/00000000-0000-0000-0000-000000000000:pause")).status_code == 404
    run_id = await stands.run()
    await http.post(f"/{run_id}:pause", json={"request_id": "a"})
    assert (await http.post(f"/{run_id}:cancel", json={"request_id": "a"})).status_code == 409
    response = await http.post(f"/{run_id}/nodes/s0:updateTimeout", json={"timeouts": {"timeout_ms": -1}})
    assert response.status_code == 400
    assert "timeouts.timeout_ms" in response.text


async def test_a_snapshot_and_what_a_reset_would_do(http: httpx.AsyncClient, stands: Stands) -> None:
    run_id = await stands.run()
    await stands.context(run_id, {"n": 9007199254740993})
    response = await http.get(f"/{run_id}/snapshot")
    assert b'"run_context":{"n": 9007199254740993}' in response.content
    data = response.json()["data"]
    assert (data["summary"]["status"], data["nodes"][0]["status"], data["edges"][0]["state"]) == (
        "running",
        "running",
        "open",
    )
    targets = (await http.get(f"/{run_id}/reset-targets")).json()
    assert [(t["transition_seq"], t["open_step_refs"]) for t in targets["data"]] == [(1, ["s0"])]
    preview = await http.post(f"/{run_id}:previewReset", json={"transition_seq": 1})
    assert preview.json()["data"]["restarted_step_refs"] == ["s0", "s1"]
    dry = await http.post(f"/{run_id}:reset", json={"transition_seq": 1, "dry_run": True})
    assert (dry.json()["status"], await stands.intents(run_id)) == ("dry_run", [])


async def test_connect(http: httpx.AsyncClient, stands: Stands) -> None:
    """Canonical proto JSON through the same gateway."""
    run_id = await stands.run()
    url = str(http.base_url).replace("/api/v2/workflow-runs/", "/ductor.workflow.v1.WorkflowRunControlService/")
    response = await http.post(f"{url}TerminateRun", json={"runId": run_id, "skipFinally": True})
    assert response.json()["status"] == "ACCEPT_STATUS_ACCEPTED"
    [intent] = await stands.intents(run_id)
    assert '"skip_finally":true' in intent["body"]
