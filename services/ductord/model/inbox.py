"""The facts that reach a run between two ticks. `decide` takes them as values; it never asks for more than `Missing` names.

A fact may come twice (a wake-up repeated, a commit whose outcome was unknown): facts carry what identifies them (attempt number, timer
key), and `decide` ignores one that has been applied.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from ductord.model.control import Control
from ductord.model.enums import CheckpointStatus, DigestPlace, Outcome, RunStatus, SignalVerb, TaskKind, TimerKind
from ductord.model.fan import Item
from ductord.model.fault import Fault, OutputRef
from ductord.model.needs import Need
from ductord.model.run import Run, RunStart


class AttemptReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of an attempt, judged first-writer-wins by its row: a worker's result or the sweep's verdict on its behalf.

    `output` references a success, whose value stands in `Inbox.outputs`. `retry_after_ms`: the worker's own next delay (A1). `start_time`:
    when a worker leased it, None if none did. `item`: of an inline child, what the attempt was made with. Times are database times.
    """

    step_ref: str
    attempt: int
    outcome: Outcome
    report_time: datetime
    kind: TaskKind = TaskKind.STEP
    item_index: int = -1
    start_time: datetime | None = None
    output: OutputRef | None = None
    fault: Fault | None = None
    non_retryable: bool = False
    retry_after_ms: int | None = None
    item: Item | None = None


class ChildFact(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What became of a child run (ruling F5): its end by `status`, with the fault of a failed one, or the checkpoint that was waited for. `run_id`: the
    child as it is now, which may be a successor of the one that was started. `attempt`: of the node, whose child it is. Shown until it is taken
    (`TakeChildren`)."""

    step_ref: str
    attempt: int
    item_index: int
    run_id: str
    time: datetime
    status: RunStatus | None = None
    checkpoint: CheckpointStatus | None = None
    fault: Fault | None = None


class TimerDue(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A durable timer whose due time has passed by database time."""

    kind: TimerKind
    due_time: datetime
    step_ref: str = ""
    item_index: int = -1


class LateSuccess(msgspec.Struct, frozen=True, kw_only=True):
    """A success that was reported when its attempt had been judged otherwise (A4): its effect exists, so its inverse is owed (C7). `output` references
    it; its value stands in `Inbox.source_outputs` when asked for."""

    step_ref: str
    attempt: int
    idempotency_key: str
    report_time: datetime
    output: OutputRef
    kind: TaskKind = TaskKind.STEP
    item_index: int = -1


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset run begins with: the state of its source after `RunStart.reset_from_seq` transitions."""

    run: Run


class Signal(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What somebody told a step, kept until the step waits for it (ruling E1). Its payload stands in `Inbox.payloads` under `key` when asked for.

    `actor`: who called; `approver_id`: in whose name, where nobody is authenticated. `groups`: the caller's. `status`: of a case (E6).
    """

    request_id: str
    verb: SignalVerb
    step_ref: str
    create_time: datetime
    actor: str = "anonymous"
    approver_id: str = ""
    groups: tuple[str, ...] = ()
    comment: str = ""
    status: str = ""

    @property
    def key(self) -> str:
        """Names its payload."""
        return signal_key(self.request_id)


def signal_key(request_id: str) -> str:
    """The name of a signal's payload, also of one that has been settled."""
    return f"signal:{request_id}"


class External(msgspec.Struct, frozen=True, kw_only=True):
    """An external event as it was published (ruling E3)."""

    event_name: str
    event_id: str
    payload: Any
    time: datetime
    correlation_key: str = ""


class Receipt(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An external event that matched an open wait of the run and has not been applied (ruling E3). `attempt` numbers the wait. Its payload stands in
    `Inbox.payloads` under `key` when asked for."""

    step_ref: str
    attempt: int
    event_id: str
    event_name: str
    time: datetime
    requirement: str = ""

    @property
    def key(self) -> str:
        """Names its payload: the same for every requirement that it met."""
        return receipt_key(self.step_ref, self.attempt, self.event_name, self.event_id)


def receipt_key(step_ref: str, attempt: int, event_name: str, event_id: str) -> str:
    """The name of the payload of an event that a wait has received: ids are a producer's own, unique per event name only."""
    return f"event:{step_ref}:{attempt}:{event_name}:{event_id}"


class Arrival(msgspec.Struct, frozen=True, kw_only=True):
    """One run that a window has collected; its trigger's input, of so many bytes, stands in `Inbox.payloads` under `key` when asked for."""

    run_id: str
    time: datetime
    size: int = 0

    @property
    def key(self) -> str:
        """Names its payload."""
        return f"arrival:{self.run_id}"


class DigestFact(msgspec.Struct, frozen=True, kw_only=True):
    """What is new about the run's place in a digest's window (ruling E5). `due_time`: when the window ends, of a leader. `arrivals`: of a closed window, by
    time and id, the leader's own among them; of a run that passes, itself. `leader_run_id`: of a follower and a merged run.
    Shown until it is taken (`TakeDigest`)."""

    step_ref: str
    attempt: int
    place: DigestPlace
    window_id: str = ""
    due_time: datetime | None = None
    arrivals: tuple[Arrival, ...] = ()
    leader_run_id: str = ""


SourceKey = tuple[str, str, int, int]
"""Where an output is that an inverse reads: (run id, step ref, item index, attempt); the run id is never empty here."""


class Inbox(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a tick of one run knows beside the run itself.

    `start` is always there (cached by the shell). `reports` are in order of report time, then key. `outputs`: output values by step ref, of the reports
    and of whatever `Missing` asked for; a step that has no output is not in it. `controls`: pending ones, in order of their creation, and shown at every tick
    until they are settled. `started`: refs of steps whose open attempt a worker has taken, given when there is a timer or a control. `origin`: at a reset
    run's first tick. `points`: the state of this run after the transition that a pending reset names, by the reset's request id; a transition that there is
    not has none. `source_outputs`: outputs that inverses read, as `Missing` asked for them. `signals`: those that no step has consumed, in
    order of creation. `receipts`: not applied yet, in order of time and id. `payloads`: of signals and events, as `Missing` asked for them. `children`: in
    order of time, then run id. `given`: whatever else `Missing` asked for; a workflow that there is not has a problem, a page is always there.
    """

    start: RunStart
    reports: tuple[AttemptReport, ...] = ()
    timers: tuple[TimerDue, ...] = ()
    outputs: Mapping[str, Any] = {}
    controls: tuple[Control, ...] = ()
    lates: tuple[LateSuccess, ...] = ()
    started: frozenset[str] = frozenset()
    origin: Origin | None = None
    points: Mapping[str, Run] = {}
    source_outputs: Mapping[SourceKey, Any] = {}
    signals: tuple[Signal, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    payloads: Mapping[str, Any] = {}
    digests: tuple[DigestFact, ...] = ()
    children: tuple[ChildFact, ...] = ()
    given: Mapping[Need, Any] = {}
