"""Controls at the HTTP doors: every path of run control, operations whose names have special characters (AP-05), field masks, payloads, long waits."""

import json
from typing import Any

import pytest

from ductor.workflow.v1 import control_pb2
from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.gateway.backends import patience
from tests.gateway.peers import Running, fault

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUN = "/api/v2/workflow-runs/r1"
NODE = f"{RUN}/nodes/a.b-c"
CONTROLS = {
    f"{RUN}:pause": "PauseRun",
    f"{RUN}:resume": "ResumeRun",
    f"{RUN}:cancel": "CancelRun",
    f"{RUN}:terminate": "TerminateRun",
    f"{RUN}:redrive": "RedriveRun",
    f"{RUN}:continueAsNew": "ContinueAsNewRun",
    f"{RUN}:reset": "ResetRun",
    f"{NODE}:pause": "PauseNode",
    f"{NODE}:resume": "ResumeNode",
    f"{NODE}:reset": "ResetNode",
    f"{NODE}:updateRetryPolicy": "UpdateNodeRetryPolicy",
    f"{NODE}:updateTimeout": "UpdateNodeTimeout",
    f"{NODE}:resolveRepair": "ResolveRepair",
}


@pytest.mark.parametrize(("path", "rpc"), CONTROLS.items())
async def test_a_control_is_accepted(path: str, rpc: str, gateway: Running) -> None:
    """The guide's body reaches the service, and its answer says `accepted`."""
    answer = getattr(api, f"{rpc}Response")(
        status=control_pb2.ACCEPT_STATUS_ACCEPTED, run_id="r1", request_id="op-8f2a-1"
    )
    gateway.peers.answers[rpc] = answer
    response = await gateway.http.post(path, json={"request_id": "op-8f2a-1", "reason": "manual hold pending review"})
    assert response.status_code == 200
    told = response.json()
    assert (told["status"], told["run_id"], told["request_id"]) == ("accepted", "r1", "op-8f2a-1")
    seen = gateway.peers.last
    assert (seen.rpc, seen.request.request_id, seen.request.reason) == (rpc, "op-8f2a-1", "manual hold pending review")
    assert (seen.request.source_run_id if rpc == "ResetRun" else seen.request.run_id) == "r1"
    if path.startswith(NODE):
        assert seen.request.step_ref == "a.b-c"


READS = {
    f"{RUN}/snapshot": "GetRunSnapshot",
    f"{RUN}/attempts?step_ref=a&page_size=3": "ListRunAttempts",
    f"{RUN}/reset-targets?page_size=3": "ListResetTargets",
    f"{RUN}/operations/o1": "GetOperation",
    f"{RUN}/operations/o1:wait?timeout_seconds=0": "WaitOperation",
}


@pytest.mark.parametrize(("path", "rpc"), READS.items())
async def test_reads(path: str, rpc: str, gateway: Running) -> None:
    response = await gateway.http.get(path)
    assert response.status_code == 200, response.text
    assert (gateway.peers.last.rpc, gateway.peers.last.request.run_id) == (rpc, "r1")
    assert (await gateway.http.post(path.partition("?")[0])).status_code == 405


@pytest.mark.parametrize(
    ("spelt", "name"),
    [
        ("a%3Ab", "a:b"),
        ("a%2Fb%3Await", "a/b:wait"),
        ("%E2%82%AC%20%25", "€ %"),
        ("op-8f2a-1", "op-8f2a-1"),
        ("%3Await", ":wait"),
        ("..%2F..", "../.."),
        ("a+b", "a+b"),
    ],
)
async def test_ap05_names_with_special_characters(spelt: str, name: str, gateway: Running) -> None:
    """AP-05: the verb is what follows the last colon as it stands; whatever is percent-encoded belongs to the name."""
    for verb, rpc in (("", "GetOperation"), (":wait", "WaitOperation")):
        response = await gateway.http.get(f"{RUN}/operations/{spelt}{verb}")
        assert response.status_code == 200, response.text
        assert (gateway.peers.last.rpc, gateway.peers.last.request.request_id) == (rpc, name)
    step = await gateway.http.post(f"{RUN}/nodes/{spelt}:pause")
    assert (step.status_code, gateway.peers.last.request.step_ref) == (200, name)


async def test_ap05_verbs_that_there_are_not(gateway: Running) -> None:
    for path in (f"{RUN}:halt", f"{RUN}:", f"{NODE}:wait", NODE, f"{RUN}/operations/a:b"):
        assert fault(await gateway.http.post(path))[2] == "ROUTE_NOT_FOUND", path


