"""The worker: polls for what it has room for, runs it, beats while it runs, reports what came of it, and drains (KB-01).

It knows dispatch by the generated stubs alone and has no database: what it can do, a worker in any language can. Plain actions run inside the poll's
turn, all of a batch at once and reported together; only actions that wait cost a task of the event loop.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Final

import grpc
import msgspec

from ductor.workflow.v1 import task_service_pb2 as api
from ductor.workflow.v1 import task_service_pb2_grpc as rpc
from ductord.rpc.credentials import Sign
from ductord.rpc.metrics import Metrics
from ductord.worker import running as outcome
from ductord.worker.beats import Beats
from ductord.worker.reports import Reports
from ductord.worker.running import Actions, Running, Stop

CALL_MARGIN_S: Final = 10.0
"""How much longer than its wait a poll may take before it counts as lost."""
OBEY_S: Final = 0.3
"""How long cancelled actions get to end before their tasks are given back without them."""
FLUSH_S: Final = 0.5
RECLAIM_S: Final = 1.0
"""How long a worker that drains asks after what the poll that it cancelled may have been given."""
TAKEN_IN_S: Final = 1.0
"""A poll that waits for longer was let in."""
NOBODYS: Final = "-"
"""An action that no task can have."""

_TURNED_AWAY: Final = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)

_log = logging.getLogger("ductor.worker")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is told. `drain_ms`: the whole time from the stop until the last report is sent."""

    queues: Sequence[str]
    slots: int
    wait_ms: int
    drain_ms: int


