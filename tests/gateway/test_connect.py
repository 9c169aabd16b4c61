"""The Connect door over real sockets, by hand and by the generated clients: Connect and gRPC-Web (AP-01, AP-02, AP-06, PL-03, PL-04)."""

import asyncio
import base64
import gzip
import json
from typing import Any

import httpx
import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.protocol import ProtocolType
from google.rpc import error_details_pb2

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import task_service_pb2 as tasks
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductor.workflow.v1.task_service_connect import TaskServiceClient
from ductor.workflow.v1.workflow_service_connect import WorkflowServiceClient
from ductor.workflow.v1.workflow_trigger_service_connect import WorkflowTriggerServiceClient
from ductord.gateway.backends import BACKENDS
from ductord.gateway.statuses import HTTP
from ductord.rpc.errors import refused
from ductord.rpc.payloads import payload_of
from tests.gateway.peers import CODES, Running, about, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRIGGER = "WorkflowTriggerService/TriggerWorkflow"
GET_RUN = "WorkflowService/GetRun"
PROTOCOLS = pytest.mark.parametrize(
    "protocol", [ProtocolType.CONNECT, ProtocolType.GRPC_WEB], ids=lambda p: p.name.lower()
)

ACME = {"x-tenant-id": "acme"}


def fault(response: httpx.Response) -> tuple[int, str, str, dict[str, str]]:
    """(HTTP status, code, reason, metadata) of a Connect error, whose shape is checked."""
    error = response.json()
    assert set(error) <= {"code", "message", "details"}
    assert error["message"]
    [info] = [d for d in error["details"] if d["type"] == "google.rpc.ErrorInfo"]
    detail = error_details_pb2.ErrorInfo.FromString(base64.b64decode(info["value"] + "=="))
    assert detail.domain == "ductor"
    return response.status_code, error["code"], detail.reason, dict(detail.metadata)


def reason_of(error: ConnectError) -> str:
    """The reason in a client's error."""
    [info] = [d for d in error.details if d.type_name == "google.rpc.ErrorInfo"]
    return str(error_details_pb2.ErrorInfo.FromString(info.message_bytes).reason)


def address(gateway: Running) -> str:
    """Where the generated clients find the gateway."""
    return str(gateway.http.base_url).rstrip("/")


async def test_canonical_proto_json_goes_both_ways(gateway: Running) -> None:
    gateway.peers.answers["TriggerWorkflow"] = triggers.TriggerWorkflowResponse(
        run_id="r1", status=run_pb2.RUN_STATUS_PENDING
    )
    response = await gateway.connect(
        TRIGGER, {"definitionId": "d1", "subjectId": "1", "tier": "TIER_BULK", "input": {"a": [1]}}
    )
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert response.json() == {"runId": "r1", "status": "RUN_STATUS_PENDING"}
    asked = gateway.peers.last.request
    assert (asked.definition_id, asked.tier, json.loads(asked.input_json)) == ("d1", common_pb2.TIER_BULK, {"a": [1]})


@PROTOCOLS
async def test_generated_clients_reach_every_service_in_either_protocol(
    gateway: Running, protocol: ProtocolType
) -> None:
    gateway.peers.answers["PollTasks"] = tasks.PollTasksResponse(
        tasks=[tasks.Task(task_token="t", input_json='{"a":1}')]
    )
    gateway.peers.answers["GetRun"] = lambda request: reads.GetRunResponse(
        data=run_pb2.RunDetail(input_json="1", summary=run_pb2.RunSummary(run_id=request.run_id))
    )
    async with TaskServiceClient(address(gateway), protocol=protocol) as client:
        answer = await client.poll_tasks(tasks.PollTasksRequest(queues=["q"], wait_ms=5), headers=ACME)
        assert answer.tasks[0].input_json == '{"a":1}'
        assert gateway.peers.last.caller.tenant_id == "acme"
    async with WorkflowServiceClient(address(gateway), protocol=protocol) as reader:
        run = await reader.get_run(reads.GetRunRequest(run_id="r1"), headers=ACME)
        assert run.data.summary.run_id == "r1"
        assert (
            gateway.peers.last.request.payload_format == common_pb2.PAYLOAD_FORMAT_UNSPECIFIED
        )  # the binary form is passed on as it is


