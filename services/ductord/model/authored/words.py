"""The words that the parts of a definition are made of: names, expressions, durations, and what every part has in common."""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

STEP_REF_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$"
FAMILY_SLUG_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,127}$"
VARIABLE_PATTERN: Final = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
NAME_PATTERN: Final = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$"
ACTION_PATTERN: Final = r"^[A-Za-z0-9_-]{1,64}(:[A-Za-z0-9_.-]{1,128}|(\.[A-Za-z0-9_-]{1,64}){2,4})$"
CODE_PATTERN: Final = r"^[A-Za-z0-9_.:-]{1,128}$"
MAX_DURATION_MS: Final = (1 << 31) - 1
"""24.8 days: what the contract's int32 carries, so that no door can say more than another."""
MAX_ATTEMPTS: Final = 10_000

StepRef = Annotated[str, Field(pattern=STEP_REF_PATTERN)]
Name = Annotated[str, Field(pattern=NAME_PATTERN)]
Code = Annotated[str, Field(pattern=CODE_PATTERN)]
Cel = Annotated[str, Field(min_length=1, description="A bare CEL expression.")]
DelayMs = Annotated[int, Field(ge=0, le=MAX_DURATION_MS)]
TimeoutMs = Annotated[int, Field(ge=1, le=MAX_DURATION_MS)]


class Part(BaseModel):
    """Strict: a number is not a string and `1` is not true, whatever the door (YM-01)."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