class Worker:
    """One worker process. Its id is new at every start: a successor never speaks for its predecessor (RT-05)."""

    def __init__(
        self, stub: "rpc.TaskServiceAsyncStub", metadata: Sign, actions: Actions, options: Options, metrics: Metrics
    ) -> None:
        self.worker_id = f"{socket.gethostname()[:64]}-{os.getpid()}-{secrets.token_hex(4)}"
        self._stub = stub
        self._metadata = metadata
        self._actions = actions
        self._options = options
        # Asking for the running loop is a system call in this Python, and there is a clock to read several times per task.
        self._clock = asyncio.get_running_loop().time
        self._held: dict[str, Running] = {}
        self._busy = 0
        self._poll_id = secrets.token_hex(16)
        self._call: grpc.aio.UnaryUnaryCall[api.PollTasksRequest, api.PollTasksResponse] | None = None
        self._asked = 0.0
        """When that call began."""
        self._turned_away: grpc.aio.AioRpcError | None = None
        """How the last poll was refused for our key."""
        self._draining = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.reports = Reports(stub, metadata, self._answered)
        self.beats = Beats(stub, metadata, self._held.values, self._stop)
        self.wake: Callable[[], None] = lambda: None
        """Ends the rest of the poll's loop."""
        self._finished = cache(
            metrics.counter("ductor_actions", "Actions that ended, by what they reported.", ("action", "result")).labels
        )
        self._seconds = cache(metrics.histogram("ductor_action_seconds", "Time that actions took.", ("action",)).labels)
        metrics.gauge("ductor_worker_busy", "Actions at work in this process.").set_function(lambda: self._busy)
        metrics.gauge("ductor_worker_slots", "Actions that may be at work in this process at once.").set(options.slots)
        metrics.gauge("ductor_worker_unreported", "Reports that dispatch has not answered.").set_function(
            lambda: len(self.reports)
        )

    @property
    def free(self) -> int:
        """How many tasks it has room for: none while reports pile up because dispatch does not take them."""
        backlog = len(self.reports)
        return self._options.slots - self._busy if backlog <= 2 * self._options.slots else 0

    async def let_in(self) -> None:
        """A condition of being ready: our key is taken, as far as the last poll tells. Else raises: a roll-out with a bad key shall not go on."""
        waits = self._call is not None and self._clock() - self._asked > TAKEN_IN_S
        if self._turned_away is not None and not waits:
            raise self._turned_away

    async def poll(self) -> float | None:
        """Poll once and begin what comes. Raises what the call raises: the loop backs off, and the same poll id asks again."""
        if self._draining or (free := self.free) <= 0:
            return None
        request = api.PollTasksRequest(
            queues=self._options.queues,
            actions=self._actions.names,
            worker_id=self.worker_id,
            poll_id=self._poll_id,
            max_tasks=free,
            wait_ms=self._options.wait_ms,
        )
        asked = self._asked = self._clock()
        timeout = self._options.wait_ms / 1000 + CALL_MARGIN_S
        self._call = call = self._stub.PollTasks(request, metadata=self._metadata(), timeout=timeout)
        try:
            reply = await call
        except asyncio.CancelledError:
            if self._draining and call.cancelled():
                return None
            raise
        except grpc.aio.AioRpcError as error:
            if self._draining:
                return None
            if error.code() in _TURNED_AWAY:
                self._turned_away = error
            raise
        finally:
            self._call = None
        self._turned_away = None
        self._poll_id = secrets.token_hex(16)
        for task in reply.tasks:
            if self._draining:  # the reply was faster than the cancelling of its call
                self._decline(task, asked)
            else:
                self._begin(task, asked)
        return 0

    async def drain(self) -> None:
        """Stop polling at once, let finish what can in time, give the rest back, and see every report off. Cut short when it is cancelled."""
        self._draining = True
        polling = self._call
        if polling is not None:
            polling.cancel()
        deadline = self._clock() + self._options.drain_ms / 1000
        reserve = min(OBEY_S + FLUSH_S, self._options.drain_ms / 4000)
        cut: asyncio.CancelledError | None = None
        try:
            if polling is not None:
                await _within(self._reclaim(), min(RECLAIM_S, self._options.drain_ms / 4000))
            await _within(self._idle.wait(), deadline - reserve - self._clock())
        except asyncio.CancelledError as error:  # a second signal: give back at once
            cut = error
        await self._give_back()
        await _within(self.reports.flushed(), FLUSH_S if cut else max(deadline - self._clock(), FLUSH_S))
        if cut is not None:
            raise cut

    async def _reclaim(self) -> None:
        """Release what the cancelled poll was given by an answer that is still on its way: by its id dispatch hands that out again, and nothing else, as the
        action is nobody's. Otherwise it would be lost only when its lease ends (KB-01)."""
        request = api.PollTasksRequest(
            queues=self._options.queues,
            actions=[NOBODYS],
            worker_id=self.worker_id,
            poll_id=self._poll_id,
            max_tasks=self._options.slots,
        )
        asked = self._clock()
        try:
            reply = await self._stub.PollTasks(request, metadata=self._metadata(), timeout=RECLAIM_S)
        except grpc.aio.AioRpcError:  # then the lease ends by itself
            return
        for task in reply.tasks:
            self._decline(task, asked)

    def _decline(self, task: api.Task, asked: float) -> None:
        """Give back what came too late to be begun."""
        running = self._taken(task, asked)
        running.ended = True
        self._report(running, outcome.released(task))

    def _taken(self, task: api.Task, asked: float) -> Running:
        running = Running(task, asked, self._clock())
        self._held[running.token] = running
        return running

    def _begin(self, task: api.Task, asked: float) -> None:
        running = self._taken(task, asked)
        self._busy += 1
        if not self._actions.waits(running.action):
            self._end(running, self._actions.run(running))
            return
        self._idle.clear()
        running.work = asyncio.create_task(self._work(running), name=f"action {running.action}")
        if task.HasField("remaining_ms"):
            delay = task.remaining_ms / 1000
            running.timer = asyncio.get_running_loop().call_later(delay, self._stop, running, Stop.TIMED_OUT)
        self.beats.expect(running)

    async def _work(self, running: Running) -> None:
        self._end(running, await self._actions.run_waiting(running))

    def _end(self, running: Running, completion: api.TaskCompletion | None) -> None:
        """The action is through: its slot is free, its report on the way unless there is one already."""
        if running.ended:
            return
        running.ended = True
        self._busy -= 1
        if running.timer is not None:
            running.timer.cancel()
        self._seconds(running.action).observe(self._clock() - running.started)
        self._report(running, completion)
        if self._busy == 0:
            self._idle.set()
        self.wake()

    def _report(self, running: Running, completion: api.TaskCompletion | None) -> None:
        if running.reported:
            return
        running.reported = True
        result = _result(completion)
        self._finished(running.action, result).inc()
        if _log.isEnabledFor(logging.DEBUG):
            told: dict[str, object] = {"duration_ms": round((self._clock() - running.started) * 1000, 2)}
            if completion is not None and result == "failure":
                told["reason"] = completion.failure.code  # not its message, which may quote a payload
            _log.debug("an action ended: %s", result, extra=outcome.ids_of(running.task) | told)
        if completion is None:
            self._held.pop(running.token, None)
        else:
            self.reports.add(running, completion)

    def _stop(self, running: Running, why: Stop) -> None:
        """Cancel the action, once. An attempt out of time is reported at once, however long its action takes to end."""
        if running.stop is None and not running.ended:
            running.stop = why
            if running.work is not None:
                running.work.cancel()
        if why is Stop.TIMED_OUT:
            self._report(running, outcome.timed_out(running.task))
        elif why is Stop.LOST:
            self._report(running, None)

    def _answered(self, running: Running, status: int) -> None:
        self._held.pop(running.token, None)
        if status == api.TASK_COMPLETION_STATUS_LEASE_LOST:
            _log.info("the lease was lost before its report", extra=outcome.ids_of(running.task))
        self.wake()

    async def _give_back(self) -> None:
        """Cancel what still runs and release it; what ignores its cancellation is released all the same."""
        left = [running for running in self._held.values() if not running.ended]
        for running in left:
            self._stop(running, Stop.DRAIN)
        works = [running.work for running in left if running.work is not None]
        if works:
            _log.info("giving back %d tasks", len(works))
            await asyncio.wait(works, timeout=OBEY_S)
        for running in left:
            self._end(running, outcome.released(running.task))


async def _within(work: Awaitable[object], seconds: float) -> None:
    try:
        async with asyncio.timeout(max(seconds, 0)):
            await work
    except TimeoutError:
        return


def _result(completion: api.TaskCompletion | None) -> str:
    """`success`, `failure`, `release`; `dropped` where the lease was lost."""
    return completion.WhichOneof("outcome") or "dropped" if completion is not None else "dropped"
