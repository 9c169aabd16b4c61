"""`scatter`: one child per element of a list, each a task of the run itself or a run of its own (rulings F1, F5). Its modes are two kinds, `KIND` and `RUNS`.

It begins where a step that parks does, for it has nothing yet that a worker could be told to do, and an empty list ends it at once.
"""

from typing import Any

import msgspec
from msgspec.structs import replace

from ductord.engine import attempts, waiting
from ductord.engine.errors import EngineError
from ductord.engine.fans import births, counting, expanding, items, making, resuming, runs
from ductord.engine.fans.expanding import Collection, fan_of
from ductord.engine.steps.bearing import BEARING, prepare_list, start_list
from ductord.engine.steps.kind import StepKind
from ductord.engine.tick import Tick
from ductord.model.fanout import ScatterSpec
from ductord.model.inbox import ChildFact
from ductord.model.needs import ItemsNeed

Ranges = tuple[tuple[int, int], ...]


def prepare(tick: Tick, index: int) -> Collection | Ranges | None:
    """The collection; of a redriven node that goes on with the children that it has, those that begin anew (F4). Raises `ExpressionError`, `NodeFault` and
    `PayloadInvalid`: whatever is wrong with the whole collection, or with the args of its first child, is found before any child begins."""
    node = tick.work.nodes[index]
    if node.fan is not None:
        return _unsuccessful(tick, index)
    spec = _spec(tick, index)
    width = spec.max_inline_children if spec.max_inline_children is not None else tick.limits.max_inline_children
    collection = expanding.freeze(tick, spec.items, width)
    if collection.items:
        making.rendering(tick, index)(collection.items[0], 0)
    return collection


def start(tick: Tick, index: int, prepared: Collection | Ranges) -> None:
    """Expand, or go on; a node that has nothing to wait for ends at once."""
    if isinstance(prepared, Collection):
        expanding.expand(tick, index, prepared)
    else:
        expanding.resume(tick, index, prepared)
    if counting.over(tick, index):
        finish(tick, index)


def finish(tick: Tick, index: int) -> None:
    """All children have ended."""
    counting.finish(tick, index, lambda: counting.counts(fan_of(tick, index)))


def prepare_runs(tick: Tick, index: int) -> births.Brood | resuming.Again | None:
    """The collection, the version that runs for each of its items, and the first item's input; of a node that has children, how those stand. Raises as
    `prepare` does."""
    return prepare_list(tick, index, _spec(tick, index).items)


def start_runs(tick: Tick, index: int, prepared: births.Brood | resuming.Again) -> None:
    """Park the node, or let it go on; one that has nothing to wait for ends at once."""
    start_list(tick, index, prepared)
    if counting.over(tick, index):
        finish(tick, index)


def on_child(tick: Tick, index: int, fact: ChildFact) -> None:
    """A child run has ended; the last one ends the node."""
    runs.count(tick, index, fact, runs.fault_of(fact))
    if counting.over(tick, index):
        finish(tick, index)


def _unsuccessful(tick: Tick, index: int) -> Ranges | None:
    """The children that had begun and did not succeed; None, and noted as missing, where they are not known yet."""
    fan = fan_of(tick, index)
    rows: Any = tick.given(ItemsNeed(tick.manifest.steps[index].ref, fan.next)) if fan.next else ()
    if rows is msgspec.UNSET:
        return None
    return resuming.ranges(row.item_index for row in rows)


def _spec(tick: Tick, index: int) -> ScatterSpec:
    step = tick.manifest.steps[index]
    if step.scatter is None:
        raise EngineError("MANIFEST_INVALID", f"step {step.ref} is a scatter without items")
    return step.scatter


KIND = StepKind(
    prepare=prepare,
    start=start,
    again=waiting.again,
    may_report=items.may_report,
    ask=items.ask,
    drop=items.drop,
    hold=attempts.hold,
    release=attempts.release,
    retime=attempts.retime,
    reset=items.reset,
    fill=making.fill,
    finish=finish,
    call_off=items.call_off,
    parks=True,
)

RUNS = replace(
    BEARING,
    prepare=prepare_runs,
    start=start_runs,
    on_child=on_child,
    finish=finish,
    call_off=runs.call_off,
)
