"""How a node ends: its status, its edges, and what hangs on both, in one place and in one order (rulings G1, G3, G4, G6, E2, L4, L9).

A node that is to succeed may still fail here, because its result_expr, a condition or a choice group has the last word. A call that lacks
outputs changes nothing but `Tick.missing`.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from ductord.engine import faults, policy, races, routing
from ductord.engine.expressions import ExpressionError
from ductord.engine.reading import Ending, bindings
from ductord.engine.tick import Tick
from ductord.model.enums import EdgeState, EdgeType, NodeStatus, OnError, SkipReason, StepType, TimerKind
from ductord.model.events import EdgesResolved, NodeEnded, RaceLost
from ductord.model.fault import Fault, OutputRef
from ductord.model.specs import Expression

_PENDING: Final = NodeStatus.PENDING
_SUCCEEDED: Final = NodeStatus.SUCCEEDED
_TAKEN: Final = EdgeState.TAKEN
_DEAD_SKIP: Final = EdgeState.DEAD_SKIP
_APPROVAL: Final = StepType.APPROVAL
"""Looked up once: naming a member of an enum costs as much as a call."""

_PASSED_BY = frozenset({SkipReason.CONDITION, SkipReason.TIMEOUT})
"""The skips in which the step's turn had come."""


def succeed(tick: Tick, index: int, output: OutputRef | None) -> None:
    """The step's work is done; the node succeeds unless its result_expr or its routing fails."""
    step = tick.manifest.steps[index]
    if tick.lacks(tick.graph.exit_reads[index], step.ref, output):
        tick.foresee(index, output)
        return
    ending = Ending(index=index, status=_SUCCEEDED, output=output)
    fires = routing.SUCCESS
    if step.result_expr is not None:
        try:
            seen = bindings(tick, step.result_expr, ending, own_output=True)
            fires = routing.SUCCESS_TRUE if tick.programs.condition(step.result_expr, seen) else routing.SUCCESS_FALSE
        except ExpressionError as error:
            fail(tick, index, faults.of_expression(error), output)
            return
    if step.type is _APPROVAL:
        # It comes to no other success than that it was approved, be it by its time-out (E2).
        fires |= routing.APPROVED
    taken, fault = routing.take(tick.manifest, step, fires, partial(_test, tick, ending))
    if fault is not None:
        fail(tick, index, fault, output)
        return
    _end(tick, index, NodeEnded(step_ref=step.ref, status=_SUCCEEDED, output=output))
    _resolve(tick, index, taken, _DEAD_SKIP)


def fail(tick: Tick, index: int, fault: Fault, output: OutputRef | None = None) -> None:
    """The node fails: `completed_with_error` if its on_error is `continue`, else `failed`, which stops the run by its policy (G4, G5). A failure of one that
    has lost a race is none (G7).

    If routing the failure fails too, that edge is dead and its fault replaces the first: nothing may pass for handled that was not evaluated.
    """
    go_on = tick.manifest.steps[index].on_error is OnError.CONTINUE
    _fail(tick, index, routing.FAILURE, fault, output, go_on=go_on)


def complete_with_error(tick: Tick, index: int, fault: Fault) -> None:
    """The node comes to an error that halts nothing, whatever its on_error: a subworkflow that says so of its time-out."""
    _fail(tick, index, routing.FAILURE, fault, None, go_on=True)


def reject(tick: Tick, index: int, fault: Fault, output: OutputRef | None = None) -> None:
    """The approval was rejected (E2): `completed_with_error`, whatever its on_error, if a rejection or an error has somewhere to go; else a failure like any
    other."""
    step = tick.manifest.steps[index]
    heard = any(tick.manifest.edges[e].type in routing.HANDLING for e in step.outgoing)
    _fail(tick, index, routing.REJECTION, fault, output, go_on=heard or step.on_error is OnError.CONTINUE)


