"""`scatter`, inline: one child per element of a list, each a task of the run itself (ruling F1). Children that are runs are `scatter_runs`.

It begins where a step that parks does, for it has nothing yet that a worker could be told to do, and an empty list ends it at once.
"""

from typing import Any

import msgspec

from ductord.engine import attempts, waiting
from ductord.engine.errors import EngineError
from ductord.engine.fans import counting, expanding, items, making
from ductord.engine.fans.expanding import Collection, fan_of
from ductord.engine.steps.kind import StepKind
from ductord.engine.tick import Tick
from ductord.model.fanout import ScatterSpec
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
    collection = expanding.freeze(tick, index, spec.items, width)
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


def ranges_of(numbers: list[int]) -> Ranges:
    """Ascending numbers as ranges (first, count)."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and sum(ranges[-1]) == number:
            ranges[-1] = (ranges[-1][0], ranges[-1][1] + 1)
        else:
            ranges.append((number, 1))
    return tuple(ranges)


def _unsuccessful(tick: Tick, index: int) -> Ranges | None:
    """The children that had begun and did not succeed; None, and noted as missing, where they are not known yet."""
    fan = fan_of(tick, index)
    rows: Any = tick.given(ItemsNeed(tick.manifest.steps[index].ref, fan.next)) if fan.next else ()
    if rows is msgspec.UNSET:
        return None
    return ranges_of([row.item_index for row in rows])


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
