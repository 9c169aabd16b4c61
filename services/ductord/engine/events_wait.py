"""Waits for external events: what a step subscribes to, and how an event that came is shown (ruling E3). Shared by `wait` and `event_set`.

Matching happens where an event is published; nothing here compares events with patterns.
"""

from typing import Any

import msgspec

from ductord.engine import faults, moments
from ductord.engine.expressions import ExpressionError
from ductord.engine.reading import bindings
from ductord.engine.tick import Tick
from ductord.model.canonical import canonical
from ductord.model.effects import Subscription
from ductord.model.inbox import Receipt, receipt_key
from ductord.model.jsonvalue import MAX_KEY_BYTES
from ductord.model.run import Received
from ductord.model.specs import EventPattern, Expression, Template


def subscription(tick: Tick, pattern: EventPattern) -> Subscription:
    """The pattern of a wait step with its expressions evaluated. Raises `ExpressionError`, also with the code `wait_invalid`."""
    name = event_name(tick, pattern.event_name)
    if pattern.correlation_key is None:
        return Subscription(event_name=name, any_key=True)
    return Subscription(event_name=name, correlation_key=correlation_key(tick, pattern.correlation_key))


def event_name(tick: Tick, template: Template) -> str:
    """The name of the event waited for. Raises `ExpressionError`."""
    value = tick.programs.render(template, bindings(tick, template))
    return _key(value, str(template.tree), "an event's name")


def correlation_key(tick: Tick, expression: Expression) -> str:
    """The key that an event must carry: a string as it is, any other value as its canonical JSON text. Raises `ExpressionError`."""
    value = tick.programs.value(expression, bindings(tick, expression))
    if value is not None and not isinstance(value, str):
        value = canonical(value).decode()
    return _key(value, expression.source, "a correlation key")


def received(receipt: Receipt) -> Received:
    """An event that counts, as the wait keeps it."""
    return Received(
        event_id=receipt.event_id, event_name=receipt.event_name, time=receipt.time, requirement=receipt.requirement
    )


def shown(tick: Tick, index: int, one: Receipt | Received) -> dict[str, Any] | None:
    """An event that came to the node's wait, as outputs show it; None where its payload was not given, which is then noted as missing."""
    step, attempt = tick.manifest.steps[index], tick.work.nodes[index].attempt
    payload = tick.payload(receipt_key(step.ref, attempt, one.event_name, one.event_id))
    if payload is msgspec.UNSET:
        return None
    requirement = {"requirement": one.requirement} if one.requirement else {}
    return {
        **requirement,
        "event_id": one.event_id,
        "event_name": one.event_name,
        "payload": payload,
        "received_at": moments.written(one.time),
    }


def _key(value: Any, source: str, what: str) -> str:
    wrong = _why_not(value)
    if wrong:
        raise ExpressionError(source, f"its value {wrong} and cannot be {what}", code=faults.WAIT_INVALID)
    return str(value)


def _why_not(value: Any) -> str:
    if value is None:
        return "is null"
    if not isinstance(value, str):
        return "is no text"
    if not value:
        return "is empty"
    if len(value.encode()) > MAX_KEY_BYTES:
        return f"is longer than {MAX_KEY_BYTES} bytes"
    return ""
