"""Heartbeats of everything that the worker holds, in batches: they renew leases, carry progress, and bring back what to stop (A4, A5)."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from ductor.workflow.v1 import task_service_pb2 as api
from ductor.workflow.v1 import task_service_pb2_grpc as rpc
from ductord.rpc.credentials import Sign
from ductord.worker.running import Running, Stop

MAX_BATCH: Final = 500
MAX_BYTES: Final = 2_500_000
CALL_S: Final = 5.0


class Beats:
    """The loop's turn that beats. `held` is everything without an answered report; `on_stop(running, why)` is told what to stop."""

    def __init__(
        self,
        stub: "rpc.TaskServiceAsyncStub",
        metadata: Sign,
        held: Callable[[], Collection[Running]],
        on_stop: Callable[[Running, Stop], None],
    ) -> None:
        self._stub = stub
        self._metadata = metadata
        self._held = held
        self._on_stop = on_stop
        self._next = 0.0
        self.wake: Callable[[], None] = lambda: None

    def expect(self, running: Running) -> None:
        """A new task is held: the loop must not rest beyond its first beat."""
        if running.beat_at < self._next:
            self.wake()

    async def turn(self) -> float | None:
        """Beat for everything whose time has come; seconds until the next one's."""
        clock = asyncio.get_running_loop().time
        while batch := self._due(clock()):
            await self._beat(batch, clock())
        now = clock()
        # Until something new is held there is nothing to beat for: `expect` wakes the loop.
        self._next = min((running.beat_at for running in self._held()), default=now + 3600)
        return max(self._next - now, 0.001)

    def _due(self, now: float) -> list[Running]:
        batch: list[Running] = []
        size = 0
        for running in self._held():
            if running.beat_at <= now:
                size += len(running.details or "") * 4 + 300
                if batch and (size > MAX_BYTES or len(batch) == MAX_BATCH):
                    break
                batch.append(running)
        return batch

    async def _beat(self, batch: list[Running], now: float) -> None:
        details = [running.details for running in batch]
        beats = [
            api.TaskHeartbeat(task_token=running.token, details_json=detail)
            for running, detail in zip(batch, details, strict=True)
        ]
        request = api.HeartbeatTasksRequest(heartbeats=beats)
        answer = await self._stub.HeartbeatTasks(request, metadata=self._metadata(), timeout=CALL_S)
        for running, detail, result in zip(batch, details, answer.results, strict=True):
            if running.details is detail:
                running.details = None
            running.beat_at = now + running.beat_s
            if result.status == api.TASK_HEARTBEAT_STATUS_LEASE_LOST:
                self._on_stop(running, Stop.LOST)
                continue
            running.lease_until = now + running.task.lease_ms / 1000
            if result.status == api.TASK_HEARTBEAT_STATUS_CANCEL:
                self._on_stop(running, Stop.ASKED)
