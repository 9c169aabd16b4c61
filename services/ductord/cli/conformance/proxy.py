"""`TaskService` between a worker under test and the dispatch that it is tested with: passes calls on, remembers them, and makes go wrong what it is told.

What the worker says reaches dispatch unchanged, its credentials included, or not at all; what dispatch answers reaches the worker unchanged or not at all.
It makes no answer of its own but the three that a worker must be ready for: UNAVAILABLE, a refusal of a report, and a lease that is lost.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, Final, TypeVar

import grpc

from ductor.workflow.v1 import task_service_pb2 as api
from ductor.workflow.v1 import task_service_pb2_grpc as rpc
from ductord.rpc import errors

POLL, BEAT, REPORT = "PollTasks", "HeartbeatTasks", "CompleteTasks"
_PASSED_ON: Final = ("authorization", "traceparent", "tracestate")
_OURS: Final = "x-"
"""Beginnings of the metadata that goes on to dispatch: the rest is gRPC's own, for one hop."""

Found = TypeVar("Found")


class Fault(StrEnum):
    """What can be made to go wrong with a call."""

    AWAY = "away"
    """Dispatch hears nothing, the worker gets UNAVAILABLE; the answer of a poll that waited before that is lost."""
    ANSWER_LOST = "answer lost"
    """Dispatch answers, the worker gets UNAVAILABLE."""
    HELD = "held"
    """The answer waits until the rule's `open` is set."""
    REFUSED = "refused"
    """Dispatch hears nothing, the worker gets INVALID_ARGUMENT."""
    LEASE_LOST = "lease lost"
    """Of a heartbeat's entries that are meant: dispatch hears nothing of them, the worker is told LEASE_LOST."""


class Rule:
    """Makes `fault` happen to the calls of `method` with an entry that is meant, the next `times` of them or all.

    Entries are the heartbeats or the reports of a call; of a poll the tasks of its answer, or the request where dispatch is not to hear of it.
    """

    def __init__(
        self, method: str, fault: Fault, *, meant: Callable[[Any], bool] = lambda entry: True, times: int | None = None
    ) -> None:
        self.method = method
        self.fault = fault
        self.meant = meant
        self.left = times
        self.hits: list[Call] = []
        self.open = asyncio.Event()


class Call:
    """One call of the worker. Times by the event loop's clock. `code`: how it ended for the worker, empty while it has not."""

    __slots__ = ("answer", "began", "code", "ended", "fault", "method", "request")

    def __init__(self, method: str, request: Any, began: float) -> None:
        self.method = method
        self.request = request
        self.began = began
        self.ended = 0.0
        self.answer: Any = None
        self.code = ""
        self.fault: Fault | None = None

    @property
    def answered(self) -> bool:
        """Whether the worker got dispatch's answer."""
        return self.code == "OK"


class Said:
    """What the worker said of one task in one call: a heartbeat or a report. `status`: what it was told, 0 where the call failed or is under way."""

    __slots__ = ("call", "entry", "status")

    def __init__(self, call: Call, entry: Any) -> None:
        self.call = call
        self.entry = entry
        self.status = 0


class Held:
    """A task that was delivered to the worker, and all that it said about it."""

    __slots__ = ("beats", "reports", "since", "task")

    def __init__(self, task: api.Task, since: float) -> None:
        self.task = task
        self.since = since
        self.beats: list[Said] = []
        self.reports: list[Said] = []

    @property
    def closed(self) -> float | None:
        """When the worker was told that it is done with the task, None if it was not."""
        times = [said.call.ended for said in self.reports if said.status]
        times += [said.call.ended for said in self.beats if said.status == api.TASK_HEARTBEAT_STATUS_LEASE_LOST]
        return min(times, default=None)

    @property
    def outcome(self) -> api.TaskCompletion | None:
        """What the worker reported and was answered."""
        return next((said.entry for said in self.reports if said.status), None)