@PROTOCOLS
async def test_errors_reach_generated_clients_with_their_details(gateway: Running, protocol: ProtocolType) -> None:
    gateway.peers.answers["TriggerWorkflow"] = refused(
        "IDEMPOTENCY_MISMATCH", "the key was used otherwise", run_id="r0"
    )
    async with WorkflowTriggerServiceClient(address(gateway), protocol=protocol) as client:
        with pytest.raises(ConnectError, match="the key was used otherwise") as raised:
            await client.trigger_workflow(triggers.TriggerWorkflowRequest(definition_id="d1"), headers=ACME)
        assert raised.value.code is Code.ALREADY_EXISTS
        assert reason_of(raised.value) == "IDEMPOTENCY_MISMATCH"
        gateway.peers.answers["TriggerWorkflow"] = ValueError("select secret from payload")
        with pytest.raises(ConnectError) as unexpected:
            await client.trigger_workflow(triggers.TriggerWorkflowRequest(), headers=ACME)
        assert (unexpected.value.code, reason_of(unexpected.value)) == (Code.INTERNAL, "INTERNAL")
        assert "secret" not in unexpected.value.message


@PROTOCOLS
async def test_ap_06_deadlines_of_generated_clients(gateway: Running, protocol: ProtocolType) -> None:
    async def never(request: Any) -> None:
        await asyncio.Event().wait()

    async with WorkflowServiceClient(address(gateway), protocol=protocol) as client:
        await client.get_run(reads.GetRunRequest(), headers=ACME, timeout_ms=5_000)
        assert gateway.peers.last.remaining_s == about(5)
        gateway.peers.answers["GetRun"] = never
        with pytest.raises(ConnectError) as raised:
            await client.get_run(reads.GetRunRequest(), headers=ACME, timeout_ms=100)
        assert raised.value.code is Code.DEADLINE_EXCEEDED


async def test_ap_06_a_deadline_that_passes_is_told_with_its_reason(gateway: Running) -> None:
    async def never(request: Any) -> None:
        await asyncio.Event().wait()

    gateway.peers.answers["GetRun"] = never
    response = await gateway.connect(GET_RUN, {}, connect_timeout_ms="50")
    assert fault(response)[:3] == (504, "deadline_exceeded", "DEADLINE_EXCEEDED")
    for bad in ("-1", "1e3", "soon", "99999999999"):
        response = await gateway.connect(GET_RUN, {}, connect_timeout_ms=bad)
        assert fault(response) == (400, "invalid_argument", "FIELD_INVALID", {"field": "connect-timeout-ms"})


async def test_ap_06_a_call_has_the_time_that_it_asks_to_wait(gateway: Running) -> None:
    await gateway.connect(TRIGGER, {"waitForCheckpoint": True, "checkpointTimeoutSeconds": 300})
    assert gateway.peers.last.remaining_s == about(330)
    await gateway.connect("TaskService/PollTasks", {"waitMs": 20_000})
    assert gateway.peers.last.remaining_s == about(50)


async def test_a_long_wait_ends_with_its_caller(gateway: Running) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    gateway.peers.answers["PollTasks"] = wait
    call = asyncio.create_task(gateway.connect("TaskService/PollTasks", {"waitMs": 20_000}))
    async with asyncio.timeout(60):
        await entered.wait()
        call.cancel()
        await ended.wait()


@pytest.mark.parametrize("code", CODES)
async def test_ap_06_the_one_table_of_codes(gateway: Running, code: str) -> None:
    reason, http = CODES[code]
    gateway.peers.answers["GetRun"] = refused(reason, "it is so", field="run_id")
    response = await gateway.connect(GET_RUN, {})
    word = "canceled" if code == "CANCELLED" else code.lower()
    assert fault(response)[:3] == (http, word, reason)
    assert HTTP[code] == http


