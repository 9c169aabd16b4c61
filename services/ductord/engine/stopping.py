"""Stopping a run: after a failure by its fail_policy, because its time is over, or because an operator says so (rulings G5, A3, C3, G8).

Everything here happens in one commit: the cause, the skips of what will not run, and the requests to what is in flight. The first cause that
was committed sticks, and only a terminate overrides it; a run time-out or a cancel that comes later still empties the run, under the old cause.
"""

from msgspec.structs import replace

from ductord.engine import exits, faults
from ductord.engine.steps import kind_of
from ductord.engine.tick import Again, Tick
from ductord.model.effects import SetTimer
from ductord.model.enums import EdgeType, FailPolicy, NodeStatus, Outcome, RunStatus, SkipReason, TimerKind
from ductord.model.events import RaceLost, RunStopping
from ductord.model.fault import Fault
from ductord.model.run import Stop


def on_failure(tick: Tick) -> None:
    """Steps of on_error `fail` failed in this tick: stop the run, but for the paths behind their taken `done` edges (G4, G5)."""
    failing, tick.failing = tick.failing, []
    if tick.work.run.stop is not None:
        return
    policy = tick.manifest.fail_policy
    first = failing[0]
    stop = Stop(cause=RunStatus.FAILED, fault=tick.work.nodes[first].fault, step_ref=tick.manifest.steps[first].ref)
    if policy is FailPolicy.RUN_ALL:
        tick.emit(RunStopping(stop=stop))
    else:
        kept = tick.graph.downstream(_cleanup(tick, failing))
        _empty(tick, stop, kept, ask=policy is FailPolicy.FAIL_FAST)


def on_run_timeout(tick: Tick) -> None:
    """The run's time is over: nothing more begins, what is in flight gets the grace. No cleanup is spared, there was no failed step (A3)."""
    message = f"run_timeout_ms {tick.manifest.run_timeout_ms} is over"
    empty(tick, Stop(cause=RunStatus.TIMED_OUT, fault=Fault(code=faults.RUN_TIMEOUT, message=message)))


def empty(tick: Tick, stop: Stop, grace_ms: int | None = None) -> None:
    """Stop the run and spare nothing: what has not begun is skipped, what is in flight gets the grace. A run that is being stopped already keeps its cause
    and loses what that one had spared (G8)."""
    before = tick.work.run.stop
    if before is None or not before.emptied:
        _empty(tick, replace(before or stop, emptied=True), set(), ask=True, grace_ms=grace_ms)


def at_once(tick: Tick, stop: Stop) -> None:
    """End the run without waiting for anybody, whatever it was being stopped by (C3): it closes in this tick."""
    tick.failing.clear()
    tick.emit(RunStopping(stop=replace(stop, emptied=True)))
    for index, node in enumerate(tick.work.nodes):
        if node.status is NodeStatus.PENDING:
            tick.ready.pop(index, None)
            exits.skip(tick, index, SkipReason.RUN_ENDED)
        elif node.status.begun:
            kind_of(tick, index).drop(tick, index, Outcome.REVOKED)
            exits.cancel(tick, index, node.fault)


def on_grace_over(tick: Tick) -> None:
    """What was asked to stop and has not reported is revoked and cancelled."""
    stop = tick.work.run.stop
    if stop is None or stop.deadline is None or stop.deadline > tick.now:
        return
    for index, node in enumerate(tick.work.nodes):
        if node.status.begun and node.cancelling:
            kind_of(tick, index).drop(tick, index, Outcome.REVOKED)
            end_dropped(tick, index)


