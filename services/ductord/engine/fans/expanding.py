"""Expanding: a collection becomes the fan of a node, frozen with its width in the commit that expands it (rulings F1, F3; field case SG-02).

The items stand in pages from then on, beside the run and not in it: a tick reads the pages of the children that it begins.
"""

from typing import Any

import msgspec

from ductord.engine import faults, policy
from ductord.engine.expressions import ExpressionError, described
from ductord.engine.reading import bindings
from ductord.engine.tick import Tick
from ductord.model import jsonvalue
from ductord.model.effects import SetTimer
from ductord.model.enums import TimerKind
from ductord.model.fan import Fan, Workflow
from ductord.model.fan_effects import RecordItems
from ductord.model.fan_events import FanExpanded, FanResumed
from ductord.model.fanout import MAX_CHILDREN, PAGE
from ductord.model.needs import PageNeed
from ductord.model.run import Waiting
from ductord.model.specs import Expression

_NO_WORKFLOW = Workflow(tier="")


class Collection(msgspec.Struct, frozen=True):
    """An evaluated collection that can be carried. `pages`: its items as they are stored. `width`: how many there might have been."""

    items: list[Any]
    pages: tuple[str, ...]
    width: int


def freeze(tick: Tick, expression: Expression, width: int = MAX_CHILDREN) -> Collection:
    """Evaluate the collection of a step, once. Raises `ExpressionError` for anything but a list (F1), `NodeFault` for more than `width` items, and
    `PayloadInvalid` for an item or a collection that cannot be carried (L7). No child has begun by then."""
    found = tick.programs.value(expression, bindings(tick, expression))
    if not isinstance(found, list):
        raise ExpressionError(expression.source, f"the children's items must be a list, this is {described(found)}")
    width = min(width, MAX_CHILDREN)
    if len(found) > width:
        message = f"expression `{expression.source}` gives {len(found):,} items, and there may be {width:,} children"
        raise faults.NodeFault(faults.FAN_TOO_WIDE, message)
    return Collection(found, _pages(tick, found), width)


def expand(
    tick: Tick, index: int, collection: Collection, *, waiting: Waiting | None = None, workflow: Workflow = _NO_WORKFLOW
) -> None:
    """Let the node begin with so many children, of which none has begun. `waiting`, `workflow`: where the children are runs."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    attempt = node.attempt + 1
    tick.emit(
        FanExpanded(
            step_ref=step.ref,
            attempt=attempt,
            expected=len(collection.items),
            width=collection.width,
            definition_id=workflow.definition_id,
            version_id=workflow.version_id,
            version=workflow.version,
            tier=workflow.tier,
            waiting=waiting,
        )
    )
    if collection.pages:
        tick.do(RecordItems(step_ref=step.ref, attempt=attempt, pages=collection.pages))
    for number in range(len(collection.pages)):
        page = collection.items[number * PAGE : (number + 1) * PAGE]
        tick.made[PageNeed(step.ref, attempt, number)] = page
    _time(tick, index)


def resume(tick: Tick, index: int, again: tuple[tuple[int, int], ...], waiting: Waiting | None = None) -> None:
    """Let a redriven node go on with the children that it has: those of `again` begin anew, and those that never began (F4)."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    tick.emit(FanResumed(step_ref=step.ref, attempt=node.attempt + 1, again=again, waiting=waiting))
    _time(tick, index)


def items(tick: Tick, index: int, first: int, count: int) -> list[Any] | None:
    """The items `first` to `first + count - 1` of a node's frozen collection; None, and noted as missing, where they were not given."""
    ref, fan = tick.manifest.steps[index].ref, fan_of(tick, index)
    numbers = range(first // PAGE, (first + count - 1) // PAGE + 1)
    pages = [tick.given(PageNeed(ref, fan.pages, number)) for number in numbers]
    if msgspec.UNSET in pages:
        return None
    found = [item for page in pages for item in page]
    begin = first - numbers[0] * PAGE
    return found[begin : begin + count]


def fan_of(tick: Tick, index: int) -> Fan:
    """The fan of a node that has one."""
    fan = tick.work.nodes[index].fan
    assert fan is not None
    return fan


def _time(tick: Tick, index: int) -> None:
    """The total time-out of the step is that of all its children together (A3)."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    total = policy.total_timeout_ms(step, node)
    if total is not None:
        tick.do(SetTimer(kind=TimerKind.TOTAL_TIMEOUT, due_time=tick.after(total), step_ref=step.ref))


def _pages(tick: Tick, found: list[Any]) -> tuple[str, ...]:
    pages: list[str] = []
    size = 0
    for begin in range(0, len(found), PAGE):
        page = jsonvalue.dumps(found[begin : begin + PAGE])
        length = len(page.encode())
        if length > tick.limits.payload_max_bytes:
            for number in range(begin, min(begin + PAGE, len(found))):
                jsonvalue.encode(found[number], root=f"items[{number}]", max_bytes=tick.limits.payload_max_bytes)
        pages.append(page)
        size += length
    if size > tick.limits.aggregate_max_bytes:
        raise jsonvalue.too_large(size, tick.limits.aggregate_max_bytes, "items")
    return tuple(pages)
