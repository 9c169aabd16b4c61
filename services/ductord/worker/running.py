"""Running one action to a completion, whatever it does: returns, raises, returns what JSON cannot carry, ignores its cancellation.

Nothing that an action does reaches beyond its own attempt (issue: a bad output fails the attempt, not the worker). No call to dispatch is made here.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from ductor.workflow.v1 import task_service_pb2 as api
from ductord.model import jsonvalue
from ductord.model.actions import BUILT_IN
from ductord.model.errors import PayloadInvalid
from ductord.model.schemas import Schema
from ductord.rpc.tracing import Span, recording, start_span
from ductord.worker.context import Action, ActionContext, ActionError

_log = logging.getLogger("ductor.worker")


class Stop(StrEnum):
    """Why an action was cancelled."""

    TIMED_OUT = "timed_out"
    ASKED = "asked"
    """The run asked for it (heartbeat reply)."""
    LOST = "lost"
    """The lease is gone: there is nobody to report to."""
    DRAIN = "drain"


class Running:
    """One leased task in this worker, from the poll's reply until dispatch has answered its report. Times by the event loop's clock."""

    __slots__ = (
        "action",
        "beat_at",
        "beat_s",
        "details",
        "ended",
        "lease_until",
        "reported",
        "started",
        "stop",
        "task",
        "timer",
        "token",
        "work",
    )

    def __init__(self, task: api.Task, asked: float, now: float) -> None:
        self.task = task
        self.token = task.task_token
        """The task's token. It and the action are asked for often, and a message makes a new text each time."""
        self.action = task.action
        self.started = now
        self.lease_until = asked + task.lease_ms / 1000
        """The lease lasts at least until here: counted from before the request that took or renewed it."""
        self.beat_s = task.heartbeat_interval_ms / 1000
        self.beat_at = asked + self.beat_s
        self.details: str | None = None
        """Progress that no heartbeat has carried yet."""
        self.stop: Stop | None = None
        self.work: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.ended = False
        """The action is through, its slot is free."""
        self.reported = False
        """A report was handed on; there is at most one."""


class Actions:
    """The actions of a worker by name. Args of a built-in name are held against its schema; `payload_max_bytes` bounds an output (L7)."""

    def __init__(self, actions: Mapping[str, Action], *, payload_max_bytes: int) -> None:
        self._actions = dict(actions)
        self._payload_max_bytes = payload_max_bytes
        self._waiting = {name for name, action in actions.items() if inspect.iscoroutinefunction(action)}
        # A schema that only asks for an object is judged without the engine.
        self._schemas = {
            name: Schema(info.args)
            for name, info in BUILT_IN.items()
            if name in actions and info.args != {"type": "object"}
        }

    @property
    def names(self) -> list[str]:
        """What to ask dispatch for."""
        return sorted(self._actions)

    def waits(self, name: str) -> bool:
        """Whether the action needs a task of its own in the event loop."""
        return name in self._waiting

    def run(self, running: Running) -> api.TaskCompletion:
        """Run a plain action."""
        try:
            with _spanned(running) as span:
                action, args, context = self._prepared(running, span)
                return self._success(running, action(args, context))
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | GeneratorExit):
                raise
            return failure_of(running.task, error)

    async def run_waiting(self, running: Running) -> api.TaskCompletion | None:
        """Run an action that waits; None when there is nobody to report to. Raises nothing, whatever the action does."""
        try:
            with _spanned(running) as span:
                action, args, context = self._prepared(running, span)
                return self._success(running, await action(args, context))
        except asyncio.CancelledError:
            return _stopped(running)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | GeneratorExit):
                raise
            return failure_of(running.task, error)

    def _prepared(self, running: Running, span: Span) -> tuple[Callable[[Any, ActionContext], Any], Any, ActionContext]:
        task = running.task
        action = self._actions.get(running.action)
        if action is None:
            raise ActionError("UNIMPLEMENTED", f"this worker has no action {running.action}")
        args = jsonvalue.parse(task.input_json, root="args", max_bytes=None)
        if not isinstance(args, dict):
            raise ActionError("INVALID_ARGUMENT", "args are not an object")
        schema = self._schemas.get(running.action)
        if schema is not None and (faults := schema.faults(args, root="args")):
            raise ActionError("INVALID_ARGUMENT", "; ".join(f"{fault.path}: {fault.message}" for fault in faults[:5]))
        return action, args, _context(running, span)

    def _success(self, running: Running, output: Any) -> api.TaskCompletion:
        text = jsonvalue.encode(output, root="output", max_bytes=self._payload_max_bytes)
        completion = api.TaskCompletion(task_token=running.token)
        completion.success.output_json = text
        return completion


