"""`noop:noop`: does nothing. For graphs whose shape is the point, and for measuring what a step costs."""

from typing import Any

from ductord.worker.context import ActionContext


def noop(args: Any, context: ActionContext) -> Any:
    """Returns {}."""
    return {}
