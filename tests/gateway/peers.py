"""The gateway's peers in its tests: every service of the contract, of the shape and behind the pipeline that all services have, which remember what reached
them over the wire and answer what the test says."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from ductor.workflow.v1 import admin_service_pb2_grpc as admin
from ductor.workflow.v1 import schedule_service_pb2_grpc as schedules
from ductor.workflow.v1 import task_service_pb2_grpc as tasks
from ductor.workflow.v1 import workflow_definition_service_pb2_grpc as definitions
from ductor.workflow.v1 import workflow_run_control_service_pb2_grpc as controls
from ductor.workflow.v1 import workflow_service_pb2_grpc as reads
from ductor.workflow.v1 import workflow_signal_service_pb2_grpc as signals
from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as triggers
from ductord.gateway.backends import BACKENDS
from ductord.gateway.service import SERVICE as GATEWAY
from ductord.rpc.caller import Caller, caller
from ductord.rpc.config import Settings
from ductord.rpc.host import Host, Scope, Service, hosting

Answer = Callable[[Any], Any]

_ADD: dict[str, Callable[[Any, Any], None]] = {
    "WorkflowDefinitionService": definitions.add_WorkflowDefinitionServiceServicer_to_server,
    "WorkflowTriggerService": triggers.add_WorkflowTriggerServiceServicer_to_server,
    "WorkflowRunControlService": controls.add_WorkflowRunControlServiceServicer_to_server,
    "WorkflowSignalService": signals.add_WorkflowSignalServiceServicer_to_server,
    "WorkflowService": reads.add_WorkflowServiceServicer_to_server,
    "AdminService": admin.add_AdminServiceServicer_to_server,
    "ScheduleService": schedules.add_ScheduleServiceServicer_to_server,
    "TaskService": tasks.add_TaskServiceServicer_to_server,
}


CODES = {
    "INVALID_ARGUMENT": ("FIELD_INVALID", 400), "FAILED_PRECONDITION": ("DEFINITION_ARCHIVED", 400), "UNAUTHENTICATED": ("CREDENTIAL_INVALID", 401),
    "PERMISSION_DENIED": ("TENANT_MISMATCH", 403), "NOT_FOUND": ("RUN_NOT_FOUND", 404), "ALREADY_EXISTS": ("IDEMPOTENCY_MISMATCH", 409),
    "ABORTED": ("DRAFT_REVISION_MISMATCH", 409), "RESOURCE_EXHAUSTED": ("OVERLOADED", 429), "CANCELLED": ("CANCELLED", 499), "INTERNAL": ("INTERNAL", 500),
    "UNIMPLEMENTED": ("FEATURE_NOT_SUPPORTED", 501), "UNAVAILABLE": ("DATABASE_UNAVAILABLE", 503), "DEADLINE_EXCEEDED": ("DEADLINE_EXCEEDED", 504),
}  # fmt: skip
"""A reason and the HTTP status of every code that a service of ours answers with (AP-06)."""


class Seen:
    """One call as it reached a service."""

    def __init__(self, rpc: str, request: Any, by: Caller, metadata: dict[str, Any], remaining_s: float) -> None:
        self.rpc = rpc
        self.request = request
        self.caller = by
        self.metadata = metadata
        self.remaining_s = remaining_s


class Peers:
    """All services. `answers["GetRun"]` is a message, an exception, or a (coroutine) function of the request; without one the answer is empty. A stream is
    answered by an asynchronous generator of the request; without one it is over at once."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.calls: list[Seen] = []
        self.services = [
            Service(name=target, start=self._start(target)) for target in dict.fromkeys(b.target for b in BACKENDS)
        ]

    @property
    def last(self) -> Seen:
        """The latest call."""
        return self.calls[-1]

    def _start(self, target: str) -> Callable[[Scope], Any]:
        async def start(scope: Scope) -> None:
            for backend in BACKENDS:
                if backend.target == target:
                    scope.rpcs(_ADD[backend.service.name], self._servicer(backend.service))

        return start

    def _servicer(self, service: ServiceDescriptor) -> Any:
        return type("Servicer", (), {rpc.name: self._method(rpc) for rpc in service.methods})()

    def _method(self, rpc: MethodDescriptor) -> Callable[..., Any]:
        empty = message_factory.GetMessageClass(rpc.output_type)

        def note(request: Message, context: Any) -> None:
            metadata = dict(context.invocation_metadata())
            self.calls.append(Seen(rpc.name, request, caller(), metadata, context.time_remaining()))

        async def stream(_: Any, request: Message, context: Any) -> AsyncIterator[Message]:
            note(request, context)
            if rpc.name in self.answers:
                async for answer in self.answers[rpc.name](request):
                    yield answer

        async def method(_: Any, request: Message, context: Any) -> Any:
            note(request, context)
            answer = self.answers.get(rpc.name, empty())
            if isinstance(answer, Exception):
                raise answer
            if callable(answer) and not isinstance(answer, Message):
                answer = answer(request)
            return await answer if asyncio.iscoroutine(answer) else answer

        return stream if rpc.server_streaming else method


class Running:
    """The gateway with its peers, and an HTTP client that names the tenant `acme`."""

    def __init__(self, peers: Peers, host: Host, http: httpx.AsyncClient) -> None:
        self.peers = peers
        self.host = host
        self.http = http

    async def connect(self, rpc: str, body: Any, **headers: str) -> httpx.Response:
        """One Connect call: `rpc` is `WorkflowService/GetRun`, `body` JSON text or a tree."""
        content = {"content": body} if isinstance(body, str | bytes) else {"json": body}
        given = {"content-type": "application/json"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return await self.http.post(f"/ductor.workflow.v1.{rpc}", headers=given, **content)


def loopback(**given: Any) -> Settings:
    """Settings of a process on ports that the system picks."""
    return Settings(**{"grpc_address": "127.0.0.1:0", "http_address": "127.0.0.1:0", "drain_ms": 2_000, **given})


@asynccontextmanager
async def running(**given: Any) -> AsyncIterator[Running]:
    """A process with the gateway and its peers."""
    peers = Peers()
    async with hosting([*peers.services, GATEWAY], loopback(**given)) as host:
        base = f"http://{host.http_address.reachable if host.http_address else ''}"
        async with httpx.AsyncClient(base_url=base, headers={"x-tenant-id": "acme"}, timeout=60) as http:
            yield Running(peers, host, http)


def fault(response: httpx.Response) -> tuple[int, str, str, dict[str, str]]:
    """(HTTP status, code, reason, metadata) of a REST error, whose shape is checked (AIP-193)."""
    error = response.json()["error"]
    assert set(response.json()) == {"error"}
    assert error["code"] == response.status_code
    assert error["message"]
    infos = [d for d in error["details"] if d["@type"] == "type.googleapis.com/google.rpc.ErrorInfo"]
    assert len(infos) == 1
    assert infos[0]["domain"] == "ductor"
    return response.status_code, error["status"], infos[0]["reason"], infos[0].get("metadata", {})


class about:  # noqa: N801  # reads as a word of the assertion
    """A remaining time as it arrives: gRPC rounds what it sends, and some of it has passed on the way."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __eq__(self, remaining: object) -> bool:
        return isinstance(remaining, float) and self._seconds - 20 < remaining < self._seconds + 1.2

    def __repr__(self) -> str:
        return f"about {self._seconds} s"
