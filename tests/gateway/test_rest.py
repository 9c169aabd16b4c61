"""The REST door over real sockets: what reaches the services, what comes back (AP-01, AP-02, AP-05, AP-06, PL-03, PL-04, TN-01, L5, L6)."""

import asyncio
import json
from typing import Any

import httpx
import pytest

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.gateway.statuses import HTTP
from ductord.model.errors import Violation
from ductord.model.jsonvalue import parse
from ductord.rpc.errors import refused
from ductord.rpc.payloads import payload_of
from tests.gateway.peers import Running, about, fault, running

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
    body = {"family_slug": "f", "steps": [{"ref": "w", "type": "wait", "wait": {"duration": "5s"}}]}
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


CODES = {
    "INVALID_ARGUMENT": ("FIELD_INVALID", 400), "FAILED_PRECONDITION": ("DEFINITION_ARCHIVED", 400), "UNAUTHENTICATED": ("CREDENTIAL_INVALID", 401),
    "PERMISSION_DENIED": ("TENANT_MISMATCH", 403), "NOT_FOUND": ("RUN_NOT_FOUND", 404), "ALREADY_EXISTS": ("IDEMPOTENCY_MISMATCH", 409),
    "ABORTED": ("DRAFT_REVISION_MISMATCH", 409), "RESOURCE_EXHAUSTED": ("OVERLOADED", 429), "CANCELLED": ("CANCELLED", 499), "INTERNAL": ("INTERNAL", 500),
    "UNIMPLEMENTED": ("FEATURE_NOT_SUPPORTED", 501), "UNAVAILABLE": ("DATABASE_UNAVAILABLE", 503), "DEADLINE_EXCEEDED": ("DEADLINE_EXCEEDED", 504),
}  # fmt: skip


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


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "Application/JSON;charset=UTF-8",
        "",
        "application/x-www-form-urlencoded",
    ],
)
async def test_content_types_that_are_read_as_json(gateway: Running, content_type: str) -> None:
    response = await gateway.http.post(
        TRIGGER, content='{"subject_id": "1"}', headers={"content-type": content_type} if content_type else {}
    )
    assert response.status_code == 200
    assert gateway.peers.last.request.subject_id == "1"


@pytest.mark.parametrize(
    "headers",
    [{"content-type": "text/plain"}, {"content-type": "application/xml"}, {"content-type": "application/json; charset=latin-1"},
     {"content-type": "multipart/form-data; boundary=x"}, {"content-type": "application/json", "content-encoding": "gzip"}],
)  # fmt: skip
async def test_other_content_types_are_refused_by_name(gateway: Running, headers: dict[str, str]) -> None:
    status, code, reason, metadata = fault(await gateway.http.post(TRIGGER, content="{}", headers=headers))
    assert (status, code, reason) == (400, "INVALID_ARGUMENT", "CONTENT_TYPE_UNSUPPORTED")
    assert metadata["content_type"] in headers.values()


async def test_a_request_over_the_limit_is_refused_whether_its_length_is_told_or_not() -> None:
    async def chunks() -> Any:
        for _ in range(40):
            yield b" " * 1_000

    async with running(request_max_bytes=20_000) as gateway:
        for content in (b" " * 20_001, chunks()):
            response = await gateway.http.post(TRIGGER, content=content)
            assert fault(response) == (400, "INVALID_ARGUMENT", "REQUEST_TOO_LARGE", {"limit_bytes": "20000"})
        assert (await gateway.http.post(TRIGGER, content=b"{}" + b" " * 19_000)).status_code == 200


async def test_tn_01_every_route_names_the_tenant_to_its_service_and_none_works_without(gateway: Running) -> None:
    from ductord.gateway.backends import BACKENDS
    from ductord.gateway.routing import Routes

    routes = Routes(backend.service for backend in BACKENDS).all
    assert len(routes) >= 18
    for route in routes:
        path = route.template
        for variable in route.variables:
            path = path.replace(f"{{{variable}}}", "foreign")
        response = await gateway.http.request(route.http_method, path)
        assert response.status_code == 200, route.template
        assert (gateway.peers.last.rpc, gateway.peers.last.caller.tenant_id) == (route.rpc.name, "acme")
        for headers in (httpx.Headers(), httpx.Headers({"x-tenant-id": ""})):
            async with httpx.AsyncClient(base_url=gateway.http.base_url) as nobody:
                response = await nobody.request(route.http_method, path, headers=headers)
                assert response.status_code == 400
                assert fault(response)[2] in ("TENANT_REQUIRED", "TENANT_INVALID")


async def test_a_tenant_is_named_once_and_well(gateway: Running) -> None:
    async with httpx.AsyncClient(base_url=gateway.http.base_url) as http:
        for tenants in ([b"acme", b"evil"], [b"\xc3\xa4"], [b"a" * 65], [b"a b"], [b"a" * 9_000]):
            response = await http.get(RUN, headers=[(b"x-tenant-id", tenant) for tenant in tenants])
            assert fault(response)[:3] == (400, "INVALID_ARGUMENT", "TENANT_INVALID")
        assert (await http.get(RUN, headers=[("x-tenant-id", "acme"), ("x-tenant-id", "acme")])).status_code == 200
        for credentials in (["Bearer a", "Bearer b"], ["x" * 9_000]):
            response = await http.get(
                RUN, headers=[("x-tenant-id", "acme"), *(("authorization", c) for c in credentials)]
            )
            assert fault(response)[:3] == (401, "UNAUTHENTICATED", "CREDENTIAL_INVALID")
            assert response.headers["www-authenticate"] == "Bearer"


