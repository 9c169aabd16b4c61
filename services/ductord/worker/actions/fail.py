"""`core:fail`: fails as told, for trials of retries and error paths."""

from typing import Any

from ductord.worker.context import ActionContext, ActionError


def fail(args: Any, context: ActionContext) -> Any:
    """Fails with `code` and `message`; with `times` only while the attempt's number is at most that, then returns {}."""
    if context.attempt > args.get("times", context.attempt):
        return {}
    raise ActionError(args.get("code", "UNKNOWN"), args.get("message", "core:fail was told to fail"))