async def test_ap_01_unknown_and_repeated_fields_are_refused_as_on_rest(gateway: Running) -> None:
    response = await gateway.connect(TRIGGER, {"idempotencykey": "k"})
    assert fault(response) == (400, "invalid_argument", "FIELD_UNKNOWN", {"field": "idempotencykey"})
    assert "did you mean `idempotencyKey`?" in response.json()["message"]
    assert fault(await gateway.connect(TRIGGER, '{"subjectId": "1", "subject_id": "1"}'))[2] == "FIELD_DUPLICATE"
    assert fault(await gateway.connect(TRIGGER, '{"subjectId": "1", "subjectId": "1"}'))[2] == "FIELD_DUPLICATE"
    assert fault(await gateway.connect(TRIGGER, '{"subjectId": '))[2] == "BODY_MALFORMED"
    assert gateway.peers.calls == []


async def test_ap_01_the_binary_form_ignores_unknown_tags_as_protobuf_has_it(gateway: Running) -> None:
    headers = {"content-type": "application/proto"}
    unknown = b"\xfa\x3e\x01x"  # field 999, text
    for body in (b"", unknown):
        response = await gateway.http.post(f"/ductor.workflow.v1.{TRIGGER}", content=body, headers=headers)
        assert response.status_code == 200
    response = await gateway.http.post(f"/ductor.workflow.v1.{TRIGGER}", content=b"\xff\xff", headers=headers)
    assert fault(response)[:3] == (400, "invalid_argument", "BODY_MALFORMED")


@pytest.mark.parametrize("word", ['"action"', '"ACTION"', '"step_type_action"', "999", '"STEP_TYPE_NOPE"'])
async def test_ap_02_only_canonical_enum_spellings_are_read(gateway: Running, word: str) -> None:
    create = "WorkflowDefinitionService/CreateWorkflowDefinition"
    for known in ('"STEP_TYPE_ACTION"', "1"):
        assert (await gateway.connect(create, f'{{"steps": [{{"type": {known}}}]}}')).status_code == 200
    response = await gateway.connect(create, f'{{"steps": [{{"type": {word}}}]}}')
    assert fault(response) == (400, "invalid_argument", "FIELD_INVALID", {"field": "steps[0].type"})


async def test_pl_03_integers_go_through_exactly_or_are_refused(gateway: Running) -> None:
    def echo(request: Any) -> Any:
        payload = payload_of(request, "input")
        return triggers.TriggerWorkflowResponse(response_group_output_json=payload.text if payload else None)

    gateway.peers.answers["TriggerWorkflow"] = echo
    response = await gateway.connect(TRIGGER, '{"input": {"id":9007199254740993}}')
    assert response.content == b'{"responseGroupOutput":{"id":9007199254740993}}'
    response = await gateway.connect(
        TRIGGER, '{"input": {"id":9007199254740993}, "payloadFormat": "PAYLOAD_FORMAT_JSON"}'
    )
    assert response.json() == {"responseGroupOutputJson": '{"id":9007199254740993}'}
    response = await gateway.connect(TRIGGER, '{"input": {"big":18446744073709551616}}')
    assert fault(response)[2:] == (
        "PAYLOAD_INVALID",
        {"field": "input", "path": "input.big", "problem": "integer_range"},
    )
    assert "input_json" not in response.text


async def test_pl_04_nan_is_refused_with_its_path(gateway: Running) -> None:
    response = await gateway.connect(TRIGGER, '{"input": {"x": NaN}}')
    assert fault(response)[2:] == ("PAYLOAD_INVALID", {"field": "input", "path": "input.x", "problem": "nan"})


