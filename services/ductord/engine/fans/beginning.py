"""Beginning children: which and how many, at the end of a tick, when it is certain that the run goes on (rulings F1, C2, C3, G5).

One tick begins so many of all nodes together and no more; one that could begin more has its run woken again, behind those that wait: a wide fan-out holds up
nobody.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta

from ductord.engine.fans.expanding import fan_of
from ductord.engine.reports import goes_on
from ductord.engine.tick import Tick
from ductord.model.fan import Fan
from ductord.model.manifest import Step


def may_begin(tick: Tick, index: int) -> bool:
    """Whether further children of a node may begin: not while it or its run is held (C2), is being stopped (C3) or drains (G5). What a stop spares, the cleanup
    behind a `done` edge, goes on as ever (G4)."""
    node, stop = tick.work.nodes[index], tick.work.run.stop
    if not node.status.begun or node.fan is None or node.fan.begun or node.cancelling or node.paused or tick.paused:
        return False
    return stop is None or (not stop.emptied and goes_on(tick, index))


def free(tick: Tick, index: int) -> int:
    """How many children of the node the definition lets begin beside those that are open (F1, F3)."""
    fan = fan_of(tick, index)
    most = _at_once(tick.manifest.steps[index])
    return fan.expected if most == 0 else max(most - fan.open, 0)


def room(tick: Tick, index: int) -> int:
    """How many children of the node this tick may still begin."""
    if tick.begun_bytes >= tick.limits.children_max_bytes:
        return 0
    return max(min(free(tick, index), tick.limits.children_per_tick - tick.begun), 0)


def ranges(fan: Fan, most: int) -> Iterator[tuple[int, int]]:
    """The children that begin next, at most so many, as ranges (first, count): first those that a redrive begins anew, then those that never began."""
    for first, count in (*fan.again, (fan.next, fan.expected - fan.next)):
        taken = min(count, most)
        if taken <= 0:
            continue
        yield first, taken
        most -= taken


def due_times(tick: Tick, index: int, count: int) -> list[datetime]:
    """When the next `count` children of the node are due: at once, or one interval after the other, from the last that began on (F1)."""
    scatter = tick.manifest.steps[index].scatter
    interval = timedelta(milliseconds=scatter.interval_ms if scatter is not None else 0)
    last = fan_of(tick, index).due_time
    if not interval:
        return [tick.now] * count
    first = tick.now if last is None else max(last + interval, tick.now)
    return [first + interval * number for number in range(count)]


def reads(step: Step) -> tuple[str, ...]:
    """The steps whose outputs are read for what each child of the step is given."""
    scatter, for_each = step.scatter, step.for_each
    if scatter is not None and scatter.action is not None:
        return scatter.action.args.steps
    given = scatter.input if scatter is not None else for_each.input if for_each is not None else None
    return given.steps if given is not None else ()


def _at_once(step: Step) -> int:
    """How many children of the step may be open together; 0: all."""
    return step.scatter.max_concurrency if step.scatter is not None else 1
