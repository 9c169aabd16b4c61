"""Folding the events of fan-outs into their node: counters, never a child by itself (rulings F1 to F5). Part of `engine.evolve`."""

from datetime import datetime
from typing import assert_never

from msgspec.structs import replace

from ductord.engine.errors import EngineError
from ductord.engine.transitions import node_may
from ductord.model.enums import NodeStatus
from ductord.model.events import AttemptCreated, AttemptEnded
from ductord.model.fan import Fan
from ductord.model.fan_events import (
    ChildFailed,
    ChildrenBegun,
    ChildrenCancelled,
    ChildrenDropped,
    ChildrenSucceeded,
    FanExpanded,
    FanResumed,
    FanStopped,
)
from ductord.model.run import Node

ChildEvent = (
    ChildrenBegun
    | ChildrenSucceeded
    | ChildrenCancelled
    | ChildFailed
    | ChildrenDropped
    | FanStopped
    | AttemptCreated
    | AttemptEnded
)


def fanned(node: Node, event: ChildEvent) -> Node:
    """The node after an event about its children. Raises `EngineError` for one that does not follow."""
    node_may(event.step_ref, node.status, type(event), node.status)
    fan = node.fan
    if fan is None:
        raise EngineError("NO_FAN", f"node {event.step_ref} has no children")
    match event:
        case ChildrenSucceeded():
            many = len(event.children)
            after = replace(fan, open=fan.open - many, succeeded=fan.succeeded + many)
        case AttemptCreated():
            return replace(node, top=max(node.top, event.attempt))
        case AttemptEnded():
            return node
        case ChildrenBegun():
            return replace(node, fan=_begun(event, fan), top=max(node.top, event.attempt))
        case ChildrenCancelled():
            many = len(event.children)
            after = replace(fan, open=fan.open - many, cancelled=fan.cancelled + many)
        case ChildFailed():
            after = replace(fan, open=fan.open - 1, failed=fan.failed + 1)
            if fan.first_fault is None:
                after = replace(after, first_failed=event.item_index, first_fault=event.fault)
        case ChildrenDropped():
            after = replace(fan, open=0, cancelled=fan.cancelled + fan.open)
        case FanStopped():
            return replace(node, cancelling=True, fan=replace(fan, fault=event.fault))
        case _:
            assert_never(event)
    if after.open < 0:
        raise EngineError("CHILDREN_MISCOUNTED", f"node {event.step_ref}: {fan.open} were open")
    return replace(node, fan=after)


def opened(node: Node, event: FanExpanded | FanResumed, at: datetime) -> Node:
    """The node when it gets its children. Raises `EngineError` as `fanned`."""
    status = NodeStatus.RUNNING if event.waiting is None else NodeStatus.WAITING
    node_may(event.step_ref, node.status, type(event), status)
    if event.attempt <= node.attempt:
        raise EngineError("ATTEMPT_OUT_OF_ORDER", f"node {event.step_ref}: {event.attempt} after {node.attempt}")
    if isinstance(event, FanResumed):
        if node.fan is None:
            raise EngineError("NO_FAN", f"node {event.step_ref} has no children to go on with")
        fan = replace(
            node.fan,
            again=event.again,
            open=0,
            failed=0,
            cancelled=0,
            succeeded=node.fan.next - sum(count for _, count in event.again),
            due_time=None,
            fault=None,
            first_failed=-1,
            first_fault=None,
        )
    else:
        fan = Fan(
            expected=event.expected,
            width=event.width,
            pages=event.attempt,
            definition_id=event.definition_id,
            version_id=event.version_id,
            version=event.version,
            tier=event.tier,
        )
    return replace(
        node,
        status=status,
        attempt=event.attempt,
        waiting=event.waiting,
        first_time=node.first_time or at,
        fan=fan,
    )


def _begun(event: ChildrenBegun, fan: Fan) -> Fan:
    again, following = fan.again, fan.next
    if again:
        first, count = again[0]
        if event.first != first or event.count > count:
            raise EngineError("CHILD_OUT_OF_ORDER", f"node {event.step_ref}: {event.first} before {first}")
        rest = ((first + event.count, count - event.count),) if count > event.count else ()
        again = (*rest, *again[1:])
    else:
        if event.first != following or event.first + event.count > fan.expected:
            raise EngineError("CHILD_OUT_OF_ORDER", f"node {event.step_ref}: {event.first} is not {following}")
        following += event.count
    return replace(
        fan,
        again=again,
        next=following,
        open=fan.open + event.count,
        due_time=event.due_time or fan.due_time,
        child_run_id=event.run_id or fan.child_run_id,
    )
