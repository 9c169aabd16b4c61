"""Reports on their way to dispatch, in batches that grow with the load: what piled up while one call was in flight goes with the next.

A report is sent again until dispatch has answered it: the lease's secret makes repeating harmless. It is given up long after its lease must be lost.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Final

import grpc

from ductor.workflow.v1 import task_service_pb2 as api
from ductor.workflow.v1 import task_service_pb2_grpc as rpc
from ductord.rpc.credentials import Sign
from ductord.rpc.errors import refusal_from
from ductord.worker.running import Running, failed, ids_of

MAX_BATCH: Final = 500
MAX_BYTES: Final = 2_500_000
"""Of one call: well under the 3 MiB of the contract. A single report is always allowed."""
CALL_S: Final = 15.0
GIVE_UP_S: Final = 60.0
"""How long after the end of its lease a report is still tried: dispatch may be away, and the sweep with it."""

_TOO_LARGE: Final = (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.OUT_OF_RANGE)
"""gRPC's own words for a message over a limit."""
_REFUSED: Final = (grpc.StatusCode.INVALID_ARGUMENT, *_TOO_LARGE)

_log = logging.getLogger("ductor.worker")


class Reports:
    """The queue of reports and the loop's turn that sends them. `on_answer(running, status)` hears the end of each; `wake` ends the loop's rest."""

    def __init__(
        self, stub: "rpc.TaskServiceAsyncStub", metadata: Sign, on_answer: Callable[[Running, int], None]
    ) -> None:
        self._stub = stub
        self._metadata = metadata
        self._on_answer = on_answer
        self._queue: deque[tuple[Running, api.TaskCompletion]] = deque()
        self._in_flight = 0
        self._limit = MAX_BATCH
        self._empty = asyncio.Event()
        self._empty.set()
        self.wake: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._queue) + self._in_flight

    def add(self, running: Running, completion: api.TaskCompletion) -> None:
        """Send a report, soon."""
        self._queue.append((running, completion))
        self._empty.clear()
        self.wake()

    async def flushed(self) -> None:
        """Returns when every report was answered or given up."""
        await self._empty.wait()

    async def turn(self) -> float | None:
        """Send one batch; goes on at once while there are more. Raises what the call raises: the loop backs off, the batch stays."""
        batch = self._batch()
        if not batch:
            return None
        self._in_flight = len(batch)
        try:
            request = api.CompleteTasksRequest(completions=[completion for _, completion in batch])
            answer = await self._stub.CompleteTasks(request, metadata=self._metadata(), timeout=CALL_S)
        except grpc.aio.AioRpcError as error:
            if error.code() not in _REFUSED or refusal_from(error).retry_after_ms is not None:  # OVERLOADED passes
                self._keep(batch)
                raise
            self._refused(batch, error)
        except BaseException:
            self._keep(batch)
            raise
        else:
            for (running, _), result in zip(batch, answer.results, strict=True):
                self._on_answer(running, result.status)
            if not self._queue:
                self._limit = MAX_BATCH
        finally:
            self._in_flight = 0
            if not self._queue:
                self._empty.set()
        return 0

    def _batch(self) -> list[tuple[Running, api.TaskCompletion]]:
        batch: list[tuple[Running, api.TaskCompletion]] = []
        size = 0
        while self._queue and len(batch) < self._limit:
            size += self._queue[0][1].ByteSize() + 8
            if batch and size > MAX_BYTES:
                break
            batch.append(self._queue.popleft())
        return batch

    def _keep(self, batch: list[tuple[Running, api.TaskCompletion]]) -> None:
        """Back to the front, but for what is given up."""
        now = asyncio.get_running_loop().time()
        for entry in reversed(batch):
            running = entry[0]
            if running.lease_until + GIVE_UP_S > now:
                self._queue.appendleft(entry)
                continue
            _log.error("gave up reporting: the lease is long lost", extra=ids_of(running.task))
            self._on_answer(running, api.TASK_COMPLETION_STATUS_LEASE_LOST)

    def _refused(self, batch: list[tuple[Running, api.TaskCompletion]], error: grpc.aio.AioRpcError) -> None:
        """Dispatch does not take the batch as it is: then each report alone.

        An output that is refused alone fails its attempt for good: lost with its lease it would be made again and again (PL-06). Any other report is
        dropped.
        """
        if len(batch) > 1:
            self._limit = 1
            self._queue.extendleft(reversed(batch))
            return
        [(running, completion)] = batch
        _log.error("the report is refused: %s", error.details(), extra=ids_of(running.task))
        if completion.HasField("success"):
            too_large = error.code() in _TOO_LARGE or refusal_from(error).reason == "REQUEST_TOO_LARGE"
            code = "payload_too_large" if too_large else "payload_invalid"
            message = f"dispatch does not take the output of {len(completion.success.output_json):,} characters"
            self._queue.appendleft((running, failed(running.task, code, message, non_retryable=True)))
            return
        self._on_answer(running, api.TASK_COMPLETION_STATUS_LEASE_LOST)
