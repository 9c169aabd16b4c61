"""Redrive: a failed, timed-out or cancelled run goes on from where it was cut off, under its own id and version (ruling C4).

`plan` is the whole decision, pure, so that a dry run says exactly what would happen; `apply_redrive` carries it out in a tick.
"""

import msgspec

from ductord.engine import exits, faults, races
from ductord.engine.controls.settling import settle
from ductord.engine.graph import graph_of
from ductord.engine.tick import Tick
from ductord.model.control import Control, Rejection
from ductord.model.effects import ClearCheckpoint, SetTimer, SettleControl
from ductord.model.enums import (
    CheckpointStatus,
    CompensationStatus,
    NodeStatus,
    RunStatus,
    SkipReason,
    TaskKind,
    TimerKind,
    Verb,
)
from ductord.model.events import RunRedriven
from ductord.model.fan_effects import PassChildOn, TellCheckpoint, TellParent
from ductord.model.manifest import Manifest
from ductord.model.run import Node, Run

_REDRIVEN = (RunStatus.FAILED, RunStatus.TIMED_OUT, RunStatus.CANCELLED)


class RedrivePlan(msgspec.Struct, frozen=True, kw_only=True):
    """What a redrive does to the nodes of a run, as step refs in graph order. `reevaluated`: their action had succeeded, so only their result_expr, conditions
    and choices are judged again. `resumed`: those of `restarted` that go on with the children that they have (F3, F4)."""

    restarted: tuple[str, ...]
    reevaluated: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    resumed: tuple[str, ...] = ()


def plan(manifest: Manifest, run: Run) -> RedrivePlan:
    """What a redrive of this run would do. A node that is judged again may go another way than before, so what is downstream of it starts anew, and a node
    downstream of one that starts anew starts anew itself, whatever it had: its children too, unless it was cut off and nothing above it is restarted."""
    graph = graph_of(manifest)
    cut = [index for index, node in enumerate(run.nodes) if _cut_off(node)]
    again = {index for index in cut if _went_nowhere(run.nodes[index])}
    restarted = graph.downstream(index for index in cut if index not in again)
    reevaluated = set[int]()
    for index in sorted(again):  # in Kahn order, so that what is above has been looked at
        if index not in restarted:
            reevaluated.add(index)
            restarted |= graph.downstream(graph.targets[index])
    restarted |= graph.downstream(races.in_again(manifest, run, restarted))
    below = graph.downstream(target for index in (*restarted, *reevaluated) for target in graph.targets[index])
    refs = [step.ref for step in manifest.steps]
    return RedrivePlan(
        restarted=tuple(refs[i] for i in sorted(restarted)),
        reevaluated=tuple(refs[i] for i in sorted(reevaluated)),
        kept=tuple(ref for i, ref in enumerate(refs) if i not in restarted and i not in reevaluated),
        resumed=tuple(refs[i] for i in cut if i in restarted - below and run.nodes[i].fan is not None),
    )


def _went_nowhere(node: Node) -> bool:
    """Whether the node's own work is done and only what came after failed. A rejection is a failure that has an output (E2)."""
    rejected = node.fault is not None and node.fault.code == faults.APPROVAL_REJECTED
    return node.status is NodeStatus.FAILED and node.output is not None and not rejected


def _cut_off(node: Node) -> bool:
    """Whether the node failed, was cancelled, or never began because the run was stopped."""
    if node.skip_reason is SkipReason.RACE_LOST:
        return False  # the race that it lost is over; if that starts anew without a winner, `plan` says so
    return node.status in (NodeStatus.FAILED, NodeStatus.CANCELLED) or node.skip_reason is SkipReason.RUN_ENDED


