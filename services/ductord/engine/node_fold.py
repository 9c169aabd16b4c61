"""Folding the events of a node that is at work or waits: its attempts, its waits, what was asked of it (rulings A1, A4, A6, G4, G7). Part of `engine.evolve`.

A node alone: what ends it, resets it or resolves its edges also changes the run, and is folded there.
"""

from datetime import datetime
from typing import Final, assert_never

from msgspec.structs import replace

from ductord.engine.doubt import may_have_acted
from ductord.engine.errors import EngineError
from ductord.engine.transitions import node_may
from ductord.model.enums import NodeStatus, Outcome
from ductord.model.events import (
    AttemptCreated,
    AttemptEnded,
    EventsReceived,
    NodeCancelRequested,
    NodeParked,
    NodePaused,
    NodePolicyChanged,
    NodeResumed,
    RaceLost,
    WaitChanged,
)
from ductord.model.run import Node

NodeEvent = (
    NodeParked
    | WaitChanged
    | EventsReceived
    | NodeCancelRequested
    | NodePaused
    | NodeResumed
    | NodePolicyChanged
    | RaceLost
)


_RUNNING: Final = NodeStatus.RUNNING


def folded(node: Node, event: NodeEvent, at: datetime) -> Node:
    """The node after an event about itself. Raises `EngineError` for one that the transition table or the numbering does not allow."""
    match event:
        case NodeParked():
            return _parked(node, event, at)
        case WaitChanged():
            node_may(event.step_ref, node.status, WaitChanged, NodeStatus.WAITING)
            return replace(node, waiting=event.waiting)
        case EventsReceived():
            node_may(event.step_ref, node.status, EventsReceived, NodeStatus.WAITING)
            assert node.waiting is not None
            waiting = replace(node.waiting, received=(*node.waiting.received, *event.received))
            return replace(node, waiting=waiting)
        case _:
            node_may(event.step_ref, node.status, type(event), node.status)
            return _asked(node, event)


def attempt_created(node: Node, event: AttemptCreated, at: datetime) -> Node:
    """The node with its next attempt. Raises `EngineError` as `folded`."""
    node_may(event.step_ref, node.status, AttemptCreated, _RUNNING)
    if event.attempt != node.attempt + 1 or event.logical - node.logical not in (0, 1):
        raise EngineError(
            "ATTEMPT_OUT_OF_ORDER",
            f"node {event.step_ref}: attempt {event.attempt} ({event.logical}) after {node.attempt} ({node.logical})",
        )
    return replace(
        node,
        status=_RUNNING,
        attempt=event.attempt,
        logical=event.logical,
        due_time=event.due_time,
        first_time=node.first_time or at,
    )


def attempt_ended(node: Node, event: AttemptEnded) -> Node:
    """The node when an attempt of it was judged. Raises `EngineError` as `folded`."""
    node_may(event.step_ref, node.status, AttemptEnded, _RUNNING)
    if event.attempt != node.attempt:
        raise EngineError("ATTEMPT_OUT_OF_ORDER", f"node {event.step_ref}: {event.attempt} is not {node.attempt}")
    return replace(
        node,
        failures=node.failures + event.spent,
        losses=node.losses + (event.outcome is Outcome.LOST),
        returned=node.returned + event.outcome.returned,
        due_time=None,
        fault=event.fault or node.fault,
        unknown=_unknown(node, event),
    )


def _parked(node: Node, event: NodeParked, at: datetime) -> Node:
    node_may(event.step_ref, node.status, NodeParked, NodeStatus.WAITING)
    if event.attempt != node.attempt + 1:
        raise EngineError("ATTEMPT_OUT_OF_ORDER", f"node {event.step_ref}: wait {event.attempt} after {node.attempt}")
    return replace(
        node,
        status=NodeStatus.WAITING,
        attempt=event.attempt,
        waiting=event.waiting,
        first_time=node.first_time or at,
    )


def _asked(node: Node, event: NodeCancelRequested | NodePaused | NodeResumed | NodePolicyChanged | RaceLost) -> Node:
    match event:
        case NodeCancelRequested():
            return replace(node, cancelling=True)
        case NodePaused():
            return replace(node, paused=True)
        case NodeResumed():
            return replace(node, paused=False)
        case NodePolicyChanged():
            return replace(node, retry=event.retry, timeouts=event.timeouts)
        case RaceLost():
            return replace(node, lost=True)
        case _:
            assert_never(event)


def _unknown(node: Node, event: AttemptEnded) -> tuple[int, ...]:
    """The logical attempts of a node of which nobody knows whether they acted. A success settles it: the others' keys were its key, or were reported on."""
    if event.outcome is Outcome.SUCCEEDED:
        return ()
    acted = may_have_acted(event.outcome, event.fault, started=event.started)
    if acted and node.logical not in node.unknown:
        return (*node.unknown, node.logical)
    return node.unknown