def _fail(
    tick: Tick, index: int, fires: frozenset[EdgeType], fault: Fault, output: OutputRef | None, *, go_on: bool
) -> None:
    if races.lost(tick, index):
        lose(tick, index, fault)
        return
    step = tick.manifest.steps[index]
    if tick.lacks(tick.graph.exit_reads[index], step.ref, output):
        return
    status = NodeStatus.COMPLETED_WITH_ERROR if go_on else NodeStatus.FAILED
    ending = Ending(index=index, status=status, output=output, fault=fault)
    taken, broken = routing.take(tick.manifest, step, fires, partial(_test, tick, ending))
    if broken is not None and go_on and step.on_error is OnError.FAIL:
        # Its rejection was not heard after all. Without its output, for a redrive takes a failed node that has one for a success that went nowhere (C4).
        go_on, status, output = False, NodeStatus.FAILED, None
    _end(tick, index, NodeEnded(step_ref=step.ref, status=status, output=output, fault=broken or fault))
    handled = any(tick.manifest.edges[e].type in routing.HANDLING for e in taken)
    _resolve(tick, index, taken, EdgeState.DEAD_SKIP if handled else EdgeState.DEAD_FAILURE)
    if not go_on:
        tick.failing.append(index)


def skip(tick: Tick, index: int, reason: SkipReason) -> None:
    """The node is skipped. Its own condition and its time-out still fire `done` (G3, E2); a failure upstream is passed on (G1)."""
    step = tick.manifest.steps[index]
    taken: list[int] = []
    if reason in _PASSED_BY:
        if tick.lacks(tick.graph.exit_reads[index]):
            return
        ending = Ending(index=index, status=NodeStatus.SKIPPED)
        taken, fault = routing.take(tick.manifest, step, routing.REACHED, partial(_test, tick, ending))
        if fault is not None:
            fail(tick, index, fault)
            return
    _end(tick, index, NodeEnded(step_ref=step.ref, status=NodeStatus.SKIPPED, skip_reason=reason))
    failure = reason is SkipReason.UPSTREAM_FAILED
    _resolve(tick, index, taken, EdgeState.DEAD_FAILURE if failure else EdgeState.DEAD_SKIP)


def cancel(tick: Tick, index: int, fault: Fault | None = None) -> None:
    """The stop of the run ends the node: none of its edges fires, not even `done` (G5). One that lost a race passes a skip (G7).
    `fault`: what its last attempt reported, if anything."""
    ref = tick.manifest.steps[index].ref
    lost = tick.work.nodes[index].lost
    reason = SkipReason.RACE_LOST if lost else None
    _end(tick, index, NodeEnded(step_ref=ref, status=NodeStatus.CANCELLED, skip_reason=reason, fault=fault))
    _resolve(tick, index, (), EdgeState.DEAD_SKIP if lost else EdgeState.DEAD_FAILURE)


def lose(tick: Tick, index: int, fault: Fault | None = None) -> None:
    """End a node that has lost a race, and on which nobody works: skipped if it has not begun, else cancelled (G7). `fault`: what it came to, if anything."""
    node = tick.work.nodes[index]
    if node.status is NodeStatus.PENDING:
        skip(tick, index, SkipReason.RACE_LOST)
        return
    if not node.lost:
        tick.emit(RaceLost(step_ref=tick.manifest.steps[index].ref))
    cancel(tick, index, fault)


def _test(tick: Tick, ending: Ending, condition: Expression) -> bool:
    return tick.programs.condition(condition, bindings(tick, condition, ending))


def _end(tick: Tick, index: int, event: NodeEnded) -> None:
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    tick.emit(event)
    if node.status is not _PENDING and policy.total_timeout_ms(step, node) is not None:
        tick.unset(TimerKind.TOTAL_TIMEOUT, step.ref)
    if node.cancelling and (node.lost or (node.fan is not None and node.fan.fault is not None)):
        tick.unset(TimerKind.NODE_GRACE, step.ref)
    tick.touched.update(tick.graph.checkpoints[index])


def _resolve(tick: Tick, index: int, taken: Iterable[int], dead: EdgeState) -> None:
    step = tick.manifest.steps[index]
    if not step.outgoing:
        return
    chosen = frozenset(taken)
    edges = tuple([(e, _TAKEN if e in chosen else dead) for e in step.outgoing])
    tick.emit(EdgesResolved(step_ref=step.ref, edges=edges))
    tick.reach(tick.graph.targets[index])
    if index in tick.graph.gathers:
        tick.reach(tick.graph.gathers[index])
