"""A caller as the contract wants one: it balances over replicas, repeats what may be repeated while a service is unavailable, and writes down whatever fails
all the same."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

import grpc
import httpx

from ductor.workflow.v1 import admin_service_pb2_grpc as admin
from ductor.workflow.v1 import schedule_service_pb2_grpc as schedules
from ductor.workflow.v1 import task_service_pb2_grpc as tasks
from ductor.workflow.v1 import workflow_definition_service_pb2_grpc as definitions
from ductor.workflow.v1 import workflow_run_control_service_pb2_grpc as control
from ductor.workflow.v1 import workflow_service_pb2_grpc as reads
from ductor.workflow.v1 import workflow_signal_service_pb2_grpc as signals
from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as triggers
from ductord.rpc.channels import open_channel
from ductord.rpc.config import Settings
from ductord.rpc.errors import refusal_from
from tests.rolling.suite import Suite

TRIES = 4
"""As many as the retry policy of the contract's channels has."""
PASSING = (503, 429)
OF_THE_OLDER = 499
"""What a gateway of the older release says of a backend that stopped before it took the call. This one says 503."""

M = TypeVar("M")


class Caller:
    """A tenant's caller. `async with`. `failures`: what no standard retry covered. `repeats`: calls with a key that were made again, by RPC."""

    def __init__(self, suite: Suite, tenant: str) -> None:
        settings = Settings()
        self._channels = {
            name: open_channel(suite.target(name), settings)
            for name in ("definition", "trigger", "run_control", "signals", "reads", "admin", "dispatch")
        }
        self.definitions = definitions.WorkflowDefinitionServiceStub(self._channels["definition"])
        self.triggers = triggers.WorkflowTriggerServiceStub(self._channels["trigger"])
        self.schedules = schedules.ScheduleServiceStub(self._channels["trigger"])
        self.control = control.WorkflowRunControlServiceStub(self._channels["run_control"])
        self.signals = signals.WorkflowSignalServiceStub(self._channels["signals"])
        self.reads = reads.WorkflowServiceStub(self._channels["reads"])
        self.admin = admin.AdminServiceStub(self._channels["admin"])
        self.tasks = tasks.TaskServiceStub(self._channels["dispatch"])
        self.tenant = tenant
        self.metadata = (("x-tenant-id", tenant),)
        self.calls: Counter[str] = Counter()
        self.repeats: Counter[str] = Counter()
        self.failures: list[str] = []
        self._gateways = itertools.cycle(suite.gateways())
        self._suite = suite
        self._web = httpx.AsyncClient(timeout=60, headers={"x-tenant-id": tenant})

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._web.aclose()
        for channel in self._channels.values():
            await channel.close(None)

    async def call(self, rpc: Callable[..., Any], request: Any, *, keyed: bool = False) -> Any:
        """One call. What has no side effects is repeated by the channel itself; what has a key (`keyed`) by us, as often. Raises what is left then."""
        name = rpc._method.decode().rpartition("/")[2]  # type: ignore[attr-defined]
        self.calls[name] += 1
        for attempt in range(1, TRIES + 1):
            try:
                return await rpc(request, metadata=self.metadata, timeout=60)
            except grpc.aio.AioRpcError as error:
                refusal = refusal_from(error)
                if not keyed or refusal.code != "UNAVAILABLE" or attempt == TRIES:
                    self.failures.append(f"{name}: {refusal.code} {refusal.reason} {refusal.message}")
                    raise
                self.repeats[name] += 1
                await asyncio.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable")

    async def rest(self, method: str, path: str, **given: Any) -> dict[str, Any]:
        """One call of the REST side, of the next gateway; repeated at the other one while it is unavailable or the connection ends without an answer."""
        name = f"{method} {path.rpartition(':')[2] if ':' in path else path.split('/')[3]}"
        self.calls[name] += 1
        for attempt in range(1, TRIES + 1):
            problem: object
            try:
                answer = await self._web.request(method, next(self._gateways) + path, **given)
                if answer.status_code == 200:
                    body: dict[str, Any] = answer.json()
                    return body
                problem = f"{answer.status_code} {answer.text[:300]}"
                passes = answer.status_code in PASSING or (answer.status_code == OF_THE_OLDER and bool(self._suite.old))
            except httpx.TransportError as error:
                problem, passes = repr(error), True
            if not passes or attempt == TRIES:
                self.failures.append(f"{name}: {problem}")
                raise ConnectionError(str(problem))
            self.repeats[name] += 1
            await asyncio.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable")