def call_off(tick: Tick, race: int) -> None:
    """Cancel whatever leads to nothing but this race, which is over: it passes a skip, and is no failure (G7). What a reset preserved, and has not been given
    yet, is left to it (C5)."""
    nodes, preserved = tick.work.nodes, tick.inbox.start.preserved
    for index in tick.graph.only_for[race]:
        node, ref = nodes[index], tick.manifest.steps[index].ref
        if node.status is NodeStatus.PENDING:
            if ref not in preserved or node.preserved:
                tick.ready.pop(index, None)
                exits.lose(tick, index)
        elif node.status.begun and node.cancelling and node.fan is not None and node.fan.fault is not None:
            # Its children are being called off already, and are no failure of the run any more.
            if not node.lost:
                tick.emit(RaceLost(step_ref=ref))
        elif node.status.begun and not node.cancelling:
            tick.emit(RaceLost(step_ref=ref))
            if _may_report(tick, index):
                kind_of(tick, index).ask(tick, index)
                deadline = tick.after(tick.limits.stop_grace_ms)
                tick.do(SetTimer(kind=TimerKind.NODE_GRACE, step_ref=ref, due_time=deadline))
            else:
                kind_of(tick, index).drop(tick, index, Outcome.REVOKED)
                exits.lose(tick, index, node.fault)


def on_node_grace(tick: Tick, step_ref: str) -> None:
    """A loser that was asked to stop has not reported: it is revoked and cancelled. Likewise what is left of children enough of which have failed (F2)."""
    index = tick.graph.index.get(step_ref)
    node = tick.work.nodes[index] if index is not None else None
    if index is None or node is None or not node.status.begun:
        return
    if node.lost or (node.fan is not None and node.fan.fault is not None):
        kind_of(tick, index).drop(tick, index, Outcome.REVOKED)
        end_dropped(tick, index)


def end_dropped(tick: Tick, index: int) -> None:
    """End a node that was asked to stop, and whose work has been dropped: it is cancelled, but for one that its children have failed already."""
    node = tick.work.nodes[index]
    finish = kind_of(tick, index).finish
    if finish is not None and node.fan is not None and node.fan.fault is not None:
        finish(tick, index)
    else:
        exits.cancel(tick, index, node.fault)


def _cleanup(tick: Tick, failing: list[int]) -> list[int]:
    """The targets of the failed steps' taken `done` edges, as far as they have not begun."""
    edges = tick.manifest.edges
    taken = tick.work.taken
    return [
        edges[e].target
        for index in failing
        for e in tick.manifest.steps[index].outgoing
        if edges[e].type is EdgeType.DONE and taken(e)
    ]


def _empty(tick: Tick, stop: Stop, kept: set[int], *, ask: bool, grace_ms: int | None = None) -> None:
    """Stop: skip what has not begun, except `kept`; cancel what nobody works on; with `ask`, ask what is at work to stop within the grace."""
    nodes = tick.work.nodes
    asked = (
        [i for i, n in enumerate(nodes) if n.status.begun and not n.cancelling and _gets_grace(tick, i, stop)]
        if ask
        else []
    )
    if asked:
        grace = tick.limits.stop_grace_ms
        stop = replace(stop, deadline=tick.after(grace if grace_ms is None else min(grace, grace_ms)))
    tick.emit(RunStopping(stop=stop))
    for index, node in enumerate(nodes):
        if node.status is NodeStatus.PENDING and index not in kept:
            tick.ready.pop(index, None)
            exits.skip(tick, index, SkipReason.RUN_ENDED)
        elif node.status.begun:
            again = tick.ready.get(index)
            if isinstance(again, Again):
                # Its attempt ended in this very tick. What came to nothing may still finish where work in flight may (drain).
                if again.retry or ask:
                    del tick.ready[index]
                    exits.cancel(tick, index, node.fault)
            elif not _gets_grace(tick, index, stop):
                kind_of(tick, index).drop(tick, index, Outcome.REVOKED)
                exits.cancel(tick, index, node.fault)
    for index in asked:
        kind_of(tick, index).ask(tick, index)
    if asked and stop.deadline is not None:
        tick.do(SetTimer(kind=TimerKind.STOP_GRACE, due_time=stop.deadline))


def _gets_grace(tick: Tick, index: int, stop: Stop) -> bool:
    """Whether somebody is at work for the node; on the way to a successor also whether runs are, that it waits for (C6)."""
    fan = tick.work.nodes[index].fan
    awaited = stop.continuation is not None and index in tick.graph.parents and fan is not None and fan.open > 0
    return awaited or _may_report(tick, index)


def _may_report(tick: Tick, index: int) -> bool:
    return kind_of(tick, index).may_report(tick, index)
