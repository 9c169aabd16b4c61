"""Folding events into a run: the one way in which a run's state changes.

`decide` works on the same `Working` copy and changes it only by applying the events that it emits, so what it believes and what the history
says cannot drift apart. Never looks at a clock, an output or an expression.

It is long because every event has its place in one table. What is folded without the rest of the run is folded elsewhere: `node_fold` has what happens to
one node, `fanned` its children, `ledger` the compensation.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from msgspec.structs import replace

from ductord.engine.errors import EngineError
from ductord.engine.fanned import ChildEvent, fanned, opened
from ductord.engine.graph import graph_of
from ductord.engine.ledger import LedgerEvent, ledgered
from ductord.engine.node_fold import NodeEvent, attempt_created, attempt_ended, folded
from ductord.engine.transitions import node_may, run_may
from ductord.model.enums import CheckpointStatus, CompensationStatus, NodeStatus, RunStatus, TaskKind
from ductord.model.events import (
    AttemptCreated,
    AttemptEnded,
    CheckpointReached,
    CheckpointUnreachable,
    CompensationEnded,
    CompensationPlanned,
    EdgesResolved,
    Event,
    EventsReceived,
    HistoryLong,
    InverseEnded,
    InverseRegistered,
    InversesHandedOver,
    NodeCancelRequested,
    NodeEnded,
    NodeParked,
    NodePaused,
    NodePolicyChanged,
    NodeReset,
    NodeResumed,
    RaceLost,
    RunEnded,
    RunForked,
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
from ductord.model.manifest import Manifest
from ductord.model.run import NO_SAGA, CheckpointState, Node, Run, Saga

OPEN, TAKEN, DEAD_SKIP, DEAD_FAILURE = (ord(c) for c in "?TSF")
"""Edge states as the bytes of a working copy; `model.enums.EdgeState` spells them."""

_STEP: Final = TaskKind.STEP
_ERRED = (NodeStatus.FAILED, NodeStatus.COMPLETED_WITH_ERROR)
_OPEN_STATUS = (RunStatus.RUNNING, RunStatus.PAUSED)


class Working:
    """A run being folded: the same facts as `Run`, in lists that can be changed, frozen once at the end of a tick."""

    __slots__ = ("_changed_edges", "_changed_nodes", "_manifest", "checkpoints", "edges", "graph", "nodes", "run")

    def __init__(self, manifest: Manifest, run: Run) -> None:
        self._manifest = manifest
        self.graph = graph_of(manifest)
        self.run = run
        self.nodes: list[Node] = list(run.nodes)
        self.edges = bytearray(run.edges, "ascii")
        self.checkpoints: list[CheckpointState] = list(run.checkpoints)
        self._changed_nodes = False
        self._changed_edges = False

    def freeze(self) -> Run:
        """The run after the events that were applied, as one more transition (`seq` + 1)."""
        return self._as_run(self.run.seq + 1)

    def view(self) -> Run:
        """The run as it stands in the middle of a tick."""
        return self._as_run(self.run.seq)

    def _as_run(self, seq: int) -> Run:
        return replace(
            self.run,
            seq=seq,
            nodes=tuple(self.nodes) if self._changed_nodes else self.run.nodes,
            edges=self.edges.decode("ascii") if self._changed_edges else self.run.edges,
            checkpoints=tuple(self.checkpoints),
        )

    def taken(self, edge: int) -> bool:
        """Whether this manifest edge is taken."""
        return self.edges[edge] == TAKEN

    def apply(self, event: Event, at: datetime) -> None:
        """Apply one event. Raises `EngineError` for one that the transition tables or the numbering do not allow."""
        FOLDS[type(event)](self, event, at)

    def _attempt_created(self, event: AttemptCreated, at: datetime) -> None:
        if event.kind is _STEP:
            index, node = self._node(event.step_ref)
            self.nodes[index] = attempt_created(node, event, at)
            self._moved()
        else:
            self._of_others(event, at)

    def _attempt_ended(self, event: AttemptEnded, at: datetime) -> None:
        if event.kind is _STEP:
            index, node = self._node(event.step_ref)
            self.nodes[index] = attempt_ended(node, event)
        else:
            self._of_others(event, at)

    def _of_others(self, event: AttemptCreated | AttemptEnded, at: datetime) -> None:
        """An attempt that is not the node's own."""
        if event.kind is TaskKind.ITEM:
            self._of_children(event, at)
        else:
            self._of_ledger(event, at)

    def _of_node(self, event: NodeEvent, at: datetime) -> None:
        index, node = self._node(event.step_ref)
        self.nodes[index] = folded(node, event, at)

    def _node_parked(self, event: NodeParked, at: datetime) -> None:
        self._of_node(event, at)
        self._moved()

    def _of_children(self, event: ChildEvent, _at: datetime) -> None:
        index, node = self._node(event.step_ref)
        self.nodes[index] = fanned(node, event)

    def _fan_opened(self, event: FanExpanded | FanResumed, at: datetime) -> None:
        index, node = self._node(event.step_ref)
        self.nodes[index] = opened(node, event, at)
        self._moved()

    def _of_ledger(self, event: LedgerEvent, _at: datetime) -> None:
        self.run = replace(self.run, saga=ledgered(self.run.saga, event))

    def _moved(self) -> None:
        self.run = replace(self.run, moves=self.run.moves + 1)

    def _node(self, step_ref: str) -> tuple[int, Node]:
        index = self.graph.index.get(step_ref)
        if index is None:
            raise EngineError("UNKNOWN_STEP", step_ref)
        if self.run.status not in _OPEN_STATUS:
            raise EngineError("RUN_NOT_OPEN", f"an event of node {step_ref} in a run that is {self.run.status}")
        self._changed_nodes = True
        return index, self.nodes[index]

    def _node_ended(self, event: NodeEnded, at: datetime) -> None:
        index, node = self._node(event.step_ref)
        node_may(event.step_ref, node.status, NodeEnded, event.status)
        preserved = event.output is not None and node.status is NodeStatus.PENDING
        # A preserved output's number may be ahead of the node's: the next attempt must not take it again.
        attempt = node.attempt if event.output is None else max(node.attempt, event.output.attempt)
        self.nodes[index] = replace(
            node,
            status=event.status,
            attempt=attempt,
            skip_reason=event.skip_reason,
            output=event.output,
            fault=event.fault,
            due_time=None,
            cancelling=False,
            waiting=None,
            preserved=node.preserved or preserved,
            rank=self.run.moves + 1 if index in self.graph.racers else 0,
            end_time=at,
        )
        self.run = replace(
            self.run,
            open_nodes=self.run.open_nodes - 1,
            has_errors=self.run.has_errors or _erred(self.nodes[index]),
            moves=self.run.moves + 1,
        )

    def _node_reset(self, event: NodeReset, _at: datetime) -> None:
        index, node = self._node(event.step_ref)
        node_may(event.step_ref, node.status, NodeReset, NodeStatus.PENDING)
        self._renew(index)
        self._recount()

    def _renew(self, index: int) -> None:
        """The node is pending again, with fresh budgets and open edges. Its attempt numbers go on, and so does an operator's say over it."""
        node = self.nodes[index]
        self.nodes[index] = Node(
            attempt=node.attempt,
            logical=node.logical,
            doubts=(*node.doubts, *node.unknown),
            paused=node.paused,
            preserved=node.preserved,
            retry=node.retry,
            timeouts=node.timeouts,
            top=node.top,
        )
        for edge in self._manifest.steps[index].outgoing:
            self.edges[edge] = OPEN
        for number in self.graph.checkpoints[index]:
            if self.checkpoints[number].status is CheckpointStatus.UNREACHABLE:
                self.checkpoints[number] = CheckpointState()
        self._changed_nodes = self._changed_edges = True

    def _recount(self) -> None:
        self.run = replace(
            self.run,
            open_nodes=sum(1 for node in self.nodes if not node.status.terminal),
            has_errors=any(_erred(node) for node in self.nodes),
        )

    def _edges_resolved(self, event: EdgesResolved, _at: datetime) -> None:
        index, _ = self._node(event.step_ref)
        edges = self._manifest.edges
        for edge, state in event.edges:
            if edge >= len(edges) or edges[edge].source != index:
                raise EngineError("FOREIGN_EDGE", f"edge {edge} does not leave {event.step_ref}")
            if self.edges[edge] != OPEN:
                raise EngineError("EDGE_RESOLVED_TWICE", f"edge {edge} of {event.step_ref}")
            self.edges[edge] = ord(state)
        self._changed_edges = True

    def _checkpoint_reached(self, event: CheckpointReached, at: datetime) -> None:
        self._checkpoint(event.name, CheckpointStatus.REACHED, at)

    def _checkpoint_unreachable(self, event: CheckpointUnreachable, at: datetime) -> None:
        self._checkpoint(event.name, CheckpointStatus.UNREACHABLE, at)

    def _checkpoint(self, name: str, status: CheckpointStatus, at: datetime) -> None:
        number = self.graph.checkpoint_index.get(name)
        if number is None:
            raise EngineError("UNKNOWN_CHECKPOINT", name)
        if self.checkpoints[number].status is not CheckpointStatus.PENDING:
            raise EngineError("CHECKPOINT_DECIDED_TWICE", name)
        self.checkpoints[number] = CheckpointState(status=status, time=at)

    def _run_started(self, event: RunStarted, at: datetime) -> None:
        run_may(self.run.status, RunStarted, RunStatus.RUNNING)
        self.nodes = [Node()] * event.nodes
        self.edges = bytearray(b"?" * event.edges)
        self.checkpoints = [CheckpointState()] * event.checkpoints
        self._changed_nodes = self._changed_edges = True
        self.run = replace(
            self.run,
            status=RunStatus.RUNNING,
            open_nodes=event.nodes,
            start_time=at,
            saga=Saga(registered=event.inverses) if event.inverses else NO_SAGA,
        )

    def _run_forked(self, event: RunForked, at: datetime) -> None:
        """What was open at the source goes back to pending; what had ended stays. The run's own time begins now."""
        if self.run.status not in _OPEN_STATUS or self.run.stop is not None or self.run.seq != event.source_seq:
            raise EngineError("FORK_OUT_OF_PLACE", f"{self.run.status} after {self.run.seq} transitions")
        saga = Saga(registered=event.inverses) if event.inverses else NO_SAGA
        self.run = replace(self.run, status=RunStatus.RUNNING, warned=False, start_time=at, saga=saga)
        before = tuple(self.nodes)
        for index, node in enumerate(before):
            self.nodes[index] = replace(node, paused=False, unknown=(), doubts=())
            if not node.status.terminal:
                self._renew(index)
        for ref in event.attached:
            index, _ = self._node(ref)
            self.nodes[index] = replace(self.nodes[index], fan=before[index].fan)
        self._changed_nodes = True
        self._recount()

    def _run_stopping(self, event: RunStopping, _at: datetime) -> None:
        """A pause does not hold up what stops the run (C2); a failure alone stops nothing while it lasts."""
        run_may(self.run.status, RunStopping, RunStatus.RUNNING)
        self.run = replace(self.run, status=RunStatus.RUNNING, stop=event.stop)

    def _run_paused(self, _event: RunPaused, _at: datetime) -> None:
        run_may(self.run.status, RunPaused, RunStatus.PAUSED)
        self.run = replace(self.run, status=RunStatus.PAUSED)

    def _run_resumed(self, _event: RunResumed, _at: datetime) -> None:
        run_may(self.run.status, RunResumed, RunStatus.RUNNING)
        self.run = replace(self.run, status=RunStatus.RUNNING)

    def _history_long(self, _event: HistoryLong, _at: datetime) -> None:
        self.run = replace(self.run, warned=True)

    def _run_redriven(self, event: RunRedriven, _at: datetime) -> None:
        run_may(self.run.status, RunRedriven, RunStatus.RUNNING)
        self.run = replace(
            self.run,
            status=RunStatus.RUNNING,
            stop=None,
            fault=None,
            output_fault=None,
            end_time=None,
            saga=replace(self.run.saga, status=CompensationStatus.NONE),
        )
        for ref in (*event.steps, *event.reevaluated):
            index, node = self._node(ref)
            self._renew(index)
            if ref in event.reevaluated:
                # Its action has succeeded: only what came after is judged again (C4).
                renewed = self.nodes[index]
                self.nodes[index] = replace(renewed, status=NodeStatus.RUNNING, output=node.output, fan=node.fan)
            elif ref in event.resumed:
                self.nodes[index] = replace(self.nodes[index], fan=node.fan)
        self._recount()

    def _run_ended(self, event: RunEnded, at: datetime) -> None:
        run_may(self.run.status, RunEnded, event.status)
        if self.run.open_nodes:
            raise EngineError("NODES_STILL_OPEN", f"{self.run.open_nodes} nodes are open at the end of the run")
        self.run = replace(
            self.run,
            status=event.status,
            has_errors=event.has_errors,
            fault=event.fault,
            output_fault=event.output_fault,
            end_time=at,
            close_reason=event.close_reason,
            continued_to_run_id=event.continued_to_run_id,
            merged_into_run_id=event.merged_into_run_id,
        )


