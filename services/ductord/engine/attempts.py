"""Attempts: making them, and judging what became of them (rulings A1 to A6).

A report counts only for the node's latest attempt and only while the node runs; everything else is late, a repetition or a stranger and
changes nothing. Whether a further attempt is really made is settled at the end of the tick, when it is known whether the run goes on.
"""

from datetime import datetime
from typing import assert_never

from ductord.engine import exits, faults, retry
from ductord.engine.tick import Again, Tick
from ductord.model.effects import CloseAttempt, QueueTask, SetTimer
from ductord.model.enums import (
    AttemptStatus,
    EdgeType,
    FailPolicy,
    NodeStatus,
    Outcome,
    TaskKind,
    TimerKind,
)
from ductord.model.events import AttemptCreated, AttemptEnded
from ductord.model.ids import idempotency_key
from ductord.model.inbox import AttemptReport
from ductord.model.run import Fault, Node, OutputRef

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
    """Make the first attempt of a node that begins, with its rendered input, and start its total time-out (A3)."""
    step = tick.manifest.steps[index]
    _queue(tick, index, action, logical=1, delay_ms=0, input_json=input_json)
    if step.total_timeout_ms is not None:
        due = tick.after(step.total_timeout_ms)
        tick.do(SetTimer(kind=TimerKind.TOTAL_TIMEOUT, due_time=due, step_ref=step.ref))


def queue_again(tick: Tick, index: int, again: Again) -> None:
    """Make a further attempt with the input of the one before (A1, field case RT-07)."""
    action = tick.manifest.steps[index].action
    assert action is not None
    retry_of = tick.work.nodes[index].attempt
    _queue(tick, index, action.action, logical=again.logical, delay_ms=again.delay_ms, retry_of=retry_of)


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
    step = tick.manifest.steps[index]
    attempt = tick.work.nodes[index].attempt + 1
    due_time: datetime = tick.after(delay_ms) if delay_ms else tick.now
    tick.emit(
        AttemptCreated(step_ref=step.ref, attempt=attempt, logical=logical, due_time=due_time if delay_ms else None)
    )
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
            timeout_ms=step.timeout_ms,
            heartbeat_timeout_ms=step.heartbeat_timeout_ms,
            queue_timeout_ms=step.queue_timeout_ms,
        )
    )


def judge(tick: Tick, report: AttemptReport) -> None:
    """Apply one report (A2, A4)."""
    index = tick.graph.index.get(report.step_ref)
    node = tick.work.nodes[index] if index is not None else None
    if (
        index is None
        or node is None
        or node.status is not NodeStatus.RUNNING
        or report.attempt != node.attempt
        or report.kind is not TaskKind.STEP
        or index in tick.ready
    ):
        tick.do(put_away(report))
        return
    match report.outcome:
        case Outcome.SUCCEEDED:
            close(tick, index, report.outcome, output=report.output)
            exits.succeed(tick, index, report.output)
        case Outcome.FAILED | Outcome.TIMED_OUT | Outcome.HEARTBEAT_TIMED_OUT | Outcome.QUEUE_TIMED_OUT:
            _failed(tick, index, report)
        case Outcome.LOST | Outcome.RELEASED | Outcome.REVOKED:
            close(tick, index, report.outcome)
            _came_to_nothing(tick, index)
        case _:
            assert_never(report.outcome)


def put_away(report: AttemptReport) -> CloseAttempt:
    """The effect of a report that is not for us: its attempt, should it still be open, is not offered again (G8: nothing stays unapplied)."""
    return CloseAttempt(
        step_ref=report.step_ref,
        attempt=report.attempt,
        status=_VERDICTS[report.outcome],
        kind=report.kind,
        item_index=report.item_index,
    )


def close(
    tick: Tick,
    index: int,
    outcome: Outcome,
    *,
    spent: bool = False,
    fault: Fault | None = None,
    output: OutputRef | None = None,
) -> None:
    """Write the verdict over the node's open attempt; every later report for it is stale (A4)."""
    ref = tick.manifest.steps[index].ref
    attempt = tick.work.nodes[index].attempt
    tick.emit(AttemptEnded(step_ref=ref, attempt=attempt, outcome=outcome, spent=spent, fault=fault, output=output))
    tick.do(CloseAttempt(step_ref=ref, attempt=attempt, status=_VERDICTS[outcome]))


def held(tick: Tick, node: Node) -> bool:
    """Whether the node's attempt is still held by its back-off, so that nobody works on it."""
    return node.due_time is not None and node.due_time > tick.now


def _failed(tick: Tick, index: int, report: AttemptReport) -> None:
    fault = report.fault or faults.of_outcome(report.outcome)
    assert fault is not None
    close(tick, index, report.outcome, spent=True, fault=fault)
    step = tick.manifest.steps[index]
    node = tick.work.nodes[index]
    if node.cancelling:
        exits.cancel(tick, index, fault)
    elif (
        node.failures < step.retry.max_attempts
        and report.outcome is not Outcome.QUEUE_TIMED_OUT
        and retry.retryable(step.retry, fault, report.non_retryable)
        and _retries_go_on(tick, index)
    ):
        # The outside may already know this attempt's key unless the worker told us that it failed (A6).
        logical = node.logical + (report.outcome is Outcome.FAILED)
        tick.ready[index] = Again(retry=True, logical=logical, delay_ms=_delay(tick, index, report))
    else:
        exits.fail(tick, index, fault)


def _delay(tick: Tick, index: int, report: AttemptReport) -> int:
    if report.retry_after_ms is not None:
        return min(max(report.retry_after_ms, 0), tick.limits.max_worker_delay_ms)
    step = tick.manifest.steps[index]
    node = tick.work.nodes[index]
    return retry.delay_ms(step.retry, node.failures, tick.run_id, step.ref, node.attempt)


def _came_to_nothing(tick: Tick, index: int) -> None:
    """The attempt ended without an outcome of its own: lost, given back, revoked. It is made again and costs no retry (A4); at once, but for
    a task that is given back again and again."""
    step = tick.manifest.steps[index]
    node = tick.work.nodes[index]
    if node.cancelling:
        exits.cancel(tick, index, node.fault)
    elif node.losses > step.max_lost:
        message = f"the worker was lost {node.losses} times"
        exits.fail(tick, index, Fault(code=faults.WORKER_LOST, message=message))
    else:
        given_back = node.attempt - node.failures - node.losses
        tick.ready[index] = Again(retry=False, logical=node.logical, delay_ms=retry.pause_ms(given_back))


def _retries_go_on(tick: Tick, index: int) -> bool:
    """Whether a node may still retry. Under `drain` what was in flight at the stop may not (G5), the cleanup behind a `done` edge may."""
    if tick.work.run.stop is None or tick.manifest.fail_policy is not FailPolicy.DRAIN:
        return True
    edges = tick.manifest.edges
    cleanup = [
        edges[e].target
        for i, node in enumerate(tick.work.nodes)
        if node.status is NodeStatus.FAILED
        for e in tick.manifest.steps[i].outgoing
        if edges[e].type is EdgeType.DONE
    ]
    return index in tick.graph.downstream(cleanup)
