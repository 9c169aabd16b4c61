"""What happens around every RPC, over real sockets: tenants, coded errors, clean fields, what is logged and counted."""

import asyncio
import logging
from functools import partial

import grpc
import pytest
from google.protobuf.struct_pb2 import Value
from google.rpc import error_details_pb2, status_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from ductor.workflow.v1 import task_service_pb2, task_service_pb2_grpc
from ductor.workflow.v1 import workflow_trigger_service_pb2 as trigger_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as trigger_grpc
from ductord.rpc.channels import outgoing
from ductord.rpc.errors import refusal_from, status_from
from tests.rpc.echo import Echo, echoing, refusal_of, until

Completion = task_service_pb2.TaskCompletion
TRIGGER = "/ductor.workflow.v1.WorkflowTriggerService/TriggerWorkflow"


async def test_the_tenant_comes_from_the_metadata_and_has_no_default_n1_tn_01(echo: Echo) -> None:
    assert (await echo.call(tenant="acme")).run_id == "acme"
    assert (await echo.refusal(tenant=None)).reason == "TENANT_REQUIRED"
    for bad in ("", "a b", "a/b", "x" * 65, "a'--", "..", "%00"):
        refusal = await echo.refusal(tenant=bad)
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "TENANT_INVALID"), bad
    two = (("x-tenant-id", "acme"), ("x-tenant-id", "other"))
    stub = trigger_grpc.WorkflowTriggerServiceStub(echo.channel)
    assert (
        await refusal_of(lambda: stub.TriggerWorkflow(trigger_pb2.TriggerWorkflowRequest(), metadata=two))
    ).reason == "TENANT_INVALID"
    assert echo.trigger.callers[-1].actor == "anonymous"
    assert len(echo.trigger.callers) == 1, "a refused call reaches no servicer"


async def test_only_task_service_knows_the_platform_scope_n2(echo: Echo) -> None:
    tasks = task_service_pb2_grpc.TaskServiceStub(echo.channel)
    poll = task_service_pb2.PollTasksRequest()
    assert (await tasks.PollTasks(poll, metadata=outgoing(platform=True))).tasks[0].tenant_id == "(all)"
    assert (await tasks.PollTasks(poll, metadata=outgoing(platform=True, tenant_id="acme"))).tasks[
        0
    ].tenant_id == "acme"
    assert (await tasks.PollTasks(poll, metadata=outgoing(tenant_id="acme"))).tasks[0].tenant_id == "acme"
    assert (await refusal_of(lambda: tasks.PollTasks(poll))).reason == "TENANT_REQUIRED"
    stub = trigger_grpc.WorkflowTriggerServiceStub(echo.channel)
    refusal = await refusal_of(
        lambda: stub.TriggerWorkflow(trigger_pb2.TriggerWorkflowRequest(), metadata=outgoing(platform=True))
    )
    assert refusal.reason == "TENANT_REQUIRED"


async def test_a_refusal_travels_whole_ap_06(echo: Echo) -> None:
    missing = await echo.refusal("missing")
    assert (missing.code, missing.reason, missing.message) == (
        "NOT_FOUND",
        "DEFINITION_NOT_FOUND",
        "there is no such definition",
    )
    archived = await echo.refusal("archived")
    assert (archived.code, archived.metadata) == ("FAILED_PRECONDITION", {"definition_id": "d", "version": "2"})
    assert [(v.code, v.path) for v in archived.violations] == [("DEFINITION_ARCHIVED", "definition_id")]
    away = await echo.refusal("away")
    assert (away.code, away.reason, away.retry_after_ms) == ("UNAVAILABLE", "DATABASE_UNAVAILABLE", 1500)
    assert "10.0.0.1" not in away.message


async def test_details_are_googles_and_name_the_domain_and_the_request(echo: Echo) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await echo.call("missing")
    status = status_from(raised.value)
    info, request = error_details_pb2.ErrorInfo(), error_details_pb2.RequestInfo()
    assert status.details[0].Unpack(info)
    assert status.details[1].Unpack(request)
    assert (info.domain, info.reason) == ("ductor", "DEFINITION_NOT_FOUND")
    assert request.request_id == echo.trigger.callers[-1].request_id


