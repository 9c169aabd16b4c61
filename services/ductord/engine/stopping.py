"""Stopping a run: after a failure by its fail_policy, or because its time is over (rulings G5, A3, G8).

Everything here happens in one commit: the cause, the skips of what will not run, and the requests to what is in flight. The first cause that
was committed sticks; a run time-out that comes later still empties the run, under the old cause.
"""

from msgspec.structs import replace

from ductord.engine import attempts, exits, faults
from ductord.engine.tick import Again, Tick
from ductord.model.effects import RequestCancel, SetTimer
from ductord.model.enums import (
    EdgeType,
    FailPolicy,
    NodeStatus,
    Outcome,
    RunStatus,
    SkipReason,
    TimerKind,
)
from ductord.model.events import NodeCancelRequested, RunStopping
from ductord.model.run import Fault, Node, Stop


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
    before = tick.work.run.stop
    if before is None:
        message = f"run_timeout_ms {tick.manifest.run_timeout_ms} is over"
        before = Stop(cause=RunStatus.TIMED_OUT, fault=Fault(code=faults.RUN_TIMEOUT, message=message))
    elif before.emptied:
        return
    _empty(tick, replace(before, emptied=True), set(), ask=True)


def on_grace_over(tick: Tick) -> None:
    """What was asked to stop and has not reported is revoked and cancelled."""
    stop = tick.work.run.stop
    if stop is None or stop.deadline is None or stop.deadline > tick.now:
        return
    for index, node in enumerate(tick.work.nodes):
        if node.status is NodeStatus.RUNNING and node.cancelling:
            attempts.close(tick, index, Outcome.REVOKED)
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


def _empty(tick: Tick, stop: Stop, kept: set[int], *, ask: bool) -> None:
    """Stop: skip what has not begun, except `kept`; cancel what nobody works on; with `ask`, ask what is at work to stop within the grace."""
    nodes = tick.work.nodes
    asked = [i for i, node in enumerate(nodes) if _at_work(tick, i, node) and not node.cancelling] if ask else []
    if asked:
        stop = replace(stop, deadline=tick.after(tick.limits.stop_grace_ms))
    tick.emit(RunStopping(stop=stop))
    for index, node in enumerate(nodes):
        if node.status is NodeStatus.PENDING and index not in kept:
            tick.ready.pop(index, None)
            exits.skip(tick, index, SkipReason.RUN_ENDED)
        elif node.status is NodeStatus.RUNNING:
            again = tick.ready.get(index)
            if isinstance(again, Again):
                # Its attempt ended in this very tick. What came to nothing may still finish where work in flight may (drain).
                if again.retry or ask:
                    del tick.ready[index]
                    exits.cancel(tick, index, node.fault)
            elif attempts.held(tick, node):
                attempts.close(tick, index, Outcome.REVOKED)
                exits.cancel(tick, index, node.fault)
    for index in asked:
        ref = tick.manifest.steps[index].ref
        tick.emit(NodeCancelRequested(step_ref=ref))
        tick.do(RequestCancel(step_ref=ref, attempt=nodes[index].attempt))
    if asked and stop.deadline is not None:
        tick.do(SetTimer(kind=TimerKind.STOP_GRACE, due_time=stop.deadline))


def _at_work(tick: Tick, index: int, node: Node) -> bool:
    """Whether somebody may be working on the node's attempt."""
    return node.status is NodeStatus.RUNNING and index not in tick.ready and not attempts.held(tick, node)