@pytest.mark.parametrize(
    ("mask", "paths"),
    [
        ("retry_max_attempts,retry_on", ["retry_max_attempts", "retry_on"]),
        ("retryMaxAttempts, retryOn", ["retry_max_attempts", "retry_on"]),
        ("*", ["*"]),
        ("", []),
    ],
)
async def test_field_masks(mask: str, paths: list[str], gateway: Running) -> None:
    """One text with commas, on both doors, in either spelling."""
    body = {"step_ref": "a", "retry_policy": {"retry_max_attempts": 4}, "update_mask": mask}
    assert (await gateway.http.post(f"{RUN}/nodes/a:updateRetryPolicy", json=body)).status_code == 200
    assert list(gateway.peers.last.request.update_mask.paths) == paths
    assert gateway.peers.last.request.retry_policy.retry_max_attempts == 4
    connect = {"runId": "r1", "stepRef": "a", "retryPolicy": {"retryMaxAttempts": 4}, "updateMask": mask}
    response = await gateway.connect("WorkflowRunControlService/UpdateNodeRetryPolicy", connect)
    assert response.status_code == 200
    assert list(gateway.peers.last.request.update_mask.paths) == paths


@pytest.mark.parametrize("mask", [["retry_on"], {"paths": ["retry_on"]}, 3])
async def test_what_is_no_field_mask(mask: Any, gateway: Running) -> None:
    response = await gateway.http.post(f"{RUN}/nodes/a:updateRetryPolicy", json={"update_mask": mask})
    assert fault(response)[2] == "FIELD_INVALID"
    assert fault(response)[3] == {"field": "update_mask"}


async def test_payloads_are_passed_on_as_text(gateway: Running) -> None:
    """L5: seed and inputs reach the service to the digit, through their twins; a faulty one is named by the field that was given."""
    seed = '{"id": 9007199254740993, "x": 1.10}'
    await gateway.http.post(f"{RUN}:continueAsNew", content=f'{{"seed_run_context": {seed}}}')
    assert gateway.peers.last.request.seed_run_context_json == seed
    override = f'{{"step_ref": "a", "input": {seed}}}'
    for verb in ("reset", "previewReset"):
        body = f'{{"transition_seq": 2, "step_input_overrides": [{override}]}}'
        assert (await gateway.http.post(f"{RUN}:{verb}", content=body)).status_code == 200
        [given] = gateway.peers.last.request.step_input_overrides
        assert (given.step_ref, given.input_json) == ("a", seed)
    response = await gateway.http.post(f"{RUN}:continueAsNew", content='{"seed_run_context": [1]}')
    assert fault(response)[3]["field"] == "seed_run_context"


async def test_answers(gateway: Running) -> None:
    """Short words on REST, full names on Connect; the context of a snapshot is spliced in as it stands."""
    operation = control_pb2.Operation(
        run_id="r1",
        request_id="o/1",
        verb=control_pb2.CONTROL_VERB_CONTINUE_AS_NEW,
        status=control_pb2.OPERATION_STATUS_REJECTED,
        outcome_code="RUN_TERMINAL",
        result={"new_run_id": "r2"},
    )
    gateway.peers.answers["GetOperation"] = api.GetOperationResponse(data=operation)
    told = (await gateway.http.get(f"{RUN}/operations/o%2F1")).json()["data"]
    assert (told["verb"], told["status"], told["outcome_code"]) == ("continue_as_new", "rejected", "RUN_TERMINAL")
    assert told["result"] == {"new_run_id": "r2"}
    connect = await gateway.connect("WorkflowRunControlService/GetOperation", {"runId": "r1", "requestId": "o/1"})
    assert connect.json()["data"]["verb"] == "CONTROL_VERB_CONTINUE_AS_NEW"
    snapshot = control_pb2.RunSnapshot(run_context_json='{"n":9007199254740993}')
    gateway.peers.answers["GetRunSnapshot"] = api.GetRunSnapshotResponse(data=snapshot)
    assert b'"run_context":{"n":9007199254740993}' in (await gateway.http.get(f"{RUN}/snapshot")).content
    assert json.loads((await gateway.http.get(f"{RUN}/snapshot")).content)["data"]["truncated"] is False


@pytest.mark.parametrize(("seconds", "wanted"), [(None, 30), (0, 0), (300, 300), (100_000, 300), (-5, 0)])
async def test_a_wait_has_its_time(seconds: int | None, wanted: float, gateway: Running) -> None:
    """The call may take as long as it asks to wait, and the default when it does not say."""
    query = "" if seconds is None else f"?timeout_seconds={seconds}"
    await gateway.http.get(f"{RUN}/operations/o1:wait{query}")
    seen = gateway.peers.last
    rpc = api.DESCRIPTOR.services_by_name["WorkflowRunControlService"].methods_by_name["WaitOperation"]
    assert patience(rpc, seen.request) == wanted
    assert seen.remaining_s > wanted
