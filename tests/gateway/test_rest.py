"""The REST door over real sockets: what reaches the services of a path, a query and a body (AP-01, AP-02, AP-05, L1)."""

import json
from typing import Any

import pytest

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from tests.gateway.peers import Running, fault

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRIGGER = "/api/v2/workflow-definitions/d1:trigger"
RUN = "/api/workflows/runs/r1"


async def test_the_guides_trigger_reaches_the_service_field_by_field(gateway: Running) -> None:
    gateway.peers.answers["TriggerWorkflow"] = triggers.TriggerWorkflowResponse(
        run_id="r1", status=run_pb2.RUN_STATUS_PENDING
    )
    body = {
        "subject_type": "lead",
        "subject_id": "lead-123",
        "input": {"email": "prospect@example.com", "source": "webinar"},
        "wait_for_checkpoint": False,
        "idempotency_key": "lead-123-signup",
        "correlation_labels": [{"key": "conversation", "id": "conversation-42"}],
    }
    response = await gateway.http.post(TRIGGER, json=body)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert (response.json()["run_id"], response.json()["status"]) == ("r1", "pending")
    asked = gateway.peers.last.request
    assert (asked.definition_id, asked.subject_id, asked.idempotency_key) == ("d1", "lead-123", "lead-123-signup")
    assert json.loads(asked.input_json) == body["input"]
    assert [(label.key, label.id) for label in asked.correlation_labels] == [("conversation", "conversation-42")]
    assert asked.payload_format == common_pb2.PAYLOAD_FORMAT_JSON


async def test_an_empty_body_is_an_empty_object(gateway: Running) -> None:
    for content in (b"", b"{}", b" \n"):
        assert (await gateway.http.post("/api/workflow-definitions/d1/publish", content=content)).status_code == 200
        assert gateway.peers.last.request.id == "d1"


async def test_query_parameters_reach_the_service(gateway: Running) -> None:
    created = "2026-07-11T13:10:00%2B02:00"
    flags = "activeOnly=true&has_errors=false&page_size=5&workflow_type="
    query = f"label=a:1&label=b%3A2&status=running&{flags}&created_after={created}&subject_id=x+y"
    assert (await gateway.http.get(f"/api/workflows/runs?{query}")).status_code == 200
    assert gateway.peers.last.request == reads.ListRunsRequest(
        label=["a:1", "b:2"],
        status=run_pb2.RUN_STATUS_RUNNING,
        active_only=True,
        has_errors=False,
        page_size=5,
        created_after={"seconds": 1783768200},  # type: ignore[arg-type]  # a tree for a message
        subject_id="x y",
    )


@pytest.mark.parametrize(
    ("query", "reason", "field"),
    [
        ("nope=1", "FIELD_UNKNOWN", "nope"),
        ("status=RUNNING", "FIELD_INVALID", "status"),
        ("status=999", "FIELD_INVALID", "status"),
        ("status=", "FIELD_INVALID", "status"),
        ("page_size=5.0", "FIELD_INVALID", "page_size"),
        ("page_size=99999999999", "FIELD_INVALID", "page_size"),
        ("active_only=1", "FIELD_INVALID", "active_only"),
        ("created_after=yesterday", "FIELD_INVALID", "created_after"),
        ("created_after.seconds=1", "FIELD_UNKNOWN", 'created_after.seconds'),
        ("page_size=1&page_size=2", "FIELD_DUPLICATE", "page_size"),
        ("page_size=1&pageSize=1", "FIELD_DUPLICATE", "pageSize"),
        ("subject_id=%ff", "FIELD_INVALID", "subject_id"),
        ("subject_id=%zz", "FIELD_INVALID", "subject_id"),
        ("subject_id=%00", "FIELD_INVALID", "subject_id"),
    ],
)  # fmt: skip
async def test_ap_01_a_query_is_judged_as_strictly_as_a_body(
    gateway: Running, query: str, reason: str, field: str
) -> None:
    status, code, told, metadata = fault(await gateway.http.get(f"/api/workflows/runs?{query}"))
    assert (status, code, told) == (400, "INVALID_ARGUMENT", reason)
    assert metadata["field"] in (field, f'["{field}"]')


async def test_ap_01_a_lost_idempotency_key_is_an_error(gateway: Running) -> None:
    response = await gateway.http.post(TRIGGER, json={"idempotencykey": "k"})
    assert fault(response) == (400, "INVALID_ARGUMENT", "FIELD_UNKNOWN", {"field": "idempotencykey"})
    assert "did you mean `idempotency_key`?" in response.json()["error"]["message"]
    response = await gateway.http.patch("/api/workflow-definitions/d1/draft", json={"expected_draft_revison": 1})
    assert fault(response)[3] == {"field": "expected_draft_revison"}
    assert gateway.peers.calls == []


