"""`scatter` in mode `child_workflow`: one child run per element of a list (rulings F1, F5).

As a scatter it begins as many at once as it may, and tolerates as many failures as it says; as a step with child runs it is parked, and shares what those have
in common (`engine.fans.runs`). Inline children are `scatter`.
"""

from msgspec.structs import replace

from ductord.engine.errors import EngineError
from ductord.engine.fans import births, counting, expanding, resuming, runs
from ductord.engine.steps.bearing import BEARING
from ductord.engine.tick import Tick
from ductord.model.enums import WaitingType
from ductord.model.inbox import ChildFact
from ductord.model.run import Waiting


def prepare(tick: Tick, index: int) -> births.Brood | resuming.Again | None:
    """Evaluate the list, find the version, and try the input of the first item; of a step that has children, see how they stand. Raises `ExpressionError`,
    `PayloadInvalid` and `NodeFault`."""
    spec = tick.manifest.steps[index].scatter
    if spec is None:
        raise EngineError("MANIFEST_INVALID", f"step {tick.manifest.steps[index].ref} is a scatter without items")
    if tick.work.nodes[index].fan is not None:
        return resuming.prepare(tick, index)
    return births.brood(tick, index, spec.items)


def start(tick: Tick, index: int, prepared: births.Brood | resuming.Again) -> None:
    """Park the node; children are born at the end of the tick. A node that has nothing to wait for ends at once (SG-01)."""
    wait = Waiting(type=WaitingType.CHILD, since=tick.now)
    if isinstance(prepared, resuming.Again):
        resuming.start(tick, index, prepared, wait)
    else:
        births.expand(tick, index, prepared, wait)
    if counting.over(tick, index):
        finish(tick, index)


def on_child(tick: Tick, index: int, fact: ChildFact) -> None:
    """A child has ended; the last one ends the node."""
    runs.count(tick, index, fact, runs.fault_of(fact))
    if counting.over(tick, index):
        finish(tick, index)


def finish(tick: Tick, index: int) -> None:
    """All children have ended."""
    counting.finish(tick, index, lambda: counting.counts(expanding.fan_of(tick, index)))


KIND = replace(BEARING, prepare=prepare, start=start, on_child=on_child, finish=finish, call_off=runs.call_off)
