"""The events: facts about a run, in the past tense. A transition is the list of events of one tick; `evolve` folds them into the run.

Stored as JSON with the class name in snake case under `type`. They carry references, sizes and hashes, never payloads. Adding a field
needs a default; renaming one is a new format version.
"""

from datetime import datetime

import msgspec

from ductord.model.enums import (
    CompensationStatus,
    EdgeState,
    InverseStatus,
    NodeStatus,
    Outcome,
    RunStatus,
    SkipReason,
    TaskKind,
)
from ductord.model.fan_events import FanEvent
from ductord.model.fault import Fault, OutputRef
from ductord.model.run import Inverse, Received, Registered, Stop, Waiting
from ductord.model.specs import RetryPolicy, Timeouts
from ductord.model.tagged import Tagged


class RunStarted(Tagged, frozen=True, kw_only=True):
    """The coordinator took the run up: all nodes pending, all edges open. `nodes`, `edges`, `checkpoints`: how many of each. `inverses`: what the run that this
    one continues had registered (C6)."""

    nodes: int
    edges: int
    checkpoints: int
    inverses: tuple[Registered, ...] = ()


class RunForked(Tagged, frozen=True, kw_only=True):
    """A reset run begins where transition `source_seq` of another run left off: what was open there is pending again (C5). `inverses`: what it takes over of
    the source's; the others stay the source's own. `attached`: subworkflow steps that take the source's child for theirs."""

    source_run_id: str
    source_seq: int
    inverses: tuple[Registered, ...] = ()
    attached: tuple[str, ...] = ()


class RunPaused(Tagged, frozen=True, kw_only=True):
    """Nothing more begins until the run is resumed (C2)."""

    request_id: str


class RunResumed(Tagged, frozen=True, kw_only=True):
    """The run goes on."""

    request_id: str


class RunRedriven(Tagged, frozen=True, kw_only=True):
    """A terminal run is open again (C4): the nodes of `steps` are pending, those of `reevaluated` are running with their output at hand. `resumed`: those of
    `steps` that go on with the children that they have (F3, F4)."""

    request_id: str
    steps: tuple[str, ...]
    reevaluated: tuple[str, ...] = ()
    resumed: tuple[str, ...] = ()


class HistoryLong(Tagged, frozen=True, kw_only=True):
    """The history is longer than the soft tier, once (C6)."""

    moves: int


class AttemptCreated(Tagged, frozen=True, kw_only=True):
    """The node runs and its next attempt was queued; `due_time` when a back-off holds it. With kind `compensation` or `finally` it is an attempt of the
    ledger's entry at `position`."""

    step_ref: str
    attempt: int
    logical: int
    due_time: datetime | None = None
    kind: TaskKind = TaskKind.STEP
    item_index: int = -1
    position: int | None = None


class AttemptEnded(Tagged, frozen=True, kw_only=True):
    """An attempt was judged. `spent`: it cost one unit of the retry budget. `started`: a worker had taken it."""

    step_ref: str
    attempt: int
    outcome: Outcome
    spent: bool = False
    fault: Fault | None = None
    output: OutputRef | None = None
    started: bool = False
    kind: TaskKind = TaskKind.STEP
    item_index: int = -1
    position: int | None = None


class NodeEnded(Tagged, frozen=True, kw_only=True):
    """A node reached a terminal status. From pending to succeeded when a reset preserved its output (C5)."""

    step_ref: str
    status: NodeStatus
    skip_reason: SkipReason | None = None
    output: OutputRef | None = None
    fault: Fault | None = None


class NodeCancelRequested(Tagged, frozen=True, kw_only=True):
    """A running node was asked to stop; its attempt may still report."""

    step_ref: str


class RaceLost(Tagged, frozen=True, kw_only=True):
    """The node leads to nothing but a race that another has won: it is called off (G7)."""

    step_ref: str


class NodePaused(Tagged, frozen=True, kw_only=True):
    """An operator holds the node: it does not begin, no attempt of it is handed out."""

    step_ref: str
    request_id: str


class NodeResumed(Tagged, frozen=True, kw_only=True):
    """The node is held no longer."""

    step_ref: str
    request_id: str


class NodeReset(Tagged, frozen=True, kw_only=True):
    """The node is pending again with fresh budgets, its outgoing edges open (C10); attempt numbers go on."""

    step_ref: str
    request_id: str


