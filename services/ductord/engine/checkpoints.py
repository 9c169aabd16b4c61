"""Checkpoints: reached once, or known to be out of reach as soon as one of their steps ended otherwise (ruling G9)."""

from ductord.engine import routing
from ductord.engine.tick import Tick
from ductord.model.effects import RecordCheckpoint
from ductord.model.enums import CheckpointStatus, NodeStatus, SkipReason
from ductord.model.events import CheckpointReached, CheckpointUnreachable
from ductord.model.fan_effects import TellCheckpoint

_PASSING_SKIPS = frozenset(
    {
        SkipReason.CONDITION,
        SkipReason.CHOICE,
        SkipReason.UPSTREAM_SKIPPED,
        SkipReason.RACE_LOST,
        SkipReason.OPERATOR,
    }
)


def judge(tick: Tick) -> None:
    """Decide every pending checkpoint that names a step which ended in this tick."""
    if not tick.touched:
        return
    for number in sorted(tick.touched):
        if tick.work.checkpoints[number].status is not CheckpointStatus.PENDING:
            continue
        checkpoint = tick.manifest.checkpoints[number]
        met = [_met(tick, index) for index in checkpoint.steps]
        if False in met:
            tick.emit(CheckpointUnreachable(name=checkpoint.name))
            tick.do(RecordCheckpoint(name=checkpoint.name, status=CheckpointStatus.UNREACHABLE))
            _tell_parent(tick, checkpoint.name, CheckpointStatus.UNREACHABLE)
        elif None not in met:
            tick.emit(CheckpointReached(name=checkpoint.name))
            refs = outputs_of(tick, checkpoint.steps)
            tick.do(RecordCheckpoint(name=checkpoint.name, status=CheckpointStatus.REACHED, refs=refs))
            _tell_parent(tick, checkpoint.name, CheckpointStatus.REACHED)


def _tell_parent(tick: Tick, name: str, status: CheckpointStatus) -> None:
    """A run that waits for this one as its child may wait for the checkpoint alone (F5)."""
    if tick.inbox.start.parent_run_id:
        tick.do(TellCheckpoint(name=name, status=status))


def outputs_of(tick: Tick, indexes: tuple[int, ...]) -> dict[str, int]:
    """Where these steps' outputs are: step ref → attempt, without the steps that have none."""
    return {
        tick.manifest.steps[index].ref: output.attempt
        for index in indexes
        if (output := tick.work.nodes[index].output) is not None
    }


def _met(tick: Tick, index: int) -> bool | None:
    """True: the step satisfies a checkpoint. False: it never will. None: it has not ended."""
    node = tick.work.nodes[index]
    match node.status:
        case NodeStatus.SUCCEEDED:
            return True
        case NodeStatus.SKIPPED:
            return node.skip_reason in _PASSING_SKIPS
        case NodeStatus.COMPLETED_WITH_ERROR:
            edges = tick.manifest.edges
            outgoing = tick.manifest.steps[index].outgoing
            return any(tick.work.taken(e) and edges[e].type in routing.HANDLING for e in outgoing)
        case NodeStatus.CANCELLED:
            return node.skip_reason in _PASSING_SKIPS  # it lost a race while it was at work
        case NodeStatus.FAILED:
            return False
        case NodeStatus.PENDING | NodeStatus.RUNNING | NodeStatus.WAITING:
            return None
