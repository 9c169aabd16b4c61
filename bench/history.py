"""A long history: what a tick costs of a run with thousands of transitions behind it, against one with a hundred.

The run waits in a queue that nobody polls, and an operator changes its retry policy again and again: each change is a tick and a transition, and the run's
state stays as small as it was. Ticks of the old run and of young ones are measured in turns, so that both see the same machine.
"""

import asyncio
import itertools
import statistics
import time
from typing import Any

import asyncpg

from bench.load import TENANT, pids
from bench.usage import cpu_seconds
from ductor.workflow.v1 import control_pb2
from ductor.workflow.v1 import workflow_run_control_service_pb2 as control
from ductor.workflow.v1 import workflow_run_control_service_pb2_grpc as control_grpc
from tests.support.api import Api
from tests.support.stack import Stack

YOUNG = 100
"""Transitions of a run that the old one is compared with."""
CALLERS = 2
"""Changes in flight while a history is grown: a tick takes what is there, so more of them do not make more transitions."""


async def growth(stack: Stack, *, transitions: int, rounds: int, ticks: int) -> dict[str, Any]:
    """Coordinator and Postgres CPU and milliseconds per change, of a run that has so many transitions and of young ones; `cpu_growth`: how much dearer."""
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    waits = {"ref": "wait", "type": "action", "action": "noop:noop", "queue": "nobody"}
    try:
        async with Api(stack["edges"].target, TENANT) as api:
            definition_id = await api.publish({"family_slug": "history", "steps": [waits]})
            old, *young = [_Told(api, run_id) for run_id in await api.start_many(definition_id, rounds + 1)]
            for run in young:
                await run.grow(owner, YOUNG)
            begin = time.perf_counter()
            await old.grow(owner, transitions)
            grown = time.perf_counter() - begin
            await owner.execute("vacuum analyze")
            await owner.execute("checkpoint")
            costs: dict[str, list[tuple[float, float, float]]] = {"old": [], "young": []}
            for number, run in enumerate(young):
                pair = [("old", old), ("young", run)]
                for name, one in pair if number % 2 else reversed(pair):
                    costs[name].append(await _cost(stack, one, ticks))
            length = await owner.fetchval(_LENGTH, old.run_id)
            for run in (old, *young):
                request = control.TerminateRunRequest(run_id=run.run_id)
                await run.stub.TerminateRun(request, metadata=api.metadata, timeout=30)
    finally:
        await owner.close()
    figures: dict[str, Any] = {"transitions": length, "grown_per_s": round((transitions - 1) / grown)}
    for name, found in costs.items():
        coordinator, postgres, _ = (sum(column) / len(found) for column in zip(*found, strict=True))
        figures |= {
            f"{name}_coordinator_cpu_us": round(coordinator * 1e6),
            f"{name}_postgres_cpu_us": round(postgres * 1e6),
            f"{name}_ms": round(statistics.median(row[2] for row in found) * 1e3, 2),
        }
    dear, cheap = (
        figures[f"{name}_coordinator_cpu_us"] + figures[f"{name}_postgres_cpu_us"] for name in ("old", "young")
    )
    figures["cpu_growth"] = round(dear / cheap, 3)
    figures["time_growth"] = round(figures["old_ms"] / figures["young_ms"], 3)
    return figures


_LENGTH = "select coalesce(max(seq), 0) from eec_workflow_transition where run_id = $1"


class _Told:
    """A run whose retry policy is changed."""

    def __init__(self, api: Api, run_id: str) -> None:
        self.run_id = run_id
        self.stub = control_grpc.WorkflowRunControlServiceStub(api.channel)
        self._metadata = api.metadata
        self._numbers = itertools.count()

    async def grow(self, owner: asyncpg.Connection, transitions: int) -> None:
        """Until it has so many transitions, a few more perhaps. Raises TimeoutError when it does not get on."""
        deadline = time.monotonic() + 240
        while await owner.fetchval(_LENGTH, self.run_id) < transitions:
            if time.monotonic() > deadline:
                raise TimeoutError("the history does not grow")
            await asyncio.gather(*(self._some(20) for _ in range(CALLERS)))

    async def _some(self, count: int) -> None:
        for _ in range(count):
            await self._ask()

    async def _ask(self) -> str:
        """One change; its request id. Answered before a tick has come to it."""
        number = next(self._numbers)
        request = control.UpdateNodeRetryPolicyRequest(
            run_id=self.run_id,
            step_ref="wait",
            request_id=f"h{number}",
            retry_policy=control_pb2.NodeRetryPolicy(retry_max_attempts=2 + number % 2),
        )
        await self.stub.UpdateNodeRetryPolicy(request, metadata=self._metadata, timeout=30)
        return request.request_id

    async def change(self) -> None:
        """One change, and its end awaited."""
        wait = control.WaitOperationRequest(run_id=self.run_id, request_id=await self._ask())
        operation = (await self.stub.WaitOperation(wait, metadata=self._metadata, timeout=60)).data
        assert operation.status == control_pb2.OPERATION_STATUS_APPLIED, operation


async def _cost(stack: Stack, run: _Told, ticks: int) -> tuple[float, float, float]:
    """Seconds per change: CPU of the coordinator, CPU of Postgres, and as a caller sees it."""
    watched = {name: pids(stack)[name] for name in ("coordinator0", "postgres")}
    before, begin = cpu_seconds(watched), time.perf_counter()
    for _ in range(ticks):
        await run.change()
    seconds, after = time.perf_counter() - begin, cpu_seconds(watched)
    return (
        (after["coordinator0"] - before["coordinator0"]) / ticks,
        (after["postgres"] - before["postgres"]) / ticks,
        seconds / ticks,
    )
