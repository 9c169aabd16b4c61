"""What every tick does for all nodes with children: judge what became of them, stop or end those that have seen enough, begin more (rulings F1 to F5).

The only part of fan-outs that knows kinds of steps. A node that comes to its end while children begin, because none of them could, ends in the next tick: by
then everything else of this one has been handed out.
"""

from ductord.engine.fans import beginning, counting, expanding, inputs, items
from ductord.engine.steps import kind_of
from ductord.engine.tick import Tick
from ductord.model.effects import SetTimer
from ductord.model.enums import TimerKind
from ductord.model.fan_effects import TickAgain
from ductord.model.fan_events import FanStopped
from ductord.model.inbox import AttemptReport


def foresee(tick: Tick) -> None:
    """Name what `fill` is likely to read, before anything is judged: the tick is then asked again before it has done its work, and not after."""
    for index in tick.graph.fans if tick.open else ():
        step = tick.manifest.steps[index]
        if not beginning.may_begin(tick, index) or step.subworkflow is not None:
            continue
        told = len(tick.inbox.reports) + len(tick.inbox.children)
        most = min(beginning.free(tick, index) + told, tick.limits.children_per_tick)
        if not most:
            continue
        tick.lacks(beginning.reads(step))
        if index in tick.graph.parents:
            inputs.version_of(tick, index)
        for first, count in beginning.ranges(expanding.fan_of(tick, index), most):
            expanding.items(tick, index, first, count)


def judge(tick: Tick, report: AttemptReport) -> None:
    """Apply the report of an inline child (A2, A4); the last one ends its node, at its place in time (G7)."""
    index = items.judge(tick, report)
    if index is not None:
        look(tick, index)


def look(tick: Tick, index: int) -> None:
    """End the node if nothing is to come of it any more."""
    if counting.over(tick, index):
        finish = kind_of(tick, index).finish
        assert finish is not None
        finish(tick, index)


def settle(tick: Tick) -> None:
    """When all facts are in: stop nodes more of whose children have failed than may, and end those that are over."""
    if not tick.graph.fans or not tick.open:
        return
    for index in tick.graph.fans:
        node = tick.work.nodes[index]
        if node.status.begun and node.fan is not None:
            _stop(tick, index)
            look(tick, index)


def fill(tick: Tick) -> None:
    """Queue the attempts that children get again, and let every node begin those that may begin now."""
    if not tick.graph.fans or not tick.open:
        return
    items.repeat(tick)
    for index in tick.graph.fans:
        hook = kind_of(tick, index).fill
        if hook is not None and beginning.may_begin(tick, index):
            hook(tick, index)
    if any(_has_more(tick, index) for index in tick.graph.fans):
        tick.do(TickAgain())


def _has_more(tick: Tick, index: int) -> bool:
    """Whether the next tick has something to do for the node of which nobody would tell it."""
    node = tick.work.nodes[index]
    if not node.status.begun or node.fan is None:
        return False
    if counting.over(tick, index) or (not node.cancelling and counting.too_many(tick, index) is not None):
        return True
    return beginning.may_begin(tick, index) and beginning.free(tick, index) > 0


def _stop(tick: Tick, index: int) -> None:
    """More have failed than may: the others are called off, and get the grace that losers of a race get (F2)."""
    node, ref = tick.work.nodes[index], tick.manifest.steps[index].ref
    fault = counting.too_many(tick, index)
    if fault is None or node.cancelling or node.fan is None or not node.fan.open:
        return
    tick.emit(FanStopped(step_ref=ref, fault=fault))
    call_off = kind_of(tick, index).call_off
    assert call_off is not None
    call_off(tick, index)
    if not counting.over(tick, index):
        deadline = tick.after(tick.limits.stop_grace_ms)
        tick.do(SetTimer(kind=TimerKind.NODE_GRACE, step_ref=ref, due_time=deadline))
