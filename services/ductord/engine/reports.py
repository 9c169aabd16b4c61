"""Judging what became of a step's attempt (rulings A1 to A6).

A report counts only for the node's latest attempt and only while the node runs; everything else is late, a repetition or a stranger and
changes nothing but the ledger: a success whose node had ended otherwise has an effect in the world, and its inverse is owed (C7).
"""

from typing import Final, assert_never

from ductord.engine import attempts, exits, faults, policy, retry, saga
from ductord.engine.doubt import unsaid
from ductord.engine.tick import Again, Tick
from ductord.model.enums import EdgeType, FailPolicy, NodeStatus, Outcome, TaskKind
from ductord.model.fault import Fault
from ductord.model.inbox import AttemptReport
from ductord.model.run import Node

_RUNNING: Final = NodeStatus.RUNNING
_STEP: Final = TaskKind.STEP


def judge(tick: Tick, report: AttemptReport) -> None:
    """Apply one report (A2, A4)."""
    index = tick.graph.index.get(report.step_ref)
    node = tick.work.nodes[index] if index is not None else None
    if (
        index is None
        or node is None
        or node.status is not _RUNNING
        or report.attempt != node.attempt
        or report.kind is not _STEP
        or index in tick.ready
    ):
        tick.do(attempts.put_away(report))
        if index is not None and node is not None:
            _succeeded_all_the_same(tick, index, node, report)
        return
    match report.outcome:
        case Outcome.SUCCEEDED:
            _close(tick, index, report)
            if tick.manifest.steps[index].compensation is not None:
                saga.register(tick, index, report.attempt, node.logical)
            exits.succeed(tick, index, report.output)
        case Outcome.FAILED | Outcome.TIMED_OUT | Outcome.HEARTBEAT_TIMED_OUT | Outcome.QUEUE_TIMED_OUT:
            _failed(tick, index, report)
        case Outcome.LOST | Outcome.RELEASED | Outcome.REVOKED:
            _close(tick, index, report)
            _came_to_nothing(tick, index)
        case _:
            assert_never(report.outcome)


def _succeeded_all_the_same(tick: Tick, index: int, node: Node, report: AttemptReport) -> None:
    """The node's latest attempt was judged otherwise in this very tick, by a timer of an earlier instant: the effect is there all the same (C7)."""
    if (
        report.outcome is Outcome.SUCCEEDED
        and report.kind is TaskKind.STEP
        and report.attempt == node.attempt
        and node.output is None
        and node.status.terminal
    ):
        saga.register(tick, index, report.attempt, node.logical, late=True)


def _close(tick: Tick, index: int, report: AttemptReport, *, spent: bool = False, fault: Fault | None = None) -> None:
    started = report.start_time is not None
    attempts.close(tick, index, report.outcome, started=started, spent=spent, fault=fault, output=report.output)


def _failed(tick: Tick, index: int, report: AttemptReport) -> None:
    fault = report.fault or faults.of_outcome(report.outcome)
    assert fault is not None
    _close(tick, index, report, spent=True, fault=fault)
    node = tick.work.nodes[index]
    rules = policy.retry_of(tick.manifest.steps[index], node)
    if node.cancelling:
        exits.cancel(tick, index, fault)
    elif (
        node.failures < rules.max_attempts
        and report.outcome is not Outcome.QUEUE_TIMED_OUT
        and retry.retryable(rules, fault, report.non_retryable)
        and goes_on(tick, index)
    ):
        # The outside may already know this attempt's key unless the worker told us that it failed (A6).
        logical = node.logical + (not unsaid(report.outcome, fault))
        tick.ready[index] = Again(retry=True, logical=logical, delay_ms=delay_ms(tick, index, report, node.failures))
    else:
        exits.fail(tick, index, fault)


def delay_ms(tick: Tick, index: int, report: AttemptReport, failures: int) -> int:
    """Milliseconds before the attempt after this failure, the `failures`-th: as the worker wishes, within bounds, else by the policy in force (A1)."""
    if report.retry_after_ms is not None:
        return min(max(report.retry_after_ms, 0), tick.limits.max_worker_delay_ms)
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    return retry.delay_ms(policy.retry_of(step, node), failures, tick.run_id, step.ref, report.attempt)


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
        tick.ready[index] = Again(retry=False, logical=node.logical, delay_ms=retry.pause_ms(node.returned))


def goes_on(tick: Tick, index: int) -> bool:
    """Whether a node may still retry, or begin children. Under `drain` what was in flight at the stop may not (G5), the cleanup behind a `done` edge may."""
    if tick.work.run.stop is None or tick.manifest.fail_policy is not FailPolicy.DRAIN:
        return True
    return cleans_up(tick, index)


def cleans_up(tick: Tick, index: int) -> bool:
    """Whether the step is behind a `done` edge of one that failed: what a stop spares (G4)."""
    edges = tick.manifest.edges
    cleanup = [
        edges[e].target
        for i, node in enumerate(tick.work.nodes)
        if node.status is NodeStatus.FAILED
        for e in tick.manifest.steps[i].outgoing
        if edges[e].type is EdgeType.DONE
    ]
    return index in tick.graph.downstream(cleanup)
