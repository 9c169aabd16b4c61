"""`action`: render the args, queue an attempt, let a worker do it. What becomes of the attempt is `engine.attempts`."""

from ductord.engine import attempts
from ductord.engine.errors import EngineError
from ductord.engine.reading import bindings
from ductord.engine.steps.kind import StepKind
from ductord.engine.tick import Again, Tick
from ductord.model import jsonvalue
from ductord.model.specs import ActionSpec


def prepare(tick: Tick, index: int) -> str:
    """The rendered args as JSON text (L3), or what a reset put in their place (C5). Raises `ExpressionError` (L4), and `PayloadInvalid` for more than a
    payload may hold (L7): a small definition can repeat a large input often."""
    args = _spec(tick, index).args
    overrides, ref = tick.inbox.start.overrides, tick.manifest.steps[index].ref
    if ref in overrides:
        rendered = overrides[ref]
    elif args.static:
        return jsonvalue.dumps(args.tree)
    else:
        rendered = tick.programs.render(args, bindings(tick, args))
    text = jsonvalue.encode(rendered, root="args", max_bytes=tick.limits.payload_max_bytes)
    tick.weigh(text)
    return text


def start(tick: Tick, index: int, prepared: str) -> None:
    """Queue the first attempt with the rendered args."""
    attempts.queue_first(tick, index, _spec(tick, index).action, prepared)


def again(tick: Tick, index: int, decided: Again) -> None:
    """Queue a further attempt with the same input."""
    attempts.queue_again(tick, index, _spec(tick, index).action, decided)


def _spec(tick: Tick, index: int) -> ActionSpec:
    step = tick.manifest.steps[index]
    if step.action is None:
        raise EngineError("MANIFEST_INVALID", f"step {step.ref} is an action without an action")
    return step.action


KIND = StepKind(
    prepare=prepare,
    start=start,
    again=again,
    may_report=attempts.at_work,
    ask=attempts.ask,
    drop=attempts.drop,
    hold=attempts.hold,
    release=attempts.release,
    retime=attempts.retime,
    reset=attempts.reset,
)
