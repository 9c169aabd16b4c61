"""The levers on one node: hold it, let it go, start it anew, give it other policies (rulings C2, C10, A1, A3).

What a lever means for a type of step is asked of its kind; nothing here knows attempts or waits.
"""

from typing import TypeVar

from msgspec.structs import replace

from ductord.engine import policy, races
from ductord.engine.controls.settling import settle
from ductord.engine.steps import kind_of
from ductord.engine.tick import Tick
from ductord.model.control import Control
from ductord.model.effects import ClearCheckpoint
from ductord.model.enums import CheckpointStatus
from ductord.model.events import NodePaused, NodePolicyChanged, NodeReset, NodeResumed
from ductord.model.specs import RetryPolicy, Timeouts

Policy = TypeVar("Policy", RetryPolicy, Timeouts)


def apply_pause_node(tick: Tick, control: Control) -> None:
    """The node does not begin, and no further attempt of it is handed out; one that is at work goes on."""
    if tick.work.nodes[_index(tick, control)].paused:
        settle(tick, control, f"step {control.step_ref} was paused already")
        return
    tick.emit(NodePaused(step_ref=control.step_ref, request_id=control.request_id))
    settle(tick, control)


def apply_resume_node(tick: Tick, control: Control) -> None:
    """The node is held no longer; in a paused run it waits for that to be resumed."""
    tick.emit(NodeResumed(step_ref=control.step_ref, request_id=control.request_id))
    tick.reach((_index(tick, control),))
    settle(tick, control)


def apply_reset_node(tick: Tick, control: Control) -> None:
    """The node begins anew with fresh input and budget, and so does what was skipped, or failed without an attempt, because of how it had ended. What it has
    open is put away at once; nobody is waited for. Where it had won a race that has been reset as well, those who lost are in it again (G7)."""
    index = _index(tick, control)
    nodes = tick.work.nodes
    undecided = [i for i in sorted(tick.graph.downstream((index,)) - {index}) if nodes[i].status.terminal]
    undecided += sorted(races.in_again(tick.manifest, tick.work.view(), {index, *undecided}) - {index, *undecided})
    checkpoints = tuple(tick.work.checkpoints)
    for renewed in (index, *undecided):
        if nodes[renewed].status.begun:
            kind_of(tick, renewed).reset(tick, renewed)
        tick.emit(NodeReset(step_ref=tick.manifest.steps[renewed].ref, request_id=control.request_id))
    for number, before in enumerate(checkpoints):
        if before.status is CheckpointStatus.UNREACHABLE and tick.work.checkpoints[number] != before:
            tick.do(ClearCheckpoint(name=tick.manifest.checkpoints[number].name))
    tick.failing = [i for i in tick.failing if i != index and i not in undecided]
    tick.reach((index, *undecided))
    settle(tick, control)


def apply_update_node_retry_policy(tick: Tick, control: Control) -> None:
    """Another retry policy from the node's next failure on; it is kept over resets and redrives of the run."""
    index = _index(tick, control)
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    before = policy.retry_of(step, node)
    after = step.retry if control.body.restore else _overlaid(before, control.body.retry, control.body.fields)
    _change(tick, control, retry=None if after == step.retry else after, timeouts=node.timeouts)


def apply_update_node_timeout(tick: Tick, control: Control) -> None:
    """Other time-outs from the node's next attempt on; the one across attempts at once, counted from the first."""
    index = _index(tick, control)
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    own, before = policy.own_timeouts(step), policy.timeouts_of(step, node)
    after = own if control.body.restore else _overlaid(before, control.body.timeouts, control.body.fields)
    _change(tick, control, retry=node.retry, timeouts=None if after == own else after)
    if tick.work.nodes[index].status.begun:
        kind_of(tick, index).retime(tick, index, before)


def _change(tick: Tick, control: Control, *, retry: RetryPolicy | None, timeouts: Timeouts | None) -> None:
    node = tick.work.nodes[_index(tick, control)]
    if (retry, timeouts) == (node.retry, node.timeouts):
        settle(tick, control, "that was in force already")
        return
    tick.emit(
        NodePolicyChanged(step_ref=control.step_ref, request_id=control.request_id, retry=retry, timeouts=timeouts)
    )
    settle(tick, control)


def _overlaid(before: Policy, given: Policy | None, fields: tuple[str, ...]) -> Policy:
    """`before` with those fields of `given`."""
    return before if given is None else replace(before, **{name: getattr(given, name) for name in fields})


def _index(tick: Tick, control: Control) -> int:
    return tick.graph.index[control.step_ref]
