"""How a node ends: its status, its edges, and what hangs on both, in one place and in one order (rulings G1, G3, G4, G6, L4, L9).

A node that is to succeed may still fail here, because its result_expr, a condition or a choice group has the last word. A call that lacks
outputs changes nothing but `Tick.missing`.
"""

from collections.abc import Iterable
from functools import partial

from ductord.engine import faults, policy, routing
from ductord.engine.expressions import ExpressionError
from ductord.engine.reading import Ending, bindings
from ductord.engine.tick import Tick
from ductord.model.effects import ClearTimers
from ductord.model.enums import EdgeState, NodeStatus, OnError, SkipReason, TimerKind
from ductord.model.events import EdgesResolved, NodeEnded
from ductord.model.manifest import Expression
from ductord.model.run import Fault, OutputRef


def succeed(tick: Tick, index: int, output: OutputRef | None) -> None:
    """The step's work is done; the node succeeds unless its result_expr or its routing fails."""
    step = tick.manifest.steps[index]
    if tick.lacks(tick.graph.exit_reads[index], step.ref, output):
        tick.foresee(index, output)
        return
    ending = Ending(index=index, status=NodeStatus.SUCCEEDED, output=output)
    fires = routing.SUCCESS
    if step.result_expr is not None:
        try:
            seen = bindings(tick, step.result_expr, ending, own_output=True)
            fires = routing.SUCCESS_TRUE if tick.programs.condition(step.result_expr, seen) else routing.SUCCESS_FALSE
        except ExpressionError as error:
            fail(tick, index, faults.of_expression(error), output)
            return
    taken, fault = routing.take(tick.manifest, step, fires, partial(_test, tick, ending))
    if fault is not None:
        fail(tick, index, fault, output)
        return
    _end(tick, index, NodeEnded(step_ref=step.ref, status=NodeStatus.SUCCEEDED, output=output))
    _resolve(tick, index, taken, EdgeState.DEAD_SKIP)


def fail(tick: Tick, index: int, fault: Fault, output: OutputRef | None = None) -> None:
    """The node fails: `completed_with_error` if its on_error is `continue`, else `failed`, which stops the run by its policy (G4, G5).

    If routing the failure fails too, that edge is dead and its fault replaces the first: nothing may pass for handled that was not evaluated.
    """
    step = tick.manifest.steps[index]
    if tick.lacks(tick.graph.exit_reads[index], step.ref, output):
        return
    go_on = step.on_error is OnError.CONTINUE
    status = NodeStatus.COMPLETED_WITH_ERROR if go_on else NodeStatus.FAILED
    ending = Ending(index=index, status=status, output=output, fault=fault)
    taken, broken = routing.take(tick.manifest, step, routing.FAILURE, partial(_test, tick, ending))
    _end(tick, index, NodeEnded(step_ref=step.ref, status=status, output=output, fault=broken or fault))
    handled = any(tick.manifest.edges[e].type in routing.HANDLING for e in taken)
    _resolve(tick, index, taken, EdgeState.DEAD_SKIP if handled else EdgeState.DEAD_FAILURE)
    if not go_on:
        tick.failing.append(index)


def skip(tick: Tick, index: int, reason: SkipReason) -> None:
    """The node is skipped. Its own condition still fires `done` (G3); a failure upstream is passed on (G1)."""
    step = tick.manifest.steps[index]
    taken: list[int] = []
    if reason is SkipReason.CONDITION:
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
    """The stop of the run ends the node: none of its edges fires, not even `done` (G5). `fault`: what its last attempt reported, if anything."""
    ref = tick.manifest.steps[index].ref
    _end(tick, index, NodeEnded(step_ref=ref, status=NodeStatus.CANCELLED, fault=fault))
    _resolve(tick, index, (), EdgeState.DEAD_FAILURE)


def _test(tick: Tick, ending: Ending, condition: Expression) -> bool:
    return tick.programs.condition(condition, bindings(tick, condition, ending))


def _end(tick: Tick, index: int, event: NodeEnded) -> None:
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    tick.emit(event)
    if node.status is not NodeStatus.PENDING and policy.total_timeout_ms(step, node) is not None:
        tick.do(ClearTimers(step_ref=step.ref, kind=TimerKind.TOTAL_TIMEOUT))
    tick.touched.update(tick.graph.checkpoints[index])


def _resolve(tick: Tick, index: int, taken: Iterable[int], dead: EdgeState) -> None:
    step = tick.manifest.steps[index]
    if not step.outgoing:
        return
    chosen = frozenset(taken)
    edges = tuple((e, EdgeState.TAKEN if e in chosen else dead) for e in step.outgoing)
    tick.emit(EdgesResolved(step_ref=step.ref, edges=edges))
    tick.reach(tick.manifest.edges[e].target for e in step.outgoing)