class Proxy(rpc.TaskServiceServicer):
    """The proxy and its memory. `address` is where the worker calls it, once `start` has returned."""

    def __init__(self, stub: "rpc.TaskServiceAsyncStub") -> None:
        self._stub = stub
        self._clock = asyncio.get_running_loop().time
        self._server = grpc.aio.server(
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", 16 << 20)]
        )
        self._changed = asyncio.Event()
        self.address = ""
        self.rules: list[Rule] = []
        self.calls: list[Call] = []
        self.held: dict[str, Held] = {}
        self.undelivered: list[api.Task] = []
        """Tasks that dispatch gave in an answer that did not reach the worker."""

    async def start(self) -> None:
        """Listen on a loopback port of the system's choice."""
        rpc.add_TaskServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        await self._server.start()

    async def stop(self) -> None:
        """Cut every call."""
        await self._server.stop(None)

    def rule(self, method: str, fault: Fault, **how: Any) -> Rule:
        """Let something go wrong from now on; a rule made earlier goes first. See `Rule`."""
        rule = Rule(method, fault, **how)
        self.rules.append(rule)
        return rule

    def of(self, method: str) -> list[Call]:
        """The calls of one RPC, oldest first."""
        return [call for call in self.calls if call.method == method]

    async def until(self, find: Callable[[], Found], within_s: float) -> Found:
        """What `find` gives as soon as it is something, or after `within_s` as it is then; it is asked whenever a call begins or ends."""
        deadline = self._clock() + within_s
        while not (found := find()) and (left := deadline - self._clock()) > 0:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except TimeoutError:
                return find()
        return found

    async def PollTasks(self, request: api.PollTasksRequest, context: Any) -> Any:  # noqa: N802  # the contract's name
        """Pass a poll on."""
        return await self._serve(Call(POLL, request, self._clock()), [request], context)

    async def HeartbeatTasks(self, request: api.HeartbeatTasksRequest, context: Any) -> Any:  # noqa: N802
        """Pass heartbeats on."""
        return await self._serve(Call(BEAT, request, self._clock()), request.heartbeats, context)

    async def CompleteTasks(self, request: api.CompleteTasksRequest, context: Any) -> Any:  # noqa: N802
        """Pass reports on."""
        return await self._serve(Call(REPORT, request, self._clock()), request.completions, context)

    async def DescribeQueues(self, request: api.DescribeQueuesRequest, context: Any) -> Any:  # noqa: N802
        """Pass it on; no check is about it."""
        return await self._serve(Call("DescribeQueues", request, self._clock()), [], context)

    async def _serve(self, call: Call, entries: Sequence[Any], context: Any) -> Any:
        said = self._note(call, entries)
        try:
            answer = await self._answer(call, entries, context)
        except asyncio.CancelledError:
            self._end(call, "CANCELLED")
            raise
        except grpc.aio.AioRpcError as error:
            self._end(call, error.code().name)
            metadata: Any = error.trailing_metadata() or ()
            trailers = [(key, value) for key, value in metadata if key == errors.DETAILS_KEY]
            await context.abort(error.code(), error.details() or "", tuple(trailers))
        except _Refused as refused:
            self._end(call, refused.code.name)
            await context.abort(refused.code, refused.message, refused.trailers)
        call.answer = answer
        self._end(call, "OK")
        if call.method == POLL:
            for task in answer.tasks:
                self.held[task.task_token] = Held(task, call.ended)
        for each, result in zip(said, getattr(answer, "results", ()), strict=False):
            if each is not None:
                each.status = result.status
        return answer

    async def _answer(self, call: Call, entries: Sequence[Any], context: Any) -> Any:
        rule = self._rule_for(call, entries, (Fault.AWAY, Fault.REFUSED, Fault.LEASE_LOST))
        request, lost = call.request, []
        if rule is not None and rule.fault is Fault.LEASE_LOST:
            lost = [n for n, entry in enumerate(entries) if rule.meant(entry)]
            rest = [entry for n, entry in enumerate(entries) if n not in lost]
            request = api.HeartbeatTasksRequest(heartbeats=rest)
        elif rule is not None:
            raise _AWAY if rule.fault is Fault.AWAY else _refusal()
        answer = await self._forwarded(call.method, request, context)
        tasks = list(answer.tasks) if call.method == POLL else []
        after = tasks if call.method == POLL else entries
        if (rule := self._rule_for(call, after, (Fault.ANSWER_LOST, Fault.HELD, Fault.AWAY))) is not None:
            self.undelivered += tasks
            self._changed.set()
            if rule.fault is not Fault.HELD:
                raise _LOST
            await rule.open.wait()
            self.undelivered = [task for task in self.undelivered if task not in tasks]
        for n in lost:
            told = api.TaskHeartbeatResult(
                task_token=entries[n].task_token, status=api.TASK_HEARTBEAT_STATUS_LEASE_LOST
            )
            answer.results.insert(n, told)
        return answer

    async def _forwarded(self, method: str, request: Any, context: Any) -> Any:
        metadata = [
            (key, value)
            for key, value in context.invocation_metadata() or ()
            if key in _PASSED_ON or key.startswith(_OURS)
        ]
        return await getattr(self._stub, method)(request, metadata=tuple(metadata), timeout=context.time_remaining())

    def _rule_for(self, call: Call, entries: Sequence[Any], faults: Sequence[Fault]) -> Rule | None:
        for rule in self.rules:
            if rule.method == call.method and rule.fault in faults and rule.left != 0 and any(map(rule.meant, entries)):
                rule.left = None if rule.left is None else rule.left - 1
                rule.hits.append(call)
                call.fault = rule.fault
                return rule
        return None

    def _note(self, call: Call, entries: Sequence[Any]) -> list[Said | None]:
        """Remember the call as it begins; its words about tasks, in their order, None for those of unknown tokens."""
        self.calls.append(call)
        self._changed.set()
        said: list[Said | None] = []
        for entry in entries if call.method in (BEAT, REPORT) else ():
            held = self.held.get(entry.task_token)
            said.append(None if held is None else Said(call, entry))
            if held is not None and said[-1] is not None:
                (held.beats if call.method == BEAT else held.reports).append(said[-1])
        return said

    def _end(self, call: Call, code: str) -> None:
        call.code = code
        call.ended = self._clock()
        self._changed.set()


class _Refused(Exception):
    """How a call ends that is not answered."""

    def __init__(self, code: grpc.StatusCode, message: str, trailers: tuple[tuple[str, bytes], ...] = ()) -> None:
        super().__init__(message)
        self.code, self.message, self.trailers = code, message, trailers


_AWAY: Final = _Refused(grpc.StatusCode.UNAVAILABLE, "the conformance: dispatch is away")
_LOST: Final = _Refused(grpc.StatusCode.UNAVAILABLE, "the conformance: the answer is lost")


def _refusal() -> _Refused:
    status = errors.to_status(errors.field_invalid("completions[0]", "is refused by the conformance"))
    return _Refused(grpc.StatusCode.INVALID_ARGUMENT, status.message, errors.trailing(status))