async def test_an_unexpected_error_tells_nothing_but_the_request_id(
    echo: Echo, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await echo.call("boom")
    refusal = refusal_from(raised.value)
    assert (refusal.code, refusal.reason) == ("INTERNAL", "INTERNAL")
    assert "secret" not in str(raised.value.debug_error_string()) + str(status_from(raised.value))
    record = next(r for r in caplog.records if r.name == "ductor.rpc")
    assert record.exc_info is not None
    assert "select secret" in str(record.exc_info[1])


async def test_details_fit_a_default_client_and_are_whole_for_ours(echo: Echo) -> None:
    ours = await echo.refusal("wide")
    assert len(ours.violations) == 500
    assert ours.violations[1].message.startswith("line 1, column 1: no step 1 ")
    async with grpc.aio.insecure_channel(echo.host.grpc_address.reachable) as plain:
        stub = trigger_grpc.WorkflowTriggerServiceStub(plain)
        request = trigger_pb2.TriggerWorkflowRequest(definition_id="wide")
        theirs = await refusal_of(lambda: stub.TriggerWorkflow(request, metadata=(("x-tenant-id", "acme"),)))
    assert theirs.reason == "DEFINITION_INVALID"
    assert 5 < len(theirs.violations) < 500
    assert theirs.metadata["violation_count"] == "500"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"idempotency_key": "a\0b"}, "idempotency_key"),
        (
            {"correlation_labels": [{"key": "order", "id": "1"}, {"key": "order", "id": "\0"}]},
            "correlation_labels[1].id",
        ),
        ({"checkpoint": "\0"}, "checkpoint"),
        ({"input_json": '"\0"'}, "input_json"),
    ],
)
async def test_pl_01_a_nul_in_any_field_is_refused_by_name(echo: Echo, fields: dict[str, object], field: str) -> None:
    refusal = await echo.refusal("x", **fields)
    assert (refusal.code, refusal.reason, refusal.metadata) == ("INVALID_ARGUMENT", "FIELD_INVALID", {"field": field})
    assert echo.trigger.callers == []


async def test_pl_01_a_nul_in_a_payload_is_refused_with_its_path(echo: Echo) -> None:
    value = Value()
    value.struct_value.fields["a"].list_value.values.add().string_value = "x\0y"
    for fields in ({"input": value}, {"input_json": '{"a": ["x\\u0000y"]}'}):
        refusal = await echo.refusal("x", **fields)
        field = next(iter(fields))
        assert (refusal.reason, refusal.metadata) == (
            "PAYLOAD_INVALID",
            {"field": field, "path": f"{field}.a[0]", "problem": "nul"},
        )


async def test_pl_01_what_a_worker_reports_is_left_to_dispatch(echo: Echo) -> None:
    """L6: recording a failure cannot fail; a bad output fails its attempt and not the batch."""
    tasks = task_service_pb2_grpc.TaskServiceStub(echo.channel)
    request = task_service_pb2.CompleteTasksRequest(
        completions=[
            Completion(task_token="t", failure=task_service_pb2.TaskFailure(message="\0boom")),
            Completion(task_token="u", success=task_service_pb2.TaskSuccess(output_json='{"k\0": 1}')),
        ]
    )
    answer = await tasks.CompleteTasks(request, metadata=outgoing(platform=True))
    assert [r.message for r in answer.results] == ["\0boom", '{"k\0": 1}']


async def test_ap_02_an_unknown_enum_number_is_refused(echo: Echo) -> None:
    refusal = await echo.refusal("x", tier=999)
    assert (refusal.reason, refusal.metadata) == ("FIELD_INVALID", {"field": "tier"})
    assert (await echo.call(tier=3)).run_id == "acme"


async def test_bytes_that_are_no_message_are_a_coded_error(echo: Echo) -> None:
    raw = echo.channel.unary_unary(TRIGGER, None, None)
    metadata = outgoing(tenant_id="acme")
    for garbage in (b"\xff\xff\xff", b"\x0a\x05ab", b"\x0a\x02\xff\xfe"):  # a cut field, no UTF-8
        assert (await refusal_of(partial(raw, garbage, metadata=metadata))).reason == "BODY_MALFORMED"
    deep = Value()
    at = deep
    for _ in range(60):
        at = at.list_value.values.add()
    body = b"\x22" + bytes((b := deep.SerializeToString()) and [len(b) & 0x7F | 0x80, len(b) >> 7]) + b
    refusal = await refusal_of(lambda: raw(body, metadata=metadata))
    assert (refusal.reason, refusal.metadata["problem"]) == ("PAYLOAD_INVALID", "too_deep")


async def test_pl_06_a_request_too_large_is_a_coded_error() -> None:
    async with echoing(request_max_bytes=100_000) as echo:
        refusal = await echo.refusal("x" * 150_000)
        assert (refusal.code, refusal.reason, refusal.metadata) == (
            "INVALID_ARGUMENT",
            "REQUEST_TOO_LARGE",
            {"limit_bytes": "100000"},
        )


