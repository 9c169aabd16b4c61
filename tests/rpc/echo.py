"""A service of the tests, of the shape that every service has: it answers with what it was called with, or does what the definition id says."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import grpc

from ductor.workflow.v1 import (
    run_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
    workflow_service_pb2,
    workflow_service_pb2_grpc,
)
from ductor.workflow.v1 import workflow_trigger_service_pb2 as trigger_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as trigger_grpc
from ductord.model.errors import Refusal, Violation
from ductord.rpc.caller import Caller, caller
from ductord.rpc.channels import open_channel, outgoing
from ductord.rpc.config import Settings
from ductord.rpc.errors import refusal_from, refused
from ductord.rpc.host import Host, Scope, Service, hosting
from ductord.rpc.payloads import payload_of

Trigger = trigger_pb2.TriggerWorkflowRequest


class Trouble(Exception):
    """Stands for a database that is away."""


def translate(error: BaseException) -> Refusal | None:
    """As `db.outage.refusal_of`, for `Trouble`."""
    return refused("DATABASE_UNAVAILABLE", "away", retry_after_ms=1500) if isinstance(error, Trouble) else None


class TriggerEcho(trigger_grpc.WorkflowTriggerServiceServicer):
    """Remembers who called. The definition id chooses what happens."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []
        self.entered = asyncio.Event()
        self.let_go = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def TriggerWorkflow(self, request: Trigger, context: Any) -> trigger_pb2.TriggerWorkflowResponse:  # noqa: N802
        self.callers.append(caller())
        match request.definition_id:
            case "missing":
                raise refused("DEFINITION_NOT_FOUND", "there is no such definition")
            case "wide":
                wide = [
                    Violation(
                        code="UNKNOWN_STEP_REF",
                        message=f"no step {i} " + "x" * 300,
                        path=f"edges[{i}].target_ref",
                        line=i,
                    )
                    for i in range(500)
                ]
                raise refused(
                    "DEFINITION_INVALID", "the definition has 500 faults", violations=wide, violation_count=500
                )
            case "archived":
                faults = [Violation(code="DEFINITION_ARCHIVED", message="version 2 is archived", path="definition_id")]
                raise refused("DEFINITION_ARCHIVED", "archived", violations=faults, definition_id="d", version=2)
            case "boom":
                raise ValueError("select secret from payload")
            case "away":
                raise Trouble("connection refused at 10.0.0.1")
            case "wait":
                self.entered.set()
                try:
                    await self.let_go.wait()
                except asyncio.CancelledError:
                    self.cancelled.set()
                    raise
        payload = payload_of(request, "input")
        return trigger_pb2.TriggerWorkflowResponse(run_id=caller().tenant, checkpoint=payload.text if payload else "")


class ReadsEcho(workflow_service_pb2_grpc.WorkflowServiceServicer):
    """Fails with an outage as often as it is told, then answers."""

    def __init__(self) -> None:
        self.outages = 0

    async def GetRun(self, request: Any, context: Any) -> workflow_service_pb2.GetRunResponse:  # noqa: N802
        if self.outages:
            self.outages -= 1
            raise Trouble
        return workflow_service_pb2.GetRunResponse(
            data=run_pb2.RunDetail(summary=run_pb2.RunSummary(run_id=request.run_id))
        )


class TasksEcho(task_service_pb2_grpc.TaskServiceServicer):
    """Says in whose name it was called."""

    async def PollTasks(self, request: Any, context: Any) -> task_service_pb2.PollTasksResponse:  # noqa: N802
        return task_service_pb2.PollTasksResponse(
            tasks=[task_service_pb2.Task(tenant_id=caller().tenant_id or "(all)", traceparent=caller().traceparent)]
        )

    async def CompleteTasks(self, request: Any, context: Any) -> task_service_pb2.CompleteTasksResponse:  # noqa: N802
        return task_service_pb2.CompleteTasksResponse(
            results=[
                task_service_pb2.TaskCompletionResult(message=c.failure.message or c.success.output_json)
                for c in request.completions
            ]
        )


class Echo:
    """The three servicers as one service named `trigger`, and clients of them over a real socket."""

    def __init__(self) -> None:
        # They answer only the RPCs that the tests call; the others are what an unwritten RPC is.
        self.trigger, self.reads, self.tasks = TriggerEcho(), ReadsEcho(), TasksEcho()  # type: ignore[abstract]
        self.service = Service(name="trigger", start=self._start)
        self.host: Host
        self.channel: grpc.aio.Channel

    async def _start(self, scope: Scope) -> None:
        scope.translate(translate)
        scope.rpcs(trigger_grpc.add_WorkflowTriggerServiceServicer_to_server, self.trigger)
        scope.rpcs(workflow_service_pb2_grpc.add_WorkflowServiceServicer_to_server, self.reads)
        scope.rpcs(task_service_pb2_grpc.add_TaskServiceServicer_to_server, self.tasks)

    async def call(
        self, definition_id: str = "", *, tenant: str | None = "acme", timeout: float = 60, **fields: Any
    ) -> trigger_pb2.TriggerWorkflowResponse:
        """One TriggerWorkflow."""
        stub = trigger_grpc.WorkflowTriggerServiceStub(self.channel)
        return await stub.TriggerWorkflow(
            Trigger(definition_id=definition_id, **fields), metadata=outgoing(tenant_id=tenant), timeout=timeout
        )

    async def refusal(self, definition_id: str = "", **given: Any) -> Refusal:
        """The refusal of a TriggerWorkflow that must be refused."""
        return await refusal_of(lambda: self.call(definition_id, **given))


async def refusal_of(call: Callable[[], Any]) -> Refusal:
    """The refusal of a call that must be refused."""
    try:
        await call()
    except grpc.aio.AioRpcError as error:
        return refusal_from(error)
    raise AssertionError("the call was not refused")


async def until(condition: Callable[[], Any], limit_s: float = 60) -> None:
    """Wait for something that has no event to wait for (a log line, a counter)."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110  # that is what it is for
            await asyncio.sleep(0.002)


def loopback(**given: Any) -> Settings:
    """Settings of a process on ports that the system picks."""
    return Settings(**{"grpc_address": "127.0.0.1:0", "http_address": "127.0.0.1:0", "drain_ms": 2_000, **given})


@asynccontextmanager
async def echoing(**given: Any) -> AsyncIterator[Echo]:
    """A running process with the echo service in it."""
    echo = Echo()
    settings = loopback(**given)
    async with hosting([echo.service], settings) as echo.host:
        echo.channel = open_channel(echo.host.grpc_address.reachable, settings)
        yield echo
        await echo.channel.close(None)


def clean() -> dict[str, str]:
    """The environment without options."""
    return {name: value for name, value in os.environ.items() if not name.startswith("DUCTOR_")}
