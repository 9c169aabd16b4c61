"""Clients of ours: what is repeated and what never is, and what travels with a call."""

import json

import grpc
import pytest

from ductor.workflow.v1 import workflow_service_pb2 as reads_pb2
from ductor.workflow.v1 import workflow_service_pb2_grpc as reads_grpc
from ductord.rpc import channels
from ductord.rpc.channels import open_channel, outgoing
from ductord.rpc.tracing import start_span
from tests.rpc.echo import Echo, loopback, refusal_of


async def test_reads_are_repeated_during_an_outage_and_starts_never(echo: Echo) -> None:
    echo.reads.outages = 2
    stub = reads_grpc.WorkflowServiceStub(echo.channel)
    answer = await stub.GetRun(reads_pb2.GetRunRequest(run_id="r"), metadata=outgoing(tenant_id="acme"), timeout=60)
    assert answer.data.summary.run_id == "r"
    assert echo.reads.outages == 0
    assert (await echo.refusal("away")).reason == "DATABASE_UNAVAILABLE"
    assert len(echo.trigger.callers) == 1


def test_what_may_be_repeated_is_what_the_contract_says() -> None:
    config = json.loads(channels._service_config())
    names = {f"{name['service'].rpartition('.')[2]}.{name['method']}" for name in config["methodConfig"][0]["name"]}
    assert {
        "WorkflowService.GetRun",
        "WorkflowService.ListRuns",
        "WorkflowDefinitionService.GetWorkflowDefinition",
    } <= names
    starts = {"WorkflowTriggerService.TriggerWorkflow", "WorkflowTriggerService.BatchTriggerWorkflow"}
    assert not {n for n in names if n in starts or n.startswith(("TaskService.Poll", "TaskService.Complete"))}


async def test_nobody_there_is_a_coded_error() -> None:
    async with open_channel("127.0.0.1:1", loopback()) as channel:
        stub = reads_grpc.WorkflowServiceStub(channel)
        refusal = await refusal_of(
            lambda: stub.GetRun(reads_pb2.GetRunRequest(), metadata=outgoing(tenant_id="a"), timeout=5)
        )
    assert refusal.reason in ("SERVICE_UNAVAILABLE", "DEADLINE_EXCEEDED")


async def test_a_call_finds_a_service_that_comes_back_on_its_port() -> None:
    first = Echo()
    settings = loopback()
    from ductord.rpc.host import hosting

    async with hosting([first.service], settings) as host:
        address = host.grpc_address
    async with open_channel(address.reachable, settings) as channel:
        stub = reads_grpc.WorkflowServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError):
            await stub.GetRun(reads_pb2.GetRunRequest(), metadata=outgoing(tenant_id="a"), timeout=5)
        async with hosting([Echo().service], loopback(grpc_address=str(address))):
            answer = await stub.GetRun(
                reads_pb2.GetRunRequest(run_id="r"), metadata=outgoing(tenant_id="a"), timeout=60, wait_for_ready=True
            )
    assert answer.data.summary.run_id == "r"


def test_the_trace_at_hand_travels_unless_another_is_given() -> None:
    with start_span("outer") as span:
        assert ("traceparent", span.traceparent) in outgoing(tenant_id="a")
        assert ("traceparent", "00-x") in outgoing(tenant_id="a", traceparent="00-x")
    keys = {key for key, _ in outgoing(platform=True)}
    assert keys == {"x-ductor-scope", "x-ductor-status-bytes"}