async def test_ap_01_a_query_beside_a_body_and_a_body_beside_a_query_are_refused(gateway: Running) -> None:
    assert fault(await gateway.http.post(f"{TRIGGER}?idempotency_key=k", json={}))[3] == {"field": "idempotency_key"}
    response = await gateway.http.request(
        "DELETE", "/api/workflow-definitions/d1/draft", json={"expected_draft_revision": 3}
    )
    assert fault(response)[:3] == (400, "INVALID_ARGUMENT", "BODY_MALFORMED")
    assert gateway.peers.calls == []
    await gateway.http.delete("/api/workflow-definitions/d1/draft?expected_draft_revision=3")
    assert gateway.peers.last.request.expected_draft_revision == 3


async def test_a_field_of_the_path_is_not_given_otherwise_by_body_or_query(gateway: Running) -> None:
    assert (await gateway.http.post(TRIGGER, json={"definition_id": "d1"})).status_code == 200
    assert fault(await gateway.http.post(TRIGGER, json={"definition_id": "d2"}))[2:] == (
        "FIELD_DUPLICATE",
        {"field": "definition_id"},
    )
    assert fault(await gateway.http.get(f"{RUN}?run_id=r2"))[2:] == ("FIELD_DUPLICATE", {"field": "run_id"})


@pytest.mark.parametrize("word", ["STEP_TYPE_ACTION", "action", 1])
async def test_ap_02_the_spellings_that_rest_reads(gateway: Running, word: Any) -> None:
    body = {"family_slug": "f", "steps": [{"ref": "a", "type": word}]}
    assert (await gateway.http.post("/api/workflow-definitions", json=body)).status_code == 200
    assert gateway.peers.last.request.steps[0].type == 1


@pytest.mark.parametrize("word", ["ACTION", "step_type_action", 999, "STEP_TYPE_NOPE"])
async def test_ap_02_any_other_spelling_is_400_and_names_the_field(gateway: Running, word: Any) -> None:
    body = {"family_slug": "f", "steps": [{"ref": "a", "type": word}]}
    response = await gateway.http.post("/api/workflow-definitions", json=body)
    assert fault(response) == (400, "INVALID_ARGUMENT", "FIELD_INVALID", {"field": "steps[0].type"})


async def test_l1_a_step_type_that_is_not_built_yet(gateway: Running) -> None:
    body = {"family_slug": "f", "steps": [{"ref": "w", "type": "bridge", "bridge": {"url": "x"}}]}
    response = await gateway.http.post("/api/workflow-definitions", json=body)
    assert fault(response) == (400, "INVALID_ARGUMENT", "DEFINITION_INVALID", {"violation_count": "1"})
    [bad] = [d for d in response.json()["error"]["details"] if "field_violations" in d]
    assert [(v["field"], v["reason"]) for v in bad["field_violations"]] == [
        ("steps[0].type", "STEP_TYPE_NOT_SUPPORTED")
    ]


@pytest.mark.parametrize(
    ("segment", "ref"),
    [("a%3Aapprove", "a:approve"), ("a%2Fb", "a/b"), ("a%253Ab", "a%3Ab"), ("%C3%A4", "ä"), ("%2E%2E", "..")],
)
async def test_ap_05_ids_with_special_characters_arrive_as_they_are(gateway: Running, segment: str, ref: str) -> None:
    assert (await gateway.http.get(f"{RUN}/steps/{segment}")).status_code == 200
    assert gateway.peers.last.request.step_id == ref


async def test_ap_05_unknown_paths_verbs_and_methods(gateway: Running) -> None:
    for path in (
        "/nope",
        "/",
        f"{RUN}:explode",
        f"{RUN}/steps/a:approve",
        "/api/workflow-definitions/",
        f"{RUN}/steps/a/b",
    ):
        assert fault(await gateway.http.get(path))[:3] == (404, "NOT_FOUND", "ROUTE_NOT_FOUND"), path
    response = await gateway.http.get(TRIGGER)
    assert fault(response) == (405, "UNIMPLEMENTED", "METHOD_NOT_ALLOWED", {"allow": "POST"})
    assert response.headers["allow"] == "POST"
    response = await gateway.http.delete("/api/workflow-definitions")
    assert response.headers["allow"] == "GET, POST"
    assert (await gateway.http.options("/api/workflow-definitions")).status_code == 405
    assert (await gateway.http.head(RUN)).status_code == 200
    assert fault(await gateway.http.get(f"{RUN}/steps/%ff"))[3] == {"field": "step_id"}
