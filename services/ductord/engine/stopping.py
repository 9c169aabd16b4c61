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
from ductord.model.run import Fault, Stop


def on_failure(tick: Tick) -> None:
    """Steps of on_error `fail` failed in this tick: stop the run, but for the paths behind their taken `done` edges (G4, G5)."""
    failing, tick.failing = tick.failing, []
    if tick.work.run.stop is not None:
        return
    policy = tick.manifest.fail_policy
    first = failing[0]
    tick.emit(
        RunStopping(
            stop=Stop(
                cause=RunStatus.FAILED,
                fault=tick.work.nodes[first].fault,
                step_ref=tick.manifest.steps[first].ref,
                deadline=tick.after(tick.limits.stop_grace_ms) if policy is FailPolicy.FAIL_FAST else None,
            )
        )
    )
    if policy is not FailPolicy.RUN_ALL:
        _empty(tick, kept=tick.graph.downstream(_cleanup(tick, failing)))


def on_run_timeout(tick: Tick) -> None:
    """The run's time is over: nothing more begins, what is in flight gets the grace. No cleanup is spared, there was no failed step (A3)."""
    before = tick.work.run.stop
    if before is None:
        message = f"run_timeout_ms {tick.manifest.run_timeout_ms} is over"
        before = Stop(cause=RunStatus.TIMED_OUT, fault=Fault(code=faults.RUN_TIMEOUT, message=message))
    elif before.out_of_time:
        return
    deadline = tick.after(tick.limits.stop_grace_ms)
    tick.emit(RunStopping(stop=replace(before, deadline=deadline, out_of_time=True)))
    _empty(tick, kept=set())


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


def _empty(tick: Tick, kept: set[int]) -> None:
    """Skip what has not begun, except `kept`; cancel what nobody works on; and, where the stop has a deadline, ask the rest to stop."""
    deadline = tick.work.run.stop.deadline if tick.work.run.stop else None
    asked = False
    for index, node in enumerate(tick.work.nodes):
        if node.status is NodeStatus.PENDING:
            if index not in kept:
                tick.ready.pop(index, None)
                exits.skip(tick, index, SkipReason.RUN_ENDED)
        elif node.status is NodeStatus.RUNNING:
            again = tick.ready.get(index)
            if isinstance(again, Again):
                # Its attempt ended in this very tick. What came to nothing may still finish where in-flight work may (drain).
                if again.retry or deadline is not None:
                    del tick.ready[index]
                    exits.cancel(tick, index, node.fault)
            elif attempts.held(tick, node):
                attempts.close(tick, index, Outcome.REVOKED)
                exits.cancel(tick, index, node.fault)
            elif deadline is not None:
                asked = True
                if not node.cancelling:
                    ref = tick.manifest.steps[index].ref
                    tick.emit(NodeCancelRequested(step_ref=ref))
                    tick.do(RequestCancel(step_ref=ref, attempt=node.attempt))
    if asked and deadline is not None:
        tick.do(SetTimer(kind=TimerKind.STOP_GRACE, due_time=deadline))
