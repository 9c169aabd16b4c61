"""Waits for external events: what a step subscribes to, and how an event that came is shown (ruling E3). Shared by `wait` and `event_set`.

Matching happens where an event is published; nothing here compares events with patterns.
"""

from typing import Any, Final

import msgspec

from ductord.engine import faults, moments
from ductord.engine.expressions import ExpressionError
from ductord.engine.reading import bindings
from ductord.engine.tick import Tick
from ductord.model import jsonvalue
from ductord.model.effects import Subscription
from ductord.model.inbox import Receipt
from ductord.model.manifest import EventPattern, Expression, Template

MAX_KEY_BYTES: Final = 256
"""Ruling L7: of names and correlation keys."""


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
    """The key that an event must carry: a string as it is, a number or a bool as its JSON text. Raises `ExpressionError`."""
    value = tick.programs.value(expression, bindings(tick, expression))
    if isinstance(value, bool | int | float):
        value = jsonvalue.dumps(value)
    return _key(value, expression.source, "a correlation key")


def shown(tick: Tick, receipt: Receipt) -> dict[str, Any] | None:
    """An event that came, as outputs show it; None where its payload was not given, which is then noted as missing."""
    payload = tick.payload(receipt.key)
    if payload is msgspec.UNSET:
        return None
    return {
        "event_id": receipt.event_id,
        "event_name": receipt.event_name,
        "payload": payload,
        "received_at": moments.written(receipt.time),
    }


def _key(value: Any, source: str, what: str) -> str:
    if not isinstance(value, str):
        kind = "null" if value is None else "a list" if isinstance(value, list) else "a map"
        raise ExpressionError(source, f"its value is {kind}, not {what}", code=faults.WAIT_INVALID)
    if not value:
        raise ExpressionError(source, f"its value is empty: it is {what}", code=faults.WAIT_INVALID)
    if len(value.encode()) > MAX_KEY_BYTES:
        message = f"its value is longer than {MAX_KEY_BYTES} bytes, the maximum of {what}"
        raise ExpressionError(source, message, code=faults.WAIT_INVALID)
    return value
