"""`action`: render the args, queue an attempt, let a worker do it. What becomes of the attempt is `engine.attempts`."""

from typing import Any

from ductord.engine import attempts
from ductord.engine.errors import EngineError
from ductord.engine.reading import bindings
from ductord.engine.steps.kind import StepKind
from ductord.engine.tick import Tick
from ductord.model.manifest import ActionSpec


def prepare(tick: Tick, index: int) -> Any:
    """The rendered args (L3). Raises `ExpressionError` (L4)."""
    args = _spec(tick, index).args
    return args.tree if args.static else tick.programs.render(args, bindings(tick, args))


def start(tick: Tick, index: int, prepared: Any) -> None:
    """Queue the first attempt with the rendered args."""
    attempts.queue_first(tick, index, _spec(tick, index).action, prepared)


def _spec(tick: Tick, index: int) -> ActionSpec:
    step = tick.manifest.steps[index]
    if step.action is None:
        raise EngineError("MANIFEST_INVALID", f"step {step.ref} is an action without an action")
    return step.action


KIND = StepKind(prepare=prepare, start=start)
