"""`wait`: the run goes on at a moment, when a condition is true, when an external event comes or when an interaction is resolved.

A moment that is past when the step begins wakes it at once; otherwise only a due timer does, so a wait is never early. What cannot be waited for
(negative, without a zone, null, beyond ten years) fails the step with `wait_invalid`, which is not retried.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ductord.engine import events_wait, faults, moments, waiting
from ductord.engine.errors import EngineError
from ductord.engine.expressions import ExpressionError
from ductord.engine.reading import bindings
from ductord.engine.steps.parked import PARKED
from ductord.engine.tick import Tick
from ductord.model.effects import SettleSignal, Subscription, TakeReceipts
from ductord.model.enums import SignalStatus, SignalVerb, TimerKind, WaitingType
from ductord.model.errors import PayloadInvalid
from ductord.model.fault import Fault
from ductord.model.inbox import Receipt, Signal
from ductord.model.run import Waiting
from ductord.model.specs import Template, WaitSpec

TIMEOUT: Final = "timeout"
"""`woken_by` of a wait that its time-out ended by `continue`."""


class _Prepared(msgspec.Struct, frozen=True, kw_only=True):
    """What a wait waits for, worked out. `subscription`: of an event wait."""

    type: WaitingType
    due_time: datetime | None = None
    subscription: Subscription | None = None


def prepare(tick: Tick, index: int) -> _Prepared:
    """Work out the moment or the event. Raises `ExpressionError`, also with the code `wait_invalid`."""
    spec = _spec(tick, index)
    if spec.event is not None:
        return _Prepared(type=WaitingType.EVENT, subscription=events_wait.subscription(tick, spec.event))
    if spec.signal:
        return _Prepared(type=WaitingType.SIGNAL)
    if spec.until is not None:
        return _Prepared(type=WaitingType.TIMER, due_time=tick.after(spec.interval_ms))
    return _Prepared(type=WaitingType.TIMER, due_time=_moment(tick, spec))


def start(tick: Tick, index: int, prepared: _Prepared) -> None:
    """Park the node."""
    spec = _spec(tick, index)
    subscription = prepared.subscription
    wait = Waiting(
        type=prepared.type,
        since=tick.now,
        due_time=prepared.due_time,
        timeout_time=tick.after(spec.timeout_ms) if spec.timeout_ms is not None else None,
        event_name=subscription.event_name if subscription is not None else "",
        correlation_key=subscription.correlation_key if subscription is not None else "",
        signal=spec.signal,
    )
    waiting.park(tick, index, wait, (subscription,) if subscription is not None else ())


def on_timer(tick: Tick, index: int, kind: TimerKind) -> None:
    """The moment has come, a condition is looked at again, or the time is over. A moment that falls on the time-out has come."""
    spec, wait = _spec(tick, index), waiting.of(tick, index)
    if spec.until is not None and kind is TimerKind.WAIT:
        if not _is_true(tick, index, spec):
            waiting.changed(tick, index, replace(wait, due_time=tick.after(spec.interval_ms)))
        return
    if kind is TimerKind.WAIT or (
        spec.until is None and wait.due_time is not None and wait.due_time == wait.timeout_time
    ):
        _wake(tick, index, _kind_of(spec))
        return
    message = f"the step waited longer than timeout_ms {spec.timeout_ms}"
    output = {"woken_by": TIMEOUT, "fired_at": moments.written(tick.now)}
    waiting.on_timeout(tick, index, spec.on_timeout, Fault(code=faults.WAIT_TIMEOUT, message=message), output)


def look(tick: Tick, index: int) -> None:
    """The run has changed, or the node was parked just now: a condition may be true, and a moment may have been past from the start."""
    spec, wait = _spec(tick, index), waiting.of(tick, index)
    if spec.until is not None:
        _is_true(tick, index, spec)
    elif wait.due_time is not None and wait.due_time <= wait.since:
        _wake(tick, index, _kind_of(spec))


def on_signal(tick: Tick, index: int, signal: Signal) -> None:
    """An interaction with the step is resolved; the payload becomes part of its output. Any other word changes nothing."""
    spec = _spec(tick, index)
    if not spec.signal or signal.verb is not SignalVerb.RESOLVE_INTERACTION:
        message = "the step waits for no decision" if spec.signal else "the step waits for no signal"
        tick.do(SettleSignal(request_id=signal.request_id, status=SignalStatus.IGNORED, message=message))
        return
    payload = tick.payload(signal.key)
    if payload is msgspec.UNSET:
        return
    tick.do(SettleSignal(request_id=signal.request_id, status=SignalStatus.APPLIED, decided=True))
    merged = payload if isinstance(payload, dict) else {} if payload is None else {"payload": payload}
    _wake(tick, index, "signal", merged)


def on_receipts(tick: Tick, index: int, receipts: Sequence[Receipt]) -> None:
    """The event has come; of several the first counts."""
    event = events_wait.shown(tick, index, receipts[0])
    if event is None:
        return
    ref = tick.manifest.steps[index].ref
    ids = tuple(receipt.event_id for receipt in receipts)
    tick.do(TakeReceipts(step_ref=ref, attempt=tick.work.nodes[index].attempt, event_ids=ids))
    _wake(tick, index, "event", {"event": event})


def _moment(tick: Tick, spec: WaitSpec) -> datetime:
    """When a wait for a moment is over, in UTC."""
    source = spec.cron
    try:
        if spec.cron:
            due = moments.next_tick(spec.cron, spec.timezone, tick.now)
        elif spec.duration is not None:
            source = str(spec.duration.tree)
            due = tick.now + moments.duration(_text(tick, spec.duration, "a duration"))
        elif spec.timestamp is not None:
            source = str(spec.timestamp.tree)
            due = moments.instant(_text(tick, spec.timestamp, "a time"))
        else:
            raise EngineError("MANIFEST_INVALID", "a wait waits for nothing")
        if due - tick.now > moments.LONGEST:
            raise moments.MomentInvalid("is more than ten years away")
    except moments.MomentInvalid as invalid:
        raise ExpressionError(source, f"its value {invalid}", code=faults.WAIT_INVALID) from None
    return due


def _text(tick: Tick, template: Template, what: str) -> str:
    value: Any = tick.programs.render(template, bindings(tick, template))
    if isinstance(value, str):
        return value
    if value is None:
        raise moments.MomentInvalid(f"is null, not {what}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        raise moments.MomentInvalid(f"is a number, not {what}: write it as text, a duration with its unit")
    raise moments.MomentInvalid(f"is not {what}")


def _is_true(tick: Tick, index: int, spec: WaitSpec) -> bool:
    """Look at the condition and end the wait if it is true, or cannot be evaluated (L4). True also where the answer has to wait for outputs."""
    assert spec.until is not None
    if tick.lacks(spec.until.steps):
        return True
    try:
        if not tick.programs.condition(spec.until, bindings(tick, spec.until)):
            return False
    except ExpressionError as error:
        waiting.fail(tick, index, faults.of_expression(error))
        return True
    _wake(tick, index, "until_expr")
    return True


def _wake(tick: Tick, index: int, woken_by: str, more: dict[str, Any] | None = None) -> None:
    output = {**(more or {}), "woken_by": woken_by, "fired_at": moments.written(tick.now)}
    try:
        waiting.succeed(tick, index, output)
    except PayloadInvalid as error:
        waiting.fail(tick, index, faults.of_payload(error))


def _kind_of(spec: WaitSpec) -> str:
    if spec.cron:
        return "cron"
    return "duration" if spec.duration is not None else "timestamp"


def _spec(tick: Tick, index: int) -> WaitSpec:
    step = tick.manifest.steps[index]
    if step.wait is None:
        raise EngineError("MANIFEST_INVALID", f"step {step.ref} waits for nothing")
    return step.wait


KIND = replace(
    PARKED, prepare=prepare, start=start, on_timer=on_timer, on_signal=on_signal, on_receipts=on_receipts, look=look
)
