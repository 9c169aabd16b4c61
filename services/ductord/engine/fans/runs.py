"""Children that are runs of their own, as their node sees them: how they end, and what becomes of them when it ends first (ruling F5).

A node that has such children is parked; nobody is at work for it in this run. What is told of a child is counted in `Node.fan`; controls go to children as
ordinary intents of theirs, one level per tick, so that a tree is stopped however deep it is (SW-02). It never reads a child's rows itself.
"""

from typing import Any

import msgspec

from ductord.engine import faults, policy, waiting
from ductord.engine.fans import beginning, births, counting, expanding, resuming
from ductord.engine.fans.expanding import fan_of
from ductord.engine.fans.inputs import bearing_of, inputs_of
from ductord.engine.tick import Tick
from ductord.model import ids, jsonvalue
from ductord.model.effects import ClearTimers
from ductord.model.enums import Outcome, RunStatus, TimerKind, Verb
from ductord.model.events import NodeCancelRequested
from ductord.model.fan import GatheredChild
from ductord.model.fan_effects import ControlChildren, DetachChildren
from ductord.model.fan_events import ChildFailed, ChildrenCancelled, ChildrenDropped, ChildrenSucceeded
from ductord.model.fanout import ClosePolicy
from ductord.model.fault import Fault
from ductord.model.inbox import ChildFact
from ductord.model.needs import GatheredNeed

_CALLED_OFF = (RunStatus.CANCELLED, RunStatus.TERMINATED)


def fault_of(fact: ChildFact) -> Fault | None:
    """What a child that has ended so is to its parent; None where it is a success."""
    if fact.status is None or fact.status is RunStatus.COMPLETED:
        return None
    return faults.of_child(fact.status, fact.fault, fact.run_id)


def count(tick: Tick, index: int, fact: ChildFact, fault: Fault | None) -> None:
    """Record how a child has ended, or that it has reached what was waited for. One that was called off and stopped has not failed."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    if fault is None:
        tick.emit(ChildrenSucceeded(step_ref=step.ref, children=((fact.item_index, 0),)))
    elif node.cancelling and fact.status in _CALLED_OFF:
        tick.emit(ChildrenCancelled(step_ref=step.ref, children=((fact.item_index, 0),)))
    else:
        tick.emit(
            ChildFailed(
                step_ref=step.ref, item_index=fact.item_index, fault=fault, run_id=fact.run_id, status=fact.status
            )
        )


def gathered(tick: Tick, index: int) -> tuple[GatheredChild, ...]:
    """What the children of the node came to, in order; nothing, and noted as missing, where it is still to be loaded. Raises `PayloadInvalid` for more than an
    output may be (L7)."""
    ref, fan = tick.manifest.steps[index].ref, fan_of(tick, index)
    limit = tick.limits.aggregate_max_bytes
    if not fan.expected:
        return ()
    found: Any = tick.given(GatheredNeed(step_ref=ref, expected=fan.expected, runs=True, max_bytes=limit))
    if found is msgspec.UNSET:
        return ()
    if found.size > limit:
        raise jsonvalue.too_large(found.size, limit, "output")
    return found.children  # type: ignore[no-any-return]


def fill(tick: Tick, index: int) -> None:
    """Let children be born, or take those up that a redrive goes on with: as many as one tick may begin, and none after more have failed than may."""
    inputs, kindred = inputs_of(tick, index), resuming.kindred(tick, index)
    if inputs is None or kindred is None:
        return
    many = bearing_of(tick.manifest.steps[index]).many
    while (most := beginning.room(tick, index)) and beginning.may_begin(tick, index) and not _seen_enough(tick, index):
        first, count = next(beginning.ranges(fan_of(tick, index), most))
        items = expanding.items(tick, index, first, count) if many else [None]
        if items is None:
            return
        due_times = beginning.due_times(tick, index, count) if _staggered(tick, index) else ()
        births.bear(
            tick, index, first, items, inputs, due_times=due_times, kin=kindred.kin, from_run_id=kindred.from_run_id
        )


def ask(tick: Tick, index: int) -> None:
    """Begin no further children, and wait for those that are open for as long as the grace lasts: the run goes on as another (C6)."""
    tick.emit(NodeCancelRequested(step_ref=tick.manifest.steps[index].ref))


def drop(tick: Tick, index: int, outcome: Outcome) -> None:
    """The wait ends at once (C3). Children of one that has lost a race get what their close policy says; those of a run that is being stopped get it at its
    end, and a time-out does nothing to them (F5)."""
    waiting.leave(tick, index)
    if tick.work.nodes[index].lost:
        control(tick, index, "lost")
    _give_up(tick, index)


def call_off(tick: Tick, index: int) -> None:
    """More children have failed than may: the open ones get what their close policy says, and are waited for (F2). Those that are let go are not."""
    control(tick, index, "stopped")
    if bearing_of(tick.manifest.steps[index]).close_policy is ClosePolicy.ABANDON:
        _give_up(tick, index)


def reset(tick: Tick, index: int) -> None:
    """Put away what the node has begun: it is about to begin anew, with children of its own (C10)."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    waiting.leave(tick, index)
    if policy.total_timeout_ms(step, node) is not None:
        tick.do(ClearTimers(kind=TimerKind.TOTAL_TIMEOUT, step_ref=step.ref))
    if node.cancelling:
        tick.do(ClearTimers(kind=TimerKind.NODE_GRACE, step_ref=step.ref))
    control(tick, index, "reset")
    _give_up(tick, index)


def control(tick: Tick, index: int, why: str) -> None:
    """The open children of the node get what their close policy says, while the run goes on. `why`: one word, part of what makes the controls unique."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    if node.fan is None or not node.fan.open:
        return
    close_policy = bearing_of(step).close_policy
    if close_policy is ClosePolicy.ABANDON:
        detach(tick, index)
        return
    verb = Verb.TERMINATE if close_policy is ClosePolicy.TERMINATE else Verb.CANCEL
    key = ids.derived("close", tick.run_id, step.ref, node.attempt, why)
    reason = {
        "lost": f"step {step.ref} of the parent has lost a race",
        "reset": f"step {step.ref} of the parent was reset",
    }
    tick.do(
        ControlChildren(
            step_ref=step.ref, verb=verb, key=key, reason=reason.get(why, f"step {step.ref} of the parent has stopped")
        )
    )


def detach(tick: Tick, index: int) -> None:
    """The open children of the node are let go (F5)."""
    tick.do(DetachChildren(step_ref=tick.manifest.steps[index].ref))


def _seen_enough(tick: Tick, index: int) -> bool:
    return counting.over(tick, index) or counting.too_many(tick, index) is not None


def _staggered(tick: Tick, index: int) -> bool:
    scatter = tick.manifest.steps[index].scatter
    return scatter is not None and scatter.interval_ms > 0


def _give_up(tick: Tick, index: int) -> None:
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    if node.fan is not None and node.fan.open:
        tick.emit(ChildrenDropped(step_ref=step.ref))
