"""The services behind the gateway and the one way to call them: the generated stubs, over one channel per service.

A table names the services; its length is the whole list of what the gateway serves. It must never look into a payload or repeat a call by itself:
the channel repeats what the contract says may be repeated.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any, Final

import grpc
import msgspec
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.rpc import status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ductor.workflow.v1 import admin_service_pb2 as admin
from ductor.workflow.v1 import schedule_service_pb2 as schedule
from ductor.workflow.v1 import task_service_pb2 as task
from ductor.workflow.v1 import workflow_definition_service_pb2 as definition
from ductor.workflow.v1 import workflow_run_control_service_pb2 as run_control
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1 import workflow_trigger_service_pb2 as trigger
from ductor.workflow.v1.admin_service_pb2_grpc import AdminServiceStub
from ductor.workflow.v1.schedule_service_pb2_grpc import ScheduleServiceStub
from ductor.workflow.v1.task_service_pb2_grpc import TaskServiceStub
from ductor.workflow.v1.workflow_definition_service_pb2_grpc import WorkflowDefinitionServiceStub
from ductor.workflow.v1.workflow_run_control_service_pb2_grpc import WorkflowRunControlServiceStub
from ductor.workflow.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from ductor.workflow.v1.workflow_signal_service_pb2_grpc import WorkflowSignalServiceStub
from ductor.workflow.v1.workflow_trigger_service_pb2_grpc import WorkflowTriggerServiceStub
from ductord.gateway.exchange import DEFAULT_TIMEOUT_S, Exchange
from ductord.gateway.statuses import of_call
from ductord.model.errors import Refusal
from ductord.rpc import errors
from ductord.rpc.config import TargetService

LONGEST_WAIT_S: Final = 300.0
"""Ruling G9: longer waits are refused by the service, at once."""


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """One RPC service of the contract: where it is served and the stub that calls it."""

    target: TargetService
    service: ServiceDescriptor
    stub: Callable[[Any], Any]


BACKENDS: Final = (
    Backend(
        target="definition",
        service=definition.DESCRIPTOR.services_by_name["WorkflowDefinitionService"],
        stub=WorkflowDefinitionServiceStub,
    ),
    Backend(
        target="trigger",
        service=trigger.DESCRIPTOR.services_by_name["WorkflowTriggerService"],
        stub=WorkflowTriggerServiceStub,
    ),
    Backend(
        target="trigger", service=schedule.DESCRIPTOR.services_by_name["ScheduleService"], stub=ScheduleServiceStub
    ),
    Backend(
        target="run_control",
        service=run_control.DESCRIPTOR.services_by_name["WorkflowRunControlService"],
        stub=WorkflowRunControlServiceStub,
    ),
    Backend(
        target="signals",
        service=signals.DESCRIPTOR.services_by_name["WorkflowSignalService"],
        stub=WorkflowSignalServiceStub,
    ),
    Backend(target="reads", service=reads.DESCRIPTOR.services_by_name["WorkflowService"], stub=WorkflowServiceStub),
    Backend(target="admin", service=admin.DESCRIPTOR.services_by_name["AdminService"], stub=AdminServiceStub),
    Backend(target="dispatch", service=task.DESCRIPTOR.services_by_name["TaskService"], stub=TaskServiceStub),
)


class CallFailed(Exception):
    """A call ended with `status`, which is fit for the caller."""

    def __init__(self, status: status_pb2.Status) -> None:
        super().__init__(status.message)
        self.status = status


class Backends:
    """Calls to every RPC of the table. Make it inside the running event loop, as its channels."""

    def __init__(
        self,
        channels: Mapping[TargetService, grpc.aio.Channel],
        table: Sequence[Backend] = BACKENDS,
        *,
        draining: asyncio.Event | None = None,
    ) -> None:
        """`draining`: set when the process is asked to stop, which ends streams."""
        self.table = table
        self._channels = channels
        self._draining = draining or asyncio.Event()
        self._calls: dict[str, tuple[str, Any]] = {}
        for backend in table:
            stub = backend.stub(channels[backend.target])
            for rpc in backend.service.methods:
                self._calls[rpc.full_name] = backend.target, getattr(stub, rpc.name)

    async def call(
        self, rpc: MethodDescriptor, request: Message, exchange: Exchange, timeout_s: float | None
    ) -> Message:
        """The answer of a unary RPC. `timeout_s` None: the caller names no deadline. Raises `CallFailed`, and `Refusal` for headers that cannot travel.

        Cancelling it cancels the call.
        """
        target, call = self._calls[rpc.full_name]
        metadata = exchange.metadata()
        exchange.forwarded = True
        try:
            answer: Message = await call(request, metadata=metadata, timeout=self.timeout_of(rpc, request, timeout_s))
        except grpc.aio.AioRpcError as error:
            raise CallFailed(of_call(error, target, exchange.request_id)) from None
        return answer

    async def stream(
        self, rpc: MethodDescriptor, request: Message, exchange: Exchange, timeout_s: float | None
    ) -> AsyncGenerator[Message]:
        """The answers of a server stream, which has no deadline but its caller's own. Raises as `call`, also in its middle.

        The next answer is read when it is asked for, so a slow reader slows its service. Closing it cancels the call.
        """
        target, method = self._calls[rpc.full_name]
        metadata = exchange.metadata()
        exchange.forwarded = True
        call = method(request, metadata=metadata, timeout=timeout_s)
        stopping = asyncio.ensure_future(self._draining.wait())
        reading: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            while True:
                reading = asyncio.ensure_future(call.read())
                await asyncio.wait((reading, stopping), return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    message = "the process is stopping; the stream can be asked for again"
                    raise errors.refused("SERVICE_DRAINING", message, retry_after_ms=500)
                answer = reading.result()
                if answer is grpc.aio.EOF:  # type: ignore[attr-defined]  # not in the stubs
                    return
                yield answer
        except grpc.aio.AioRpcError as error:
            raise CallFailed(of_call(error, target, exchange.request_id)) from None
        finally:
            stopping.cancel()
            reading.cancel()
            call.cancel()

    def timeout_of(self, rpc: MethodDescriptor, request: Message, timeout_s: float | None) -> float:
        """How long a call may take: what its caller says, else the default and what the request asks to wait for."""
        return timeout_s if timeout_s is not None else DEFAULT_TIMEOUT_S + patience(rpc, request)

    async def check(self, backend: Backend) -> None:
        """Whether the service behind a backend serves, as its own health says. Raises `Refusal` when not."""
        health = health_pb2_grpc.HealthStub(self._channels[backend.target])
        asked = health_pb2.HealthCheckRequest(service=backend.service.full_name)
        try:
            answer = await health.Check(asked, timeout=1.5)
        except grpc.aio.AioRpcError as error:
            raise _not_serving(backend.target) from error  # at debug the log says why: a name, a handshake
        if answer.status != health_pb2.HealthCheckResponse.SERVING:
            raise _not_serving(backend.target)


def patience(rpc: MethodDescriptor, request: Message) -> float:
    """Seconds that a request itself asks to wait: for a checkpoint (ruling G9), for what becomes of a control (C1), for a first task."""
    asked: Any = request
    if rpc.name == "TriggerWorkflow" and asked.wait_for_checkpoint:
        seconds = asked.checkpoint_timeout_seconds or 30  # as the service takes it
    elif rpc.name == "WaitOperation":
        seconds = asked.timeout_seconds if asked.HasField("timeout_seconds") else 30
    elif rpc.name == "PollTasks":
        seconds = asked.wait_ms / 1000
    else:
        return 0.0
    return float(min(max(seconds, 0), LONGEST_WAIT_S))


def _not_serving(target: str) -> Refusal:
    return errors.refused("SERVICE_UNAVAILABLE", f"the {target} service is not serving", service=target)


__all__ = ["BACKENDS", "Backend", "Backends", "CallFailed", "patience"]
