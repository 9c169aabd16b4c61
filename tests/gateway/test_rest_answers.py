"""The REST door over real sockets: errors and payloads as they come back (AP-06, PL-03, PL-04)."""

from typing import Any

import pytest

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.gateway.statuses import HTTP
from ductord.model.errors import Violation
from ductord.model.jsonvalue import parse
from ductord.rpc.errors import refused
from ductord.rpc.payloads import payload_of
from tests.gateway.peers import CODES, Running, fault

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRIGGER = "/api/v2/workflow-definitions/d1:trigger"
RUN = "/api/workflows/runs/r1"


@pytest.mark.parametrize("code", CODES)
async def test_ap_06_the_one_table_of_codes(gateway: Running, code: str) -> None:
    reason, http = CODES[code]
    gateway.peers.answers["GetRun"] = refused(reason, "it is so", field="run_id")
    response = await gateway.http.get(RUN)
    assert fault(response)[:3] == (http, code, reason)
    assert response.json()["error"]["message"] == "it is so"
    assert HTTP[code] == http


async def test_a_services_details_are_shown_with_their_types(gateway: Running) -> None:
    violations = [Violation(code="CYCLE", message="a leads to a", path="edges[0]")]
    gateway.peers.answers["PublishWorkflowDefinition"] = refused(
        "DEFINITION_INVALID", "no", violations=violations, violation_count=1
    )
    response = await gateway.http.post("/api/workflow-definitions/d1/publish")
    details = {d["@type"].rpartition(".")[2]: d for d in response.json()["error"]["details"]}
    assert details["BadRequest"]["field_violations"] == [
        {"field": "edges[0]", "reason": "CYCLE", "description": "a leads to a"}
    ]
    assert details["RequestInfo"]["request_id"] == response.headers["x-request-id"]
    gateway.peers.answers["GetRun"] = refused("SERVICE_DRAINING", "stopping", retry_after_ms=1_500)
    response = await gateway.http.get(RUN)
    assert response.headers["retry-after"] == "2"
    assert {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retry_delay": "1.500s"} in response.json()["error"][
        "details"
    ]


async def test_nothing_of_an_unexpected_exception_reaches_the_caller(gateway: Running) -> None:
    gateway.peers.answers["GetRun"] = ValueError("select secret from payload")
    response = await gateway.http.get(RUN)
    assert fault(response)[:3] == (500, "INTERNAL", "INTERNAL")
    assert "secret" not in response.text


async def test_pl_03_integers_go_through_exactly_or_are_refused(gateway: Running) -> None:
    def echo(request: Any) -> Any:
        payload = payload_of(request, "input")
        return reads.GetRunResponse(data=run_pb2.RunDetail(input_json=payload.text if payload else None))

    gateway.peers.answers["TriggerWorkflow"] = lambda request: triggers.TriggerWorkflowResponse(
        response_group_output_json=echo(request).data.input_json
    )
    response = await gateway.http.post(
        TRIGGER, content='{"input": {"id":9007199254740993,"least":-9223372036854775808}}'
    )
    assert b'"response_group_output":{"id":9007199254740993,"least":-9223372036854775808}' in response.content
    response = await gateway.http.post(TRIGGER, content='{"input": {"big":18446744073709551616}}')
    assert fault(response)[:3] == (400, "INVALID_ARGUMENT", "PAYLOAD_INVALID")
    assert fault(response)[3] == {"field": "input", "path": "input.big", "problem": "integer_range"}
    assert "input_json" not in response.text


async def test_a_services_error_about_a_twin_is_told_in_the_callers_words(gateway: Running) -> None:
    def judge(request: Any) -> Any:
        for index, item in enumerate(request.items):
            parse(item.input_json, root=f"items[{index}].input_json")

    gateway.peers.answers["BatchTriggerWorkflow"] = judge
    items = [{"input": {"input_json": 1}}, {"input": {"input_json": "\0"}}]
    response = await gateway.http.post("/api/v2/workflow-definitions/d1:batchTrigger", json={"items": items})
    assert fault(response)[3]["path"] == "items[1].input.input_json"
    assert response.json()["error"]["message"].startswith("items[1].input.input_json ")
    response = await gateway.http.post(
        "/api/v2/workflow-definitions/d1:batchTrigger", json={"items": [{"input_json": "[1"}]}
    )
    assert fault(response)[3]["path"] == "items[0].input_json"


async def test_the_errors_of_a_batchs_items_are_told_in_the_callers_words_too(gateway: Running) -> None:
    def judge(request: Any) -> Any:
        results = []
        for item in request.items:
            error = triggers.BatchTriggerError(
                message="input_json.a holds a NUL character", metadata={"field": "input_json", "path": "input_json.a"}
            )
            results.append(triggers.BatchTriggerResult(error=error if item.input_json else None))
        return triggers.BatchTriggerWorkflowResponse(results=results)

    gateway.peers.answers["BatchTriggerWorkflow"] = judge
    items = [{"input": {"a": "\0"}}, {}, {"input_json": "x"}]
    response = await gateway.http.post("/api/v2/workflow-definitions/d1:batchTrigger", json={"items": items})
    first, second, third = (result["error"] for result in response.json()["results"])
    assert (first["message"], first["metadata"]) == (
        "input.a holds a NUL character",
        {"field": "input", "path": "input.a"},
    )
    assert second is None
    assert third["metadata"]["path"] == "input_json.a"


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity"])
async def test_pl_04_nan_is_refused_with_its_path(gateway: Running, literal: str) -> None:
    response = await gateway.http.post(TRIGGER, content=f'{{"input": {{"x": {literal}}}}}')
    assert fault(response) == (
        400,
        "INVALID_ARGUMENT",
        "PAYLOAD_INVALID",
        {"field": "input", "path": "input.x", "problem": "nan"},
    )


async def test_pl_04_a_number_beyond_a_double_is_refused_with_its_path(gateway: Running) -> None:
    gateway.peers.answers["TriggerWorkflow"] = lambda request: payload_of(request, "input")
    response = await gateway.http.post(TRIGGER, content='{"input": {"x": 1e999}}')
    assert fault(response)[3] == {"field": "input", "path": "input.x", "problem": "nan"}