async def test_ap_06_a_deadline_ends_the_work_of_the_call(echo: Echo, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ductor.access")
    refusal = await echo.refusal("wait", timeout=1.5)
    assert refusal.reason == "DEADLINE_EXCEEDED"
    async with asyncio.timeout(30):
        await echo.trigger.cancelled.wait()
    await until(lambda: any(r.name == "ductor.access" for r in caplog.records))
    line = next(r.__dict__ for r in caplog.records if r.name == "ductor.access")
    assert line["code"] in ("DEADLINE_EXCEEDED", "CANCELLED")


async def test_too_many_calls_at_once_are_refused_and_the_others_go_on() -> None:
    async with echoing(max_calls=1) as echo:
        first = asyncio.ensure_future(echo.call("wait"))
        await echo.trigger.entered.wait()
        refusal = await echo.refusal()
        assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "OVERLOADED")
        assert refusal.retry_after_ms
        echo.trigger.let_go.set()
        assert (await first).run_id == "acme"
        assert (await echo.call()).run_id == "acme"


async def test_what_is_not_served_is_a_coded_error(echo: Echo) -> None:
    stub = trigger_grpc.WorkflowTriggerServiceStub(echo.channel)
    unwritten = await refusal_of(
        lambda: stub.BatchTriggerWorkflow(trigger_pb2.BatchTriggerWorkflowRequest(), metadata=outgoing(tenant_id="a"))
    )
    unknown = await refusal_of(lambda: echo.channel.unary_unary("/no.Such/Rpc", None, None)(b""))
    assert {(r.code, r.reason) for r in (unwritten, unknown)} == {("UNIMPLEMENTED", "RPC_NOT_FOUND")}


async def test_reflection_lists_every_service_and_needs_no_tenant(echo: Echo) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(echo.channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    answers = [answer async for answer in stub.ServerReflectionInfo(iter([request]))]
    names = {service.name for service in answers[0].list_services_response.service}
    assert names >= {
        "ductor.workflow.v1.WorkflowTriggerService",
        "ductor.workflow.v1.TaskService",
        "grpc.health.v1.Health",
    }


async def test_ids_travel_with_the_call(echo: Echo) -> None:
    stub = trigger_grpc.WorkflowTriggerServiceStub(echo.channel)
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    metadata = outgoing(tenant_id="acme", request_id="from-the-gateway", traceparent=trace)
    await stub.TriggerWorkflow(trigger_pb2.TriggerWorkflowRequest(), metadata=metadata)
    caller = echo.trigger.callers[-1]
    assert (caller.request_id, caller.trace_id) == ("from-the-gateway", "0af7651916cd43dd8448eb211c80319c")
    for bad in ("x" * 65, "a b", "a\nb"):
        pairs = (("x-tenant-id", "acme"), ("x-request-id", bad), ("traceparent", "00-zz"))
        if "\n" not in bad:
            await stub.TriggerWorkflow(trigger_pb2.TriggerWorkflowRequest(), metadata=pairs)
            caller = echo.trigger.callers[-1]
            assert len(caller.request_id) == len(caller.trace_id) == 32


async def test_access_log_and_metrics_name_method_and_code_ob_01(echo: Echo, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ductor.access")
    await echo.call(tenant="acme")
    await echo.refusal("missing", tenant="other")
    lines = [r.__dict__ for r in caplog.records if r.name == "ductor.access"]
    assert [(line["method"], line["code"], line["reason"], line["peer"]) for line in lines] == [
        ("WorkflowTriggerService/TriggerWorkflow", "OK", "", "127.0.0.1"),
        ("WorkflowTriggerService/TriggerWorkflow", "NOT_FOUND", "DEFINITION_NOT_FOUND", "127.0.0.1"),
    ]
    text = echo.host.metrics.exposition().decode()
    assert 'ductor_grpc_calls_total{code="NOT_FOUND",method="WorkflowTriggerService/TriggerWorkflow"} 1.0' in text
    assert "acme" not in text
    for number in range(30):
        await refusal_of(partial(echo.channel.unary_unary(f"/ductor.workflow.v1.X{number}/Y", None, None), b""))
    assert echo.host.metrics.exposition().decode().count("\n") == text.count("\n"), (
        "paths that are not served make no series"
    )


async def test_workers_that_poll_are_logged_at_debug_only(echo: Echo, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "ductor.access")
    tasks = task_service_pb2_grpc.TaskServiceStub(echo.channel)
    await tasks.PollTasks(task_service_pb2.PollTasksRequest(), metadata=outgoing(platform=True))
    assert not [r for r in caplog.records if r.name == "ductor.access"]


def test_a_status_without_details_is_judged_by_its_code() -> None:
    error = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "failed to connect", None
    )
    assert refusal_from(error).reason == "SERVICE_UNAVAILABLE"
    assert isinstance(status_from(error), status_pb2.Status)