FOLDS: Final[Mapping[type, Callable[[Working, Any, datetime], None]]] = {
    AttemptCreated: Working._attempt_created,
    AttemptEnded: Working._attempt_ended,
    NodeEnded: Working._node_ended,
    EdgesResolved: Working._edges_resolved,
    NodeParked: Working._node_parked,
    WaitChanged: Working._of_node,
    EventsReceived: Working._of_node,
    NodeCancelRequested: Working._of_node,
    NodePaused: Working._of_node,
    NodeResumed: Working._of_node,
    NodePolicyChanged: Working._of_node,
    RaceLost: Working._of_node,
    NodeReset: Working._node_reset,
    FanExpanded: Working._fan_opened,
    FanResumed: Working._fan_opened,
    ChildrenBegun: Working._of_children,
    ChildrenSucceeded: Working._of_children,
    ChildrenCancelled: Working._of_children,
    ChildFailed: Working._of_children,
    ChildrenDropped: Working._of_children,
    FanStopped: Working._of_children,
    CheckpointReached: Working._checkpoint_reached,
    CheckpointUnreachable: Working._checkpoint_unreachable,
    InverseRegistered: Working._of_ledger,
    InversesHandedOver: Working._of_ledger,
    CompensationPlanned: Working._of_ledger,
    InverseEnded: Working._of_ledger,
    CompensationEnded: Working._of_ledger,
    RunStarted: Working._run_started,
    RunForked: Working._run_forked,
    RunStopping: Working._run_stopping,
    RunPaused: Working._run_paused,
    RunResumed: Working._run_resumed,
    RunEnded: Working._run_ended,
    RunRedriven: Working._run_redriven,
    HistoryLong: Working._history_long,
}
"""Every event has its place here; a table, since trying one class after the other cost more than the folding."""


def _erred(node: Node) -> bool:
    """Whether the node came to an error, be it one of a child that was tolerated (F1)."""
    return node.status in _ERRED or (
        node.fan is not None and node.fan.failed > 0 and node.status is NodeStatus.SUCCEEDED
    )


def bare_run(run_id: str) -> Run:
    """The run before its first transition: `pending`, `seq` 0."""
    return Run(run_id=run_id)


def evolve(manifest: Manifest, run: Run | None, start_run_id: str, events: tuple[Event, ...], at: datetime) -> Run:
    """The run after one transition: `events` of one tick, committed at `at`. `run` None: there was none yet, its id is `start_run_id`.

    Pure; `seq` grows by one. Raises `EngineError` for events that do not follow from this state.
    """
    work = Working(manifest, run or bare_run(start_run_id))
    for event in events:
        work.apply(event, at)
    return work.freeze()


def fold(manifest: Manifest, run_id: str, transitions: Iterable[tuple[datetime, tuple[Event, ...]]]) -> Run:
    """A run rebuilt from its history: (at, events) of every transition in order of `seq`."""
    run = bare_run(run_id)
    for at, events in transitions:
        run = evolve(manifest, run, run_id, events, at)
    return run
