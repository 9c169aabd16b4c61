"""Beginning children: at the end of a tick, when it is certain that the run goes on, as many as one tick may (rulings F1, C2, C3, G5).

A tick that begins some and could begin more has its run woken again, behind those that wait: a wide fan-out holds up nobody.
"""

from ductord.engine.reports import cleans_up
from ductord.engine.steps import kind_of
from ductord.engine.tick import Tick
from ductord.model.enums import FailPolicy, NodeStatus

_BEGUN = (NodeStatus.RUNNING, NodeStatus.WAITING)


def fill(tick: Tick) -> None:
    """Let every node with children begin those that may begin now."""
    for index in tick.graph.fans:
        hook = kind_of(tick, index).fill
        if hook is not None and may_begin(tick, index):
            hook(tick, index)


def may_begin(tick: Tick, index: int) -> bool:
    """Whether further children of a node may begin: not while it or its run is held (C2), is being stopped (C3) or drains (G5). What a stop spares, the cleanup
    behind a `done` edge, goes on as ever (G4)."""
    node, stop = tick.work.nodes[index], tick.work.run.stop
    if node.status not in _BEGUN or node.fan is None or node.fan.begun or node.cancelling or node.paused or tick.paused:
        return False
    if stop is None:
        return True
    return not stop.emptied and (tick.manifest.fail_policy is not FailPolicy.DRAIN or cleans_up(tick, index))
