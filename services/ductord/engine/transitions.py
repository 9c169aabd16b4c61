"""The two transition tables: what may become of a run and of a node, by which event.

These tables are the only place that knows how a status is left; `evolve` refuses every event that they do not list, and the diagrams in
docs/state-machines.md are printed from them. A terminal run is left by a redrive only (G8); a terminal node by a reset of the node or by its run's
redrive.
"""

from collections.abc import Mapping

from ductord.engine.errors import EngineError
from ductord.model.enums import NodeStatus, RunStatus
from ductord.model.events import (
    AttemptCreated,
    AttemptEnded,
    EventsReceived,
    NodeCancelRequested,
    NodeEnded,
    NodeParked,
    NodePaused,
    NodePolicyChanged,
    NodeReset,
    NodeResumed,
    RaceLost,
    RunEnded,
    RunPaused,
    RunRedriven,
    RunResumed,
    RunStarted,
    RunStopping,
    WaitChanged,
)
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

RUN: Mapping[RunStatus, Mapping[type, frozenset[RunStatus]]] = {
    RunStatus.PENDING: {RunStarted: frozenset({RunStatus.RUNNING})},
    RunStatus.RUNNING: {
        RunPaused: frozenset({RunStatus.PAUSED}),
        RunStopping: frozenset({RunStatus.RUNNING}),
        RunEnded: frozenset(
            {
                RunStatus.COMPLETED,
                RunStatus.FAILED,
                RunStatus.CANCELLED,
                RunStatus.TIMED_OUT,
                RunStatus.TERMINATED,
                RunStatus.MERGED,
            }
        ),
    },
    RunStatus.PAUSED: {
        RunResumed: frozenset({RunStatus.RUNNING}),
        RunStopping: frozenset({RunStatus.RUNNING}),
    },
    RunStatus.FAILED: {RunRedriven: frozenset({RunStatus.RUNNING})},
    RunStatus.CANCELLED: {RunRedriven: frozenset({RunStatus.RUNNING})},
    RunStatus.TIMED_OUT: {RunRedriven: frozenset({RunStatus.RUNNING})},
}


def _of_children(status: NodeStatus) -> dict[type, frozenset[NodeStatus]]:
    """What children do leaves the node where it is; when all have ended, that is another event."""
    told = (ChildrenBegun, ChildrenSucceeded, ChildrenCancelled, ChildFailed, ChildrenDropped, FanStopped)
    return {event: frozenset({status}) for event in told}


NODE: Mapping[NodeStatus, Mapping[type, frozenset[NodeStatus]]] = {
    NodeStatus.PENDING: {
        AttemptCreated: frozenset({NodeStatus.RUNNING}),
        # A node that never ran: skipped (G1), its run_if or args did not evaluate (L4), or a reset preserved its output (C5).
        NodeEnded: frozenset(
            {NodeStatus.SKIPPED, NodeStatus.FAILED, NodeStatus.COMPLETED_WITH_ERROR, NodeStatus.SUCCEEDED}
        ),
        NodeParked: frozenset({NodeStatus.WAITING}),
        FanExpanded: frozenset({NodeStatus.RUNNING, NodeStatus.WAITING}),
        FanResumed: frozenset({NodeStatus.RUNNING, NodeStatus.WAITING}),
        NodePaused: frozenset({NodeStatus.PENDING}),
        NodeResumed: frozenset({NodeStatus.PENDING}),
        NodePolicyChanged: frozenset({NodeStatus.PENDING}),
        NodeReset: frozenset({NodeStatus.PENDING}),
    },
    NodeStatus.RUNNING: {
        **_of_children(NodeStatus.RUNNING),
        AttemptCreated: frozenset({NodeStatus.RUNNING}),
        AttemptEnded: frozenset({NodeStatus.RUNNING}),
        NodeCancelRequested: frozenset({NodeStatus.RUNNING}),
        RaceLost: frozenset({NodeStatus.RUNNING}),
        NodeEnded: frozenset(
            {NodeStatus.SUCCEEDED, NodeStatus.COMPLETED_WITH_ERROR, NodeStatus.FAILED, NodeStatus.CANCELLED}
        ),
        NodePaused: frozenset({NodeStatus.RUNNING}),
        NodeResumed: frozenset({NodeStatus.RUNNING}),
        NodePolicyChanged: frozenset({NodeStatus.RUNNING}),
        NodeReset: frozenset({NodeStatus.PENDING}),
    },
    NodeStatus.WAITING: {
        **_of_children(NodeStatus.WAITING),
        NodeCancelRequested: frozenset({NodeStatus.WAITING}),
        WaitChanged: frozenset({NodeStatus.WAITING}),
        RaceLost: frozenset({NodeStatus.WAITING}),
        EventsReceived: frozenset({NodeStatus.WAITING}),
        NodeEnded: frozenset(
            {
                NodeStatus.SUCCEEDED,
                NodeStatus.COMPLETED_WITH_ERROR,
                NodeStatus.FAILED,
                NodeStatus.SKIPPED,
                NodeStatus.CANCELLED,
            }
        ),
        NodePaused: frozenset({NodeStatus.WAITING}),
        NodeResumed: frozenset({NodeStatus.WAITING}),
        NodePolicyChanged: frozenset({NodeStatus.WAITING}),
        NodeReset: frozenset({NodeStatus.PENDING}),
    },
    NodeStatus.SUCCEEDED: {NodeReset: frozenset({NodeStatus.PENDING})},
    NodeStatus.COMPLETED_WITH_ERROR: {NodeReset: frozenset({NodeStatus.PENDING})},
    NodeStatus.FAILED: {NodeReset: frozenset({NodeStatus.PENDING})},
    NodeStatus.SKIPPED: {NodeReset: frozenset({NodeStatus.PENDING})},
    NodeStatus.CANCELLED: {NodeReset: frozenset({NodeStatus.PENDING})},
}

_NOWHERE: Mapping[type, frozenset[str]] = {}


def run_may(status: RunStatus, event: type, after: RunStatus) -> None:
    """Raise `EngineError` unless a run in `status` may go to `after` by an event of this class."""
    if after not in RUN.get(status, _NOWHERE).get(event, ()):
        raise EngineError("ILLEGAL_TRANSITION", f"run: {status} -{event.__name__}-> {after}")


def node_may(step_ref: str, status: NodeStatus, event: type, after: NodeStatus) -> None:
    """Raise `EngineError` unless a node in `status` may go to `after` by an event of this class."""
    if after not in NODE.get(status, _NOWHERE).get(event, ()):
        raise EngineError("ILLEGAL_TRANSITION", f"node {step_ref}: {status} -{event.__name__}-> {after}")