def refusal(run: Run | None, control: Control) -> Rejection | None:
    """Why the run, as it stands, cannot be redriven (C4)."""
    status = run.status if run is not None else RunStatus.PENDING
    told = {"status": status.value}
    if run is None or not status.terminal:
        message = f"the run is {status} and has not ended: only a failed, timed-out or cancelled run is redriven"
        return Rejection(reason="RUN_NOT_TERMINAL", message=message, metadata=told)
    if run.continued_to_run_id:
        message = f"the run goes on as {run.continued_to_run_id}"
        told["continued_to_run_id"] = run.continued_to_run_id
        return Rejection(reason="RUN_TERMINAL", message=message, metadata=told)
    if run.merged_into_run_id:
        message = f"the run's event went on with {run.merged_into_run_id}, and would be told twice"
        return Rejection(reason="RUN_STATUS_UNSUITED", message=message, metadata=told)
    if status not in _REDRIVEN:
        message = f"the run is {status}: only a failed, timed-out or cancelled run is redriven; a reset starts a new run from it"
        return Rejection(reason="RUN_STATUS_UNSUITED", message=message, metadata=told)
    unwinding = {"compensation_status": run.saga.status.value}
    if run.saga.status is CompensationStatus.RUNNING:
        message = "inverse or final actions of the run are running: redrive it when they have ended"
        return Rejection(reason="RUN_COMPENSATING", message=message, metadata=unwinding)
    undone = dict.fromkeys(entry.step_ref for entry in run.saga.plan if entry.kind is TaskKind.COMPENSATION)
    if undone and not control.body.force:
        refs = ", ".join(undone)
        message = (
            f"inverses of {refs} have run or are unaccounted for, so steps that are kept would have effects that were undone; "
            "`force` says that this is meant"
        )
        return Rejection(
            reason="RUN_COMPENSATED", message=message, metadata={**unwinding, "step_refs": ",".join(undone)}
        )
    return None


def apply_redrive(tick: Tick, control: Control) -> None:
    """Open the run again. What it makes ready begins in this same tick."""
    before = tick.work.view()
    planned = plan(tick.manifest, before)
    told = tuple(tick.work.checkpoints)
    tick.emit(
        RunRedriven(
            request_id=control.request_id,
            steps=planned.restarted,
            reevaluated=planned.reevaluated,
            resumed=planned.resumed,
        )
    )
    for number, checkpoint in enumerate(tick.manifest.checkpoints):
        if tick.work.checkpoints[number].status is CheckpointStatus.PENDING:
            if told[number].status is CheckpointStatus.UNREACHABLE:
                tick.do(ClearCheckpoint(name=checkpoint.name))
            tick.touched.add(number)
        elif tick.inbox.start.parent_run_id:
            # Who waits for it anew was told as a child of an earlier attempt, or was not.
            tick.do(TellCheckpoint(name=checkpoint.name, status=tick.work.checkpoints[number].status))
    if tick.manifest.run_timeout_ms is not None:
        tick.do(SetTimer(kind=TimerKind.RUN_TIMEOUT, due_time=tick.after(tick.manifest.run_timeout_ms)))
    index = tick.graph.index
    tick.reach(index[ref] for ref in planned.restarted)
    for ref in planned.reevaluated:
        exits.succeed(tick, index[ref], before.nodes[index[ref]].output)
    settle(
        tick,
        control,
        result={
            "restarted": str(len(planned.restarted)),
            "reevaluated": str(len(planned.reevaluated)),
            "kept": str(len(planned.kept)),
        },
    )


def is_early(tick: Tick, control: Control) -> bool:
    """Whether this is a parent's redrive of a run that has not ended. One that is being stopped is redriven when it has; the control waits for that. Any other
    goes on as it is, which is what the parent wants of it."""
    run = tick.work.run
    if control.verb is not Verb.REDRIVE or run.status.terminal or not _of_parent(tick, control):
        return False
    if run.stop is None:
        settle(tick, control, "the run had not ended, and goes on")
    return True


def follows(tick: Tick) -> bool:
    """Whether a parent's redrive waits for the end of the run, which has just come: it is carried out, or refused, in a tick of its own."""
    settled = {effect.request_id for effect in tick.effects if isinstance(effect, SettleControl)}
    return any(
        control.verb is Verb.REDRIVE and control.request_id not in settled and _of_parent(tick, control)
        for control in tick.inbox.controls
    )


def _of_parent(tick: Tick, control: Control) -> bool:
    parent = tick.inbox.start.parent_run_id
    return bool(parent) and control.actor == f"run:{parent}"


def tell_parent(tick: Tick) -> None:
    """A redrive was refused that the run's parent may have asked for, and waits for: it is told again how the run ended, or where it went on (F5)."""
    run = tick.work.run
    if not tick.inbox.start.parent_run_id or not run.status.terminal:
        return
    if run.continued_to_run_id:
        tick.do(PassChildOn(run_id=run.continued_to_run_id))
    else:
        tick.do(TellParent(status=run.status, fault=run.fault))
