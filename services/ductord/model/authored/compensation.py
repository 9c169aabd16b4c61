"""What an author writes about undoing a step (ruling C7)."""

from typing import Annotated, Any, Final

from pydantic import Field

from ductord.model.authored.words import ACTION_PATTERN, MAX_ATTEMPTS, DelayMs, Name, Part, TimeoutMs
from ductord.model.enums import FailurePolicy

MAX_INVERSES: Final = 20
"""Actions of one block of a compensation: they run one after the other."""


class CompensatingAction(Part):
    """One inverse or final action of a step (ruling C7)."""

    action: Annotated[str, Field(pattern=ACTION_PATTERN, description="`provider:action`.")]
    args: Annotated[dict[str, Any], Field(description="JSON; strings may hold ${{ CEL }} over OUTPUT too.")] | None = (
        None
    )
    retry_max_attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS, description="Counts the first.")] | None = None
    retry_backoff_ms: Annotated[DelayMs, Field(description="Doubles with each retry.")] | None = None
    timeout_ms: Annotated[TimeoutMs, Field(description="Of one attempt.")] | None = None
    queue: Annotated[Name, Field(description="Queue that a worker polls; the step's own by default.")] | None = None


CompensatingActions = Annotated[list[CompensatingAction], Field(max_length=MAX_INVERSES)]


class Compensation(Part):
    """What undoes a step when the run fails or is cancelled, and what always runs last (ruling C7)."""

    on_failure: (
        Annotated[CompensatingActions, Field(description="Undo the step when the run fails or times out.")] | None
    ) = None
    on_cancel: Annotated[CompensatingActions, Field(description="Undo it when the run is cancelled.")] | None = None
    final: Annotated[
        Annotated[CompensatingActions, Field(description="Run last, whatever the end of the run.")] | None,
        Field(alias="finally"),
    ] = None
    failure_policy: (
        Annotated[FailurePolicy, Field(strict=False, description="What a failed action here leads to.")] | None
    ) = None
