"""What the kinds of all steps have in common whose children are runs: the node is parked, and nobody is at work for it here (rulings F5, C2, C3).

A type takes `BEARING` and says what is its own: at least `prepare`, `start`, `on_child` and `finish`. Of a list of children the first two are here.
"""

from typing import Final

from msgspec.structs import replace

from ductord.engine import attempts
from ductord.engine.fans import births, resuming, runs
from ductord.engine.steps.kind import StepKind
from ductord.engine.steps.parked import PARKED
from ductord.engine.tick import Tick
from ductord.model.enums import WaitingType
from ductord.model.run import Waiting
from ductord.model.specs import Expression


def prepare_list(tick: Tick, index: int, items: Expression) -> births.Brood | resuming.Again | None:
    """The collection, the version that runs for each of its items, and the first item's input; of a node that has children, how those stand. None where
    something is still to be loaded. Raises `ExpressionError`, `PayloadInvalid` and `NodeFault`."""
    if tick.work.nodes[index].fan is not None:
        return resuming.prepare(tick, index)
    return births.brood(tick, index, items)


def start_list(tick: Tick, index: int, prepared: births.Brood | resuming.Again) -> None:
    """Park the node, or let it go on with the children that it has; they are born at the end of the tick."""
    wait = Waiting(type=WaitingType.CHILD, since=tick.now)
    if isinstance(prepared, resuming.Again):
        resuming.start(tick, index, prepared, wait)
    else:
        births.expand(tick, index, prepared, wait)


BEARING: Final[StepKind] = replace(
    PARKED,
    ask=runs.ask,
    drop=runs.drop,
    reset=runs.reset,
    retime=attempts.retime,
    fill=runs.fill,
)
