"""Attempts of steps: making them, holding them, and closing them (rulings A1, A3, A4, A6, C2). What a report means for one is `engine.reports`.

Whether a further attempt is really made is settled at the end of the tick, when it is known whether the run goes on.
"""

from datetime import timedelta

from ductord.engine import policy
from ductord.engine.tick import Again, Tick
from ductord.model.effects import ClearTimers, CloseAttempt, HoldTasks, QueueTask, ReleaseTasks, RequestCancel, SetTimer
from ductord.model.enums import AttemptStatus, Outcome, TimerKind
from ductord.model.events import AttemptCreated, AttemptEnded, NodeCancelRequested
from ductord.model.fault import Fault, OutputRef
from ductord.model.ids import idempotency_key
from ductord.model.inbox import AttemptReport
from ductord.model.run import Node
from ductord.model.specs import Timeouts

_VERDICTS = {
    Outcome.SUCCEEDED: AttemptStatus.SUCCEEDED,
    Outcome.FAILED: AttemptStatus.FAILED,
    Outcome.RELEASED: AttemptStatus.LOST,
    Outcome.LOST: AttemptStatus.LOST,
    Outcome.TIMED_OUT: AttemptStatus.TIMED_OUT,
    Outcome.HEARTBEAT_TIMED_OUT: AttemptStatus.TIMED_OUT,
    Outcome.QUEUE_TIMED_OUT: AttemptStatus.TIMED_OUT,
    Outcome.REVOKED: AttemptStatus.CANCELLED,
}


def queue_first(tick: Tick, index: int, action: str, input_json: str) -> None:
    """Make the first attempt of a node that begins, with its rendered input, and start its total time-out (A3). After a reset or a redrive it is a new
    logical attempt (A6)."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    _queue(tick, index, action, logical=node.logical + 1, delay_ms=0, input_json=input_json)
    total = policy.total_timeout_ms(step, node)
    if total is not None:
        tick.do(SetTimer(kind=TimerKind.TOTAL_TIMEOUT, due_time=tick.after(total), step_ref=step.ref))


def queue_again(tick: Tick, index: int, action: str, again: Again) -> None:
    """Make a further attempt with the input of the one before (A1, field case RT-07)."""
    retry_of = tick.work.nodes[index].attempt
    _queue(tick, index, action, logical=again.logical, delay_ms=again.delay_ms, retry_of=retry_of)


def _queue(
    tick: Tick,
    index: int,
    action: str,
    *,
    logical: int,
    delay_ms: int,
    input_json: str = "",
    retry_of: int | None = None,
) -> None:
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    attempt = node.attempt + 1
    due_time = tick.after(delay_ms) if delay_ms else tick.now
    tick.emit(
        AttemptCreated(step_ref=step.ref, attempt=attempt, logical=logical, due_time=due_time if delay_ms else None)
    )
    limits = node.timeouts or step
    tick.do(
        QueueTask(
            step_ref=step.ref,
            attempt=attempt,
            idempotency_key=idempotency_key(tick.run_id, step.ref, -1, logical),
            action=action,
            queue=step.queue,
            due_time=due_time,
            input_json=input_json,
            retry_of=retry_of,
            timeout_ms=limits.timeout_ms,
            heartbeat_timeout_ms=limits.heartbeat_timeout_ms,
            queue_timeout_ms=limits.queue_timeout_ms,
            held=tick.paused or node.paused,
        )
    )


def close(
    tick: Tick,
    index: int,
    outcome: Outcome,
    *,
    started: bool,
    spent: bool = False,
    fault: Fault | None = None,
    output: OutputRef | None = None,
) -> None:
    """Write the verdict over the node's open attempt; every later report for it is stale (A4). `started`: a worker had taken it (C7)."""
    ref = tick.manifest.steps[index].ref
    attempt = tick.work.nodes[index].attempt
    tick.emit(
        AttemptEnded(
            step_ref=ref, attempt=attempt, outcome=outcome, spent=spent, fault=fault, output=output, started=started
        )
    )
    tick.do(CloseAttempt(step_ref=ref, attempt=attempt, status=_VERDICTS[outcome]))


def put_away(report: AttemptReport) -> CloseAttempt:
    """The effect of a report that is not for us: its attempt, should it still be open, is not offered again (G8: nothing stays unapplied)."""
    return CloseAttempt(
        step_ref=report.step_ref,
        attempt=report.attempt,
        status=_VERDICTS[report.outcome],
        kind=report.kind,
        item_index=report.item_index,
    )


def backing_off(tick: Tick, node: Node) -> bool:
    """Whether the node's attempt is still held by its back-off, so that nobody works on it."""
    return node.due_time is not None and node.due_time > tick.now


def at_work(tick: Tick, index: int) -> bool:
    """Whether somebody may be working on the node's attempt."""
    return index not in tick.ready and not backing_off(tick, tick.work.nodes[index])


def ask(tick: Tick, index: int) -> None:
    """Have the worker of the node's attempt told to stop; it may still report."""
    ref = tick.manifest.steps[index].ref
    tick.emit(NodeCancelRequested(step_ref=ref))
    tick.do(RequestCancel(step_ref=ref, attempt=tick.work.nodes[index].attempt))


def drop(tick: Tick, index: int, outcome: Outcome) -> None:
    """End the node's attempt without waiting for anybody. One whose attempt has just ended, and that was to get another, has none to end; one that a
    back-off still holds is no failure of its own, whatever `outcome` says."""
    if tick.ready.pop(index, None) is not None:
        return
    held = backing_off(tick, tick.work.nodes[index])
    started = not held and tick.manifest.steps[index].ref in tick.inbox.started
    spent = outcome is Outcome.TIMED_OUT and not held
    close(tick, index, Outcome.REVOKED if held else outcome, started=started, spent=spent)


def hold(tick: Tick, index: int) -> None:
    """Keep the node's attempt from being handed out (C2)."""
    tick.do(HoldTasks(step_ref=tick.manifest.steps[index].ref))


def release(tick: Tick, index: int) -> None:
    """Let the node's held attempt be handed out."""
    tick.do(ReleaseTasks(step_ref=tick.manifest.steps[index].ref))


def retime(tick: Tick, index: int, before: Timeouts) -> None:
    """The node has other time-outs than `before`: the one across attempts counts at once, from the first of them on (A3)."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    total = policy.total_timeout_ms(step, node)
    if total == before.total_timeout_ms:
        return
    if total is None or node.first_time is None:
        tick.do(ClearTimers(kind=TimerKind.TOTAL_TIMEOUT, step_ref=step.ref))
    else:
        due = node.first_time + timedelta(milliseconds=total)
        tick.do(SetTimer(kind=TimerKind.TOTAL_TIMEOUT, due_time=due, step_ref=step.ref))


def reset(tick: Tick, index: int) -> None:
    """Put away what the node had begun: it is about to begin anew (C10)."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    drop(tick, index, Outcome.REVOKED)
    if policy.total_timeout_ms(step, node) is not None:
        tick.do(ClearTimers(kind=TimerKind.TOTAL_TIMEOUT, step_ref=step.ref))
    if node.lost and node.cancelling:
        tick.do(ClearTimers(kind=TimerKind.NODE_GRACE, step_ref=step.ref))
