"""The REST door over real sockets: content types, sizes, tenants, ids and deadlines (AP-06, TN-01)."""

import asyncio
from typing import Any

import httpx
import pytest

from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.gateway.backends import BACKENDS
from ductord.gateway.routing import Routes
from ductord.rpc.errors import refused
from tests.gateway.peers import Running, about, fault, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRIGGER = "/api/v2/workflow-definitions/d1:trigger"
RUN = "/api/workflows/runs/r1"


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
        ("grpc-timeout", "50S", 50),
        ("grpc-timeout", "70000m", 70),
        ("connect-timeout-ms", "50000", 50),
        ("x-request-timeout", "27.5", 27.5),
        ("x-request-timeout", "9.9", 9.9),
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
        ({"wait_for_checkpoint": True, "checkpoint_timeout_seconds": 0}, 60),
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
    async with asyncio.timeout(60):
        await entered.wait()
        call.cancel()
        await ended.wait()


async def test_a_long_wait_is_answered(gateway: Running) -> None:
    gateway.peers.answers["TriggerWorkflow"] = triggers.TriggerWorkflowResponse(run_id="r1", checkpoint_reached=True)
    response = await gateway.http.post(TRIGGER, json={"wait_for_checkpoint": True})
    assert response.json()["checkpoint_reached"] is True
    gateway.peers.answers["TriggerWorkflow"] = refused("RUN_NOT_FOUND", "no")
    assert fault(await gateway.http.post(TRIGGER, json={"wait_for_checkpoint": True}))[0] == 404
