"""What an action is given besides its args, and how it says that it failed. Actions import this and nothing else of the worker.

An action is a function of `(args, context)`. A plain `def` is run at once inside the loop: only for what neither waits nor computes for long. Everything
else is `async def`; its task is cancelled when the attempt's time is over, when the run asks for it, or when the worker drains.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from ductord.model import jsonvalue

PlainAction = Callable[[Any, "ActionContext"], Any]
AsyncAction = Callable[[Any, "ActionContext"], Awaitable[Any]]
Action = PlainAction | AsyncAction
"""Returns the output: any value that JSON can carry exactly (rulings L5, L6)."""


class ActionError(Exception):
    """A failure with a code that the retry rules judge (A1, A2). `code`: a gRPC code's name, `HTTP_503`, or one of the action's own.

    `non_retryable`: another try is useless. `retry_after_ms`: the pause before the next attempt, where the action knows better than the step.
    """

    def __init__(
        self, code: str, message: str, *, non_retryable: bool = False, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.non_retryable = non_retryable
        self.retry_after_ms = retry_after_ms


class ActionContext(msgspec.Struct, frozen=True, kw_only=True):
    """The attempt that the action works for.

    `idempotency_key` goes along with every effect (A6); `previous_details` is the progress of an earlier attempt (A5).
    """

    tenant_id: str
    run_id: str
    step_ref: str
    item_index: int | None
    attempt: int
    idempotency_key: str
    traceparent: str
    previous_details: Any
    on_progress: Callable[[str], None]

    def progress(self, details: Any) -> None:
        """Tell how far the action is: feeds the heartbeat time-out, and the next attempt gets it. Raises `PayloadInvalid` for what JSON cannot carry.

        Sent with the next heartbeat; of several in between only the last.
        """
        self.on_progress(jsonvalue.encode(details, root="details"))
