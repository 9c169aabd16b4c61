"""The events: facts about a run, in the past tense. A transition is the list of events of one tick; `evolve` folds them into the run.

Stored as JSON with the class name in snake case under `type`. They carry references, sizes and hashes, never payloads. Adding a field
needs a default; renaming one is a new format version.
"""

from datetime import datetime

import msgspec

from ductord.model.enums import EdgeState, NodeStatus, Outcome, RunStatus, SkipReason, TaskKind
from ductord.model.run import Fault, OutputRef, Stop


def _tag(name: str) -> str:
    return "".join(("_" if i and c.isupper() else "") + c.lower() for i, c in enumerate(name))


class _Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag=_tag, tag_field="type"):
    pass


class RunStarted(_Event, frozen=True, kw_only=True):
    """The coordinator took the run up: all nodes pending, all edges open. `nodes`, `edges`, `checkpoints`: how many of each."""

    nodes: int
    edges: int
    checkpoints: int


class AttemptCreated(_Event, frozen=True, kw_only=True):
    """The node runs and its next attempt was queued; `due_time` when a back-off holds it."""

    step_ref: str
    attempt: int
    logical: int
    due_time: datetime | None = None
    kind: TaskKind = TaskKind.STEP
    item_index: int = -1


class AttemptEnded(_Event, frozen=True, kw_only=True):
    """An attempt was judged. `spent`: it cost one unit of the retry budget."""

    step_ref: str
    attempt: int
    outcome: Outcome
    spent: bool = False
    fault: Fault | None = None
    output: OutputRef | None = None
    kind: TaskKind = TaskKind.STEP
    item_index: int = -1


class NodeEnded(_Event, frozen=True, kw_only=True):
    """A node reached a terminal status."""

    step_ref: str
    status: NodeStatus
    skip_reason: SkipReason | None = None
    output: OutputRef | None = None
    fault: Fault | None = None


class NodeCancelRequested(_Event, frozen=True, kw_only=True):
    """A running node was asked to stop; its attempt may still report."""

    step_ref: str


class EdgesResolved(_Event, frozen=True, kw_only=True):
    """Edges leaving one step were resolved: pairs of manifest edge index and state (G1)."""

    step_ref: str
    edges: tuple[tuple[int, EdgeState], ...]


class CheckpointReached(_Event, frozen=True, kw_only=True):
    """A checkpoint was reached, once (G9)."""

    name: str


class CheckpointUnreachable(_Event, frozen=True, kw_only=True):
    """A checkpoint can no longer be reached (G9)."""

    name: str


class RunStopping(_Event, frozen=True, kw_only=True):
    """A cause to stop was committed (G5, G8)."""

    stop: Stop


class RunEnded(_Event, frozen=True, kw_only=True):
    """The run is terminal (G8). `output_fault`: its output expression did not evaluate."""

    status: RunStatus
    has_errors: bool = False
    fault: Fault | None = None
    output_fault: Fault | None = None


Event = (
    RunStarted
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
