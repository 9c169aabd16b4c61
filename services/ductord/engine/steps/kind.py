"""What every step type tells the engine about itself."""

from collections.abc import Callable
from typing import Any

import msgspec

from ductord.engine.tick import Tick


class StepKind(msgspec.Struct, frozen=True, kw_only=True):
    """`prepare(tick, index)` evaluates what the step needs to begin and changes nothing; it may raise `ExpressionError`. `start(tick, index,
    prepared)` begins it, at the end of the tick, when it is certain that the run goes on; it only emits."""

    prepare: Callable[[Tick, int], Any]
    start: Callable[[Tick, int, Any], None]