class NodePolicyChanged(Tagged, frozen=True, kw_only=True):
    """An operator changed the node's retry policy or time-outs; both as they are now, None: the definition's."""

    step_ref: str
    request_id: str
    retry: RetryPolicy | None = None
    timeouts: Timeouts | None = None


class NodeParked(Tagged, frozen=True, kw_only=True):
    """The node waits until the outside world catches up. `attempt` numbers the wait, as it would number an attempt; a logical attempt is not counted."""

    step_ref: str
    attempt: int
    waiting: Waiting


class WaitChanged(Tagged, frozen=True, kw_only=True):
    """What the node waits for has come closer, or is looked at again later: the wait as it is now."""

    step_ref: str
    waiting: Waiting


class EventsReceived(Tagged, frozen=True, kw_only=True):
    """External events that count for the node's wait, beside those that counted before (E4). Their payloads stand in their own rows."""

    step_ref: str
    received: tuple[Received, ...]


class EdgesResolved(Tagged, frozen=True, kw_only=True):
    """Edges leaving one step were resolved: pairs of manifest edge index and state (G1)."""

    step_ref: str
    edges: tuple[tuple[int, EdgeState], ...]


class CheckpointReached(Tagged, frozen=True, kw_only=True):
    """A checkpoint was reached, once (G9)."""

    name: str


class CheckpointUnreachable(Tagged, frozen=True, kw_only=True):
    """A checkpoint can no longer be reached (G9)."""

    name: str


class RunStopping(Tagged, frozen=True, kw_only=True):
    """A cause to stop was committed (G5, G8)."""

    stop: Stop


class RunEnded(Tagged, frozen=True, kw_only=True):
    """The run is terminal (G8). `output_fault`: its output expression did not evaluate. `close_reason`, `continued_to_run_id`: it goes on as a successor
    (C6)."""

    status: RunStatus
    has_errors: bool = False
    fault: Fault | None = None
    output_fault: Fault | None = None
    close_reason: str = ""
    continued_to_run_id: str = ""
    merged_into_run_id: str = ""


class InverseRegistered(Tagged, frozen=True, kw_only=True):
    """An action with inverses succeeded (C7). `late`: by a report that came too late to count for its node."""

    step_ref: str
    attempt: int
    logical: int
    item_index: int = -1
    late: bool = False


class InversesHandedOver(Tagged, frozen=True, kw_only=True):
    """The reset run `run_id` has taken these registrations over: no end of this run owes them any more, so that each inverse runs at most once (C5, C7)."""

    request_id: str
    run_id: str
    inverses: tuple[Registered, ...]


class CompensationPlanned(Tagged, frozen=True, kw_only=True):
    """Entries were appended to the ledger, in the order in which they will be worked off (C7)."""

    entries: tuple[Inverse, ...]


class InverseEnded(Tagged, frozen=True, kw_only=True):
    """An entry of the ledger was settled, or (status `owed`) is to be tried again: because a person said so, or because the success that it undoes turned
    out to exist, as attempt `source_attempt`."""

    position: int
    step_ref: str
    status: InverseStatus
    fault: Fault | None = None
    request_id: str = ""
    source_attempt: int = 0


class CompensationEnded(Tagged, frozen=True, kw_only=True):
    """Nothing is owed any more (C7); a person's word may change the status again."""

    status: CompensationStatus


Event = (
    FanEvent
    | RunStarted
    | RunForked
    | RunPaused
    | RunResumed
    | RunRedriven
    | HistoryLong
    | NodePaused
    | NodeResumed
    | NodeReset
    | NodePolicyChanged
    | NodeParked
    | RaceLost
    | WaitChanged
    | EventsReceived
    | InverseRegistered
    | InversesHandedOver
    | CompensationPlanned
    | InverseEnded
    | CompensationEnded
    | AttemptCreated
    | AttemptEnded
    | NodeEnded
    | NodeCancelRequested
    | EdgesResolved
    | CheckpointReached
    | CheckpointUnreachable
    | RunStopping
    | RunEnded
)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[Event, ...])


def encode(events: tuple[Event, ...]) -> str:
    """JSON text of a transition's events."""
    return _encoder.encode(events).decode()


def decode(text: str | bytes) -> tuple[Event, ...]:
    """Events of a stored transition."""
    return _decoder.decode(text)