async def test_the_headers_that_travel_and_those_that_do_not(gateway: Running) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    headers = {
        "authorization": "Bearer k",
        "x-request-id": "req-1",
        "traceparent": trace,
        "tracestate": "a=b",
        "x-ductor-scope": "platform",
        "cookie": "c",
    }
    response = await gateway.http.get(RUN, headers=headers)
    assert response.headers["x-request-id"] == "req-1"
    seen = gateway.peers.last
    assert seen.metadata["authorization"] == "Bearer k"
    assert (seen.caller.request_id, seen.caller.trace_id) == ("req-1", trace[3:35])
    assert "x-ductor-scope" not in seen.metadata
    assert "cookie" not in seen.metadata
    response = await gateway.http.get(RUN, headers=[(b"x-request-id", b"a b\xc3\xa4" * 50), (b"traceparent", b"junk")])
    assert response.headers["x-request-id"] == gateway.peers.last.caller.request_id
    assert len(response.headers["x-request-id"]) == 32


async def test_answers_are_not_for_caches(gateway: Running) -> None:
    for path in (RUN, "/nope"):
        headers = (await gateway.http.get(path)).headers
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")


@pytest.mark.parametrize(
    ("header", "value", "seconds"),
    [
        ("grpc-timeout", "5S", 5),
        ("grpc-timeout", "7000m", 7),
        ("connect-timeout-ms", "5000", 5),
        ("x-request-timeout", "2.5", 2.5),
        ("x-request-timeout", "0.9", 0.9),
    ],
)
async def test_ap_06_the_callers_deadline_reaches_the_service(
    gateway: Running, header: str, value: str, seconds: float
) -> None:
    assert (await gateway.http.get(RUN, headers={header: value})).status_code == 200
    assert gateway.peers.last.remaining_s == about(seconds)


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("grpc-timeout", "5"),
        ("grpc-timeout", "-5S"),
        ("connect-timeout-ms", "1e3"),
        ("x-request-timeout", "soon"),
        ("x-request-timeout", ""),
    ],
)
async def test_ap_06_a_deadline_that_is_none_is_refused(gateway: Running, header: str, value: str) -> None:
    assert fault(await gateway.http.get(RUN, headers={header: value}))[2:] == ("FIELD_INVALID", {"field": header})


async def test_ap_06_a_deadline_that_passes_is_504(gateway: Running) -> None:
    async def never(request: Any) -> None:
        await asyncio.Event().wait()

    gateway.peers.answers["GetRun"] = never
    assert fault(await gateway.http.get(RUN, headers={"grpc-timeout": "50m"}))[:3] == (
        504,
        "DEADLINE_EXCEEDED",
        "DEADLINE_EXCEEDED",
    )
    assert fault(await gateway.http.get(RUN, headers={"x-request-timeout": "0"}))[:3] == (
        504,
        "DEADLINE_EXCEEDED",
        "DEADLINE_EXCEEDED",
    )


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ({}, 30),
        ({"wait_for_checkpoint": True}, 60),
        ({"wait_for_checkpoint": True, "checkpoint_timeout_seconds": 300}, 330),
        ({"wait_for_checkpoint": True, "checkpoint_timeout_seconds": 1_000_000_000}, 330),
        ({"wait_for_checkpoint": True, "checkpoint_timeout_seconds": 0}, 30),
    ],
)
async def test_ap_06_a_call_has_the_time_that_it_asks_to_wait(
    gateway: Running, body: dict[str, Any], seconds: float
) -> None:
    await gateway.http.post(TRIGGER, json=body)
    assert gateway.peers.last.remaining_s == about(seconds)


async def test_a_long_wait_ends_with_its_caller(gateway: Running) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    gateway.peers.answers["TriggerWorkflow"] = wait
    call = asyncio.create_task(
        gateway.http.post(TRIGGER, json={"wait_for_checkpoint": True, "checkpoint_timeout_seconds": 300})
    )
    async with asyncio.timeout(10):
        await entered.wait()
        call.cancel()
        await ended.wait()


async def test_a_long_wait_is_answered(gateway: Running) -> None:
    gateway.peers.answers["TriggerWorkflow"] = triggers.TriggerWorkflowResponse(run_id="r1", checkpoint_reached=True)
    response = await gateway.http.post(TRIGGER, json={"wait_for_checkpoint": True})
    assert response.json()["checkpoint_reached"] is True
    gateway.peers.answers["TriggerWorkflow"] = refused("RUN_NOT_FOUND", "no")
    assert fault(await gateway.http.post(TRIGGER, json={"wait_for_checkpoint": True}))[0] == 404