async def test_reads_are_served_by_get_too(gateway: Running) -> None:
    query = {"encoding": "json", "message": '{"runId":"r1"}', "connect": "v1"}
    response = await gateway.http.get(f"/ductor.workflow.v1.{GET_RUN}", params=query)
    assert response.status_code == 200
    assert response.headers["cache-control"] == "no-store"
    assert gateway.peers.last.request.run_id == "r1"
    response = await gateway.http.get(f"/ductor.workflow.v1.{GET_RUN}", params={**query, "message": '{"runID":"r1"}'})
    assert fault(response)[2] == "FIELD_UNKNOWN"
    response = await gateway.http.get(f"/ductor.workflow.v1.{GET_RUN}", params={**query, "message": "A", "base64": "1"})
    assert fault(response)[2] == "BODY_MALFORMED"
    response = await gateway.http.get(f"/ductor.workflow.v1.{TRIGGER}", params=query)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


async def test_compressed_requests_are_read_and_bounded() -> None:
    async with running(request_max_bytes=20_000) as gateway:
        body = gzip.compress(b'{"subjectId": "1"}')
        response = await gateway.connect(TRIGGER, body, content_encoding="gzip")
        assert (response.status_code, gateway.peers.last.request.subject_id) == (200, "1")
        for bad, encoding in ((gzip.compress(b" " * 200_000), "gzip"), (b" " * 20_001, "identity")):
            response = await gateway.connect(TRIGGER, bad, content_encoding=encoding)
            assert fault(response) == (400, "invalid_argument", "REQUEST_TOO_LARGE", {"limit_bytes": "20000"})
        assert fault(await gateway.connect(TRIGGER, b"junk", content_encoding="gzip"))[2] == "BODY_MALFORMED"
        assert fault(await gateway.connect(TRIGGER, b"{}", content_encoding="br"))[1:3] == (
            "unimplemented",
            "FEATURE_NOT_SUPPORTED",
        )


async def test_what_is_not_served_here(gateway: Running) -> None:
    assert fault(await gateway.connect("WorkflowService/Nope", {}))[:3] == (404, "unimplemented", "RPC_NOT_FOUND")
    assert fault(await gateway.connect("Nope/Nope", {}))[:3] == (404, "unimplemented", "RPC_NOT_FOUND")
    assert fault(await gateway.connect(GET_RUN, b"", content_type="application/grpc"))[:3] == (
        415,
        "invalid_argument",
        "CONTENT_TYPE_UNSUPPORTED",
    )
    assert (await gateway.connect(GET_RUN, b"", content_type="text/plain")).status_code == 415
    assert fault(await gateway.connect(GET_RUN, {}, connect_protocol_version="2"))[2:] == (
        "FIELD_INVALID",
        {"field": "connect-protocol-version"},
    )


async def test_headers_that_are_no_utf_8_harm_nothing(gateway: Running) -> None:
    headers = [(b"content-type", b"application/json"), (b"user-agent", b"caf\xe9"), (b"x-request-id", b"req-1")]
    response = await gateway.http.post(f"/ductor.workflow.v1.{GET_RUN}", content=b"{}", headers=headers)
    assert (response.status_code, response.headers["x-request-id"]) == (200, "req-1")
    headers = [(b"content-type", b"application/json"), (b"x-tenant-id", b"caf\xe9")]
    async with httpx.AsyncClient(base_url=gateway.http.base_url) as http:
        response = await http.post(f"/ductor.workflow.v1.{GET_RUN}", content=b"{}", headers=headers)
        assert fault(response)[:3] == (400, "invalid_argument", "TENANT_INVALID")


async def test_tn_01_every_rpc_names_the_tenant_to_its_service_and_none_works_without(gateway: Running) -> None:
    async with httpx.AsyncClient(
        base_url=gateway.http.base_url, headers={"content-type": "application/json"}
    ) as nobody:
        for backend in BACKENDS:
            for rpc in (rpc for rpc in backend.service.methods if not rpc.server_streaming):
                path = f"/{backend.service.full_name}/{rpc.name}"
                assert (await nobody.post(path, content=b"{}", headers=ACME)).status_code == 200
                assert (gateway.peers.last.rpc, gateway.peers.last.caller.tenant_id) == (rpc.name, "acme")
                scoped = {"x-ductor-scope": "platform"}
                assert fault(await nobody.post(path, content=b"{}", headers=scoped))[:3] == (
                    400,
                    "invalid_argument",
                    "TENANT_REQUIRED",
                )
