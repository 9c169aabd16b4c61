"""What an inverse action is given: its args, rendered over the output of the step that it undoes (rulings C7, L3)."""

from msgspec.structs import replace

from ductord.engine.reading import bindings
from ductord.engine.tick import Tick
from ductord.model import jsonvalue
from ductord.model.inbox import SourceKey
from ductord.model.run import Inverse
from ductord.model.specs import InverseSpec


def lacks(tick: Tick, entry: Inverse, action: InverseSpec) -> bool:
    """Whether something that the args read was not given; all of it is then noted as missing."""
    lacking = tick.lacks(action.args.steps)
    source = _source(tick, entry)
    if "OUTPUT" in action.args.names and source is not None and source not in tick.inbox.source_outputs:
        tick.missing_sources.add(source)
        lacking = True
    return lacking


def render(tick: Tick, entry: Inverse, action: InverseSpec) -> str:
    """The args as JSON text; OUTPUT is null where the step has none. Raises `ExpressionError` (L4), and `PayloadInvalid` for more than a payload may
    hold (L7)."""
    args = action.args
    if args.static:
        return jsonvalue.dumps(args.tree)
    source = _source(tick, entry)
    output = tick.inbox.source_outputs.get(source) if source is not None else None
    rendered = tick.programs.render(args, replace(bindings(tick, args), output=output))
    return jsonvalue.encode(rendered, root="args", max_bytes=tick.limits.payload_max_bytes)


def _source(tick: Tick, entry: Inverse) -> SourceKey | None:
    if not entry.source_attempt:
        return None
    return entry.source_run_id or tick.run_id, entry.step_ref, entry.item_index, entry.source_attempt