def failure_of(task: api.Task, error: BaseException) -> api.TaskCompletion:
    """The failure that an exception stands for. What nobody foresaw is UNKNOWN, and logged with its traceback."""
    if isinstance(error, ActionError):
        return failed(
            task, error.code, error.message, non_retryable=error.non_retryable, retry_after_ms=error.retry_after_ms
        )
    if isinstance(error, PayloadInvalid):
        code = "payload_too_large" if error.reason == "too_large" else "payload_invalid"
        return failed(task, code, error.message, non_retryable=True)
    _log.warning("action %s raised", task.action, exc_info=error, extra=ids_of(task))
    return failed(task, "UNKNOWN", _described(error))


def ids_of(task: api.Task) -> dict[str, object]:
    """What a log line about a task carries."""
    return {
        "tenant_id": task.tenant_id,
        "run_id": task.run_id,
        "step_ref": task.step_ref,
        "item_index": task.item_index if task.HasField("item_index") else None,
        "attempt": task.attempt,
        "action": task.action,
        "trace_id": task.traceparent[3:35],
    }


def failed(
    task: api.Task, code: str, message: str, *, non_retryable: bool = False, retry_after_ms: int | None = None
) -> api.TaskCompletion:
    """A failure, fit to be sent and stored (L6, PL-01)."""
    failure = api.TaskFailure(
        code=jsonvalue.storable_text(str(code), max_chars=128),
        message=jsonvalue.storable_text(str(message)),
        non_retryable=non_retryable,
        retry_after_ms=None if retry_after_ms is None else min(max(int(retry_after_ms), 0), 2**31 - 1),
    )
    return api.TaskCompletion(task_token=task.task_token, failure=failure)


def released(task: api.Task) -> api.TaskCompletion:
    """The task goes back unfinished (KB-01)."""
    return api.TaskCompletion(task_token=task.task_token, release=api.TaskRelease(reason="the worker is draining"))


_STOPPED: Final = {
    Stop.TIMED_OUT: ("DEADLINE_EXCEEDED", "the attempt's time-out passed"),
    Stop.ASKED: ("CANCELLED", "the run asked the attempt to stop"),
}


def _stopped(running: Running) -> api.TaskCompletion | None:
    if running.stop is None:
        return failed(running.task, "UNKNOWN", "the action cancelled itself")
    if running.stop is Stop.DRAIN:
        return released(running.task)
    if running.stop is Stop.LOST:
        return None
    return failed(running.task, *_STOPPED[running.stop])


def timed_out(task: api.Task) -> api.TaskCompletion:
    """The report of an attempt whose time is over, while its action may still be on its way out."""
    return failed(task, *_STOPPED[Stop.TIMED_OUT])


def _context(running: Running, span: Span) -> ActionContext:
    task = running.task
    previous = task.heartbeat_details_json if task.HasField("heartbeat_details_json") else ""
    return ActionContext(
        tenant_id=task.tenant_id,
        run_id=task.run_id,
        step_ref=task.step_ref,
        item_index=task.item_index if task.HasField("item_index") else None,
        attempt=task.attempt,
        idempotency_key=task.idempotency_key,
        traceparent=span.traceparent,
        previous_details=jsonvalue.parse(previous, root="details", max_bytes=None) if previous else None,
        on_progress=lambda details: setattr(running, "details", details),
    )


def _spanned(running: Running) -> Span:
    task = running.task
    attributes: dict[str, str | int | float | bool] | None = None
    if recording():
        attributes = {
            "ductor.tenant_id": task.tenant_id,
            "ductor.run_id": task.run_id,
            "ductor.step_ref": task.step_ref,
            "ductor.attempt": task.attempt,
        }
    return start_span(f"action {running.action}", traceparent=task.traceparent, attributes=attributes, kind="consumer")


def _described(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = str(error)
    except Exception:  # an exception whose text raises is still a failure of its attempt
        return name
    return f"{name}: {text}" if text else name
