"""Whether an external event is one that a wait listens for (ruling E3): asked by whoever publishes, and by whoever opens a wait with kept events in store.

Names and correlation keys are compared by the database; what is judged here is the wait's filter, a CEL bool over EVENT and nothing else.
"""

from collections.abc import Iterable

from ductord.engine import moments
from ductord.engine.expressions import Bindings, ExpressionError, holds, one_decision
from ductord.model.inbox import External
from ductord.model.jsonvalue import JSON


def event_seen(event: External) -> dict[str, JSON]:
    """EVENT, as expressions read it."""
    return {
        "name": event.event_name,
        "id": event.event_id,
        "correlation_key": event.correlation_key,
        "payload": event.payload,
        "time": moments.written(event.time),
    }


def passes(source: str, event: External) -> bool:
    """Whether the filter lets the event through; an empty one lets all through. Raises `ExpressionError`: a bad expression concerns its own wait alone."""
    with one_decision():
        return _passes(source, event)


def lets_through(source: str, event: External) -> bool:
    """The same, where an expression that fails does not match."""
    return bool(among(source, (event,)))


def among(source: str, events: Iterable[External]) -> list[External]:
    """Those that the filter lets through. It has one budget for all of them: once that is spent, none of the others matches."""
    through = []
    with one_decision():
        for event in events:
            try:
                if _passes(source, event):
                    through.append(event)
            except ExpressionError:
                continue
    return through


def _passes(source: str, event: External) -> bool:
    if not source:
        return True
    return holds(source, Bindings(event=event_seen(event)))
