"""What pauses mean for tasks that are queued: held, so that nobody is given them, and released (ruling C2).

The effects are worked out once, from how things stood before the controls of a tick and how they stand after: a pause and a resume that meet in one tick
leave nothing to do, in whatever order they came.
"""

import msgspec

from ductord.engine.steps import kind_of
from ductord.engine.tick import Tick
from ductord.model.effects import HoldTasks, ReleaseTasks


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the run is paused, and which nodes are."""

    run: bool
    nodes: frozenset[int]


def held(tick: Tick) -> Held:
    """What operators hold at this moment."""
    return Held(run=tick.paused, nodes=frozenset(i for i, node in enumerate(tick.work.nodes) if node.paused))


def carry_out(tick: Tick, before: Held) -> None:
    """Hold and release what changed since. A run that is being emptied has nothing to release: all that was queued is revoked."""
    after, stop = held(tick), tick.work.run.stop
    if not tick.open or (stop is not None and stop.emptied):
        return
    if after.run:
        if not before.run:
            tick.do(HoldTasks())
        return
    refs, nodes = tick.manifest.steps, tick.work.nodes
    if before.run:
        tick.do(ReleaseTasks(still_held=tuple(refs[i].ref for i in sorted(after.nodes) if nodes[i].status.begun)))
        return
    for index in sorted(after.nodes ^ before.nodes):
        if nodes[index].status.begun:
            kind = kind_of(tick, index)
            (kind.hold if index in after.nodes else kind.release)(tick, index)
