"""Pending steps whose incoming edges changed: wait, be skipped, or begin (rulings G1, G2, L4).

Goes through them in Kahn order, so that every step is looked at after all its predecessors that end in this tick.
"""

from heapq import heappop
from typing import Final

from ductord.engine import exits, faults, races, routing, stopping
from ductord.engine.expressions import ExpressionError
from ductord.engine.reading import bindings
from ductord.engine.routing import Arrival
from ductord.engine.steps import kind_of
from ductord.engine.tick import First, Tick
from ductord.model.enums import NodeStatus, SkipReason
from ductord.model.errors import PayloadInvalid

_PENDING: Final = NodeStatus.PENDING


def settle(tick: Tick) -> None:
    """Follow edges until nothing moves. A failure stops the run before any further step is looked at (G5)."""
    while tick.failing or tick.frontier:
        if tick.failing:
            stopping.on_failure(tick)
        elif tick.frontier:
            _arrive(tick, heappop(tick.frontier))


def look_again(tick: Tick) -> None:
    """Take up what a pause, a redrive or a reset left lying: every pending node is looked at, and failures that have not stopped the run do so now (C2)."""
    nodes = tick.work.nodes
    tick.reach(index for index, node in enumerate(nodes) if node.status is NodeStatus.PENDING)
    if tick.work.run.stop is None:
        failed = [index for index, node in enumerate(nodes) if node.status is NodeStatus.FAILED]
        tick.failing = sorted(failed, key=lambda index: (nodes[index].end_time or tick.now, index))


def begin(tick: Tick, index: int) -> None:
    """Judge run_if, then prepare the step's work; it is started at the end of the tick. An evaluation error fails the node (L4). A step whose output a reset
    preserved has it at once, without asking its run_if again (C5)."""
    step = tick.manifest.steps[index]
    preserved = tick.inbox.start.preserved.get(step.ref)
    if preserved is not None and not tick.work.nodes[index].preserved:
        exits.succeed(tick, index, preserved)
        if races.calls_off(tick, index):
            stopping.call_off(tick, index)
        return
    if tick.lacks(tick.graph.start_reads[index]):
        return
    try:
        if step.run_if is not None and not tick.programs.condition(step.run_if, bindings(tick, step.run_if)):
            exits.skip(tick, index, SkipReason.CONDITION)
            return
        kind = kind_of(tick, index)
        if kind.at_once is None:
            tick.ready[index] = First(kind.prepare(tick, index))
        elif kind.at_once(tick, index):
            stopping.call_off(tick, index)
    except ExpressionError as error:
        exits.fail(tick, index, faults.of_expression(error))
    except PayloadInvalid as error:
        exits.fail(tick, index, faults.of_payload(error))
    except faults.NodeFault as error:
        exits.fail(tick, index, error.fault)


def _arrive(tick: Tick, index: int) -> None:
    node = tick.work.nodes[index]
    if node.status is not _PENDING or index in tick.ready:
        return
    step = tick.manifest.steps[index]
    of_kind = kind_of(tick, index).arrival
    match of_kind(tick, index) if of_kind else routing.arrival(tick.manifest, step, tick.work.edges):
        case Arrival.RUN:
            if not node.paused:
                begin(tick, index)
        case Arrival.SKIP:
            exits.skip(tick, index, routing.skip_reason(tick.manifest, step, tick.work.edges))
        case Arrival.SKIP_FAILURE:
            exits.skip(tick, index, SkipReason.UPSTREAM_FAILED)
        case Arrival.WAIT:
            pass
