"""Whether an external event is one that a wait listens for (ruling E3): asked by whoever publishes, and by whoever opens a wait with kept events in store.

Names and correlation keys are compared by the database; what is judged here is the wait's filter, a CEL bool over EVENT and nothing else.
"""

from datetime import datetime

from ductord.engine.expressions import Bindings, ExpressionError, holds, one_decision
from ductord.model.inbox import External


def passes(source: str, event: External) -> bool:
    """Whether the filter lets the event through; an empty one lets all through. Raises `ExpressionError`: a bad expression concerns its own wait alone."""
    if not source:
        return True
    bindings = Bindings(
        event={
            "name": event.event_name,
            "id": event.event_id,
            "correlation_key": event.correlation_key,
            "payload": event.payload,
            "time": _text(event.time),
        }
    )
    with one_decision():
        return holds(source, bindings)


def lets_through(source: str, event: External) -> bool:
    """The same, where an expression that fails does not match."""
    try:
        return passes(source, event)
    except ExpressionError:
        return False


def _text(time: datetime) -> str:
    return time.isoformat(timespec="microseconds").replace("+00:00", "Z")
