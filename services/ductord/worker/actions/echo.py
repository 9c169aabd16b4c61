"""`core:echo`: returns its args, to see what a step was given."""

from typing import Any

from ductord.worker.context import ActionContext


def echo(args: Any, context: ActionContext) -> Any:
    """Returns the args as they came."""
    return args
