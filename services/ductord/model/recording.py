"""A recording: everything that the decisions about one run were taken from, as JSON Lines (ruling G8: a history that today's engine decides again).

The first line is about the run; the others may come in any order, and say what they are by `type`. Outputs are in it, rendered inputs are not: no
decision reads them. Nothing here knows how a recording is made or replayed.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from ductord.model.control import Control
from ductord.model.enums import CheckpointStatus, OperationStatus, Outcome, RunStatus, TaskKind
from ductord.model.events import Event
from ductord.model.fan import Item, Workflow
from ductord.model.fault import Fault, OutputRef
from ductord.model.inbox import Receipt, Signal
from ductord.model.manifest import Manifest
from ductord.model.run import RunStart

FORMAT = 1
"""Version of this form. A reader refuses a newer one."""


class _Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    pass


class RunLine(_Line, frozen=True, kw_only=True, tag="run"):
    """What the run was born with. `limits`: the engine's settings by name, as they were; what is not named has its default."""

    format: int
    manifest: Manifest
    start: RunStart
    limits: dict[str, int] = {}


class TransitionLine(_Line, frozen=True, kw_only=True, tag="transition"):
    """One row of the history. `at`: the time of its tick."""

    seq: int
    at: datetime
    events: tuple[Event, ...]


class AttemptLine(_Line, frozen=True, kw_only=True, tag="attempt"):
    """One attempt row, as far as a tick is told of it. `outcome` None: nobody has reported. `output`: of a success, and `reference` to it. `start_time`: when a
    worker took it. `late_time`, `late_output`: of a success that came when the attempt had been judged otherwise. `item`: what an inline child had behind it
    when the attempt was made; None: nothing."""

    step_ref: str
    attempt: int
    idempotency_key: str
    kind: TaskKind = TaskKind.STEP
    item_index: int = -1
    start_time: datetime | None = None
    outcome: Outcome | None = None
    report_time: datetime | None = None
    output: Any = None
    reference: OutputRef | None = None
    fault: Fault | None = None
    non_retryable: bool = False
    retry_after_ms: int | None = None
    late_time: datetime | None = None
    late_output: Any = None
    late_reference: OutputRef | None = None
    item: Item | None = None


class ControlLine(_Line, frozen=True, kw_only=True, tag="control"):
    """One control and what became of it. `settle_time`: the time of the tick that settled it, None while none has."""

    control: Control
    status: OperationStatus = OperationStatus.PENDING
    settle_time: datetime | None = None


class SignalLine(_Line, frozen=True, kw_only=True, tag="signal"):
    """What somebody told a step. `number`: the order of what was said in one instant. `seq`: the transition in which it was dealt with; 0: in none."""

    signal: Signal
    number: int = 0
    payload: Any = None
    seq: int = 0


class ReceiptLine(_Line, frozen=True, kw_only=True, tag="receipt"):
    """An external event that a wait received, with the event's payload. `seq`: the transition in which it was dealt with; 0: in none."""

    receipt: Receipt
    payload: Any = None
    seq: int = 0


class ChildLine(_Line, frozen=True, kw_only=True, tag="child"):
    """A child run of the node's attempt `attempt`, and what became of it: its end by `status`, or the checkpoint that was waited for; `time` None: neither yet.
    `run_id`: the child as it is now, `first_run_id`: as it was born. `output`: of one that has completed, of so many bytes as a gather counts. A child that a
    node takes up again has a line for each of its attempts."""

    step_ref: str
    attempt: int
    item_index: int
    run_id: str
    first_run_id: str
    time: datetime | None = None
    status: RunStatus | None = None
    checkpoint: CheckpointStatus | None = None
    fault: Fault | None = None
    output: Any = None
    size: int = 0


class WorkflowLine(_Line, frozen=True, kw_only=True, tag="workflow"):
    """A version that children of the run were to run, or would have been: pinned, or the newest of its family at some time of the run's life."""

    family_slug: str
    workflow: Workflow
    create_time: datetime
    archive_time: datetime | None = None


class SourceLine(_Line, frozen=True, kw_only=True, tag="source_output"):
    """An output of another run, which an inverse of this one read."""

    run_id: str
    step_ref: str
    attempt: int
    item_index: int = -1
    output: Any = None


Line = (
    RunLine
    | TransitionLine
    | AttemptLine
    | ControlLine
    | SignalLine
    | ReceiptLine
    | ChildLine
    | WorkflowLine
    | SourceLine
)


class Recording(msgspec.Struct, frozen=True, kw_only=True):
    """A recording put together. `transitions` are in order of `seq`, `controls` in the order in which they were accepted, in which ticks are told of them,
    `signals` and `receipts` as they came."""

    run: RunLine
    transitions: tuple[TransitionLine, ...] = ()
    attempts: tuple[AttemptLine, ...] = ()
    controls: tuple[ControlLine, ...] = ()
    signals: tuple[SignalLine, ...] = ()
    receipts: tuple[ReceiptLine, ...] = ()
    children: tuple[ChildLine, ...] = ()
    workflows: tuple[WorkflowLine, ...] = ()
    sources: tuple[SourceLine, ...] = ()


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Line)


def encode_line(line: Line) -> str:
    """One line of a recording, with its line feed."""
    return _encoder.encode(line).decode() + "\n"


def encode(recording: Recording) -> str:
    """The JSON Lines of a recording; the same recording gives the same text."""
    lines: Iterable[Line] = (
        recording.run,
        *recording.transitions,
        *recording.attempts,
        *recording.controls,
        *recording.signals,
        *recording.receipts,
        *recording.children,
        *recording.workflows,
        *recording.sources,
    )
    return "".join(map(encode_line, lines))


def decode(text: str | bytes) -> Recording:
    """The recording of JSON Lines. Raises `msgspec.ValidationError` for what is none, or one of a newer format."""
    raw = text.encode() if isinstance(text, str) else text
    # Line feeds only: a JSON string may hold other characters that end a line elsewhere.
    lines = [_decoder.decode(line) for line in raw.split(b"\n") if line.strip()]
    if not lines or not isinstance(lines[0], RunLine):
        raise msgspec.ValidationError("a recording begins with a line about its run")
    run = lines[0]
    if run.format > FORMAT:
        raise msgspec.ValidationError(f"the recording has format {run.format}, this release reads up to {FORMAT}")
    if any(isinstance(line, RunLine) for line in lines[1:]):
        raise msgspec.ValidationError("a recording is about one run")
    transitions = [line for line in lines if isinstance(line, TransitionLine)]
    controls = [line for line in lines if isinstance(line, ControlLine)]
    return Recording(
        run=run,
        transitions=tuple(sorted(transitions, key=lambda line: line.seq)),
        attempts=tuple(line for line in lines if isinstance(line, AttemptLine)),
        controls=tuple(sorted(controls, key=lambda line: line.control.create_time)),
        signals=tuple(sorted((line for line in lines if isinstance(line, SignalLine)), key=_said)),
        receipts=tuple(sorted((line for line in lines if isinstance(line, ReceiptLine)), key=_received)),
        children=tuple(line for line in lines if isinstance(line, ChildLine)),
        workflows=tuple(line for line in lines if isinstance(line, WorkflowLine)),
        sources=tuple(line for line in lines if isinstance(line, SourceLine)),
    )


def _said(line: SignalLine) -> tuple[datetime, int]:
    return line.signal.create_time, line.number


def _received(line: ReceiptLine) -> tuple[datetime, str, str, str, int, str]:
    of = line.receipt
    return of.time, of.event_id, of.event_name, of.step_ref, of.attempt, of.requirement
