"""The effects: what a tick wants done, as values. The coordinator's commit writes them in the same transaction as the events.

Effects name rows by their keys; applying one twice is prevented by the versioned run update that every statement of the commit hangs on.
"""

from datetime import datetime

import msgspec

from ductord.model.enums import (
    AttemptStatus,
    CheckpointStatus,
    DigestMode,
    DigestPlace,
    OperationStatus,
    SignalStatus,
    TaskKind,
    TimerKind,
)
from ductord.model.fan import Item
from ductord.model.fan_effects import FanEffect
from ductord.model.fault import Fault, OutputRef
from ductord.model.run import Inverse, Registered


class _Effect(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    pass


class QueueTask(_Effect, frozen=True, kw_only=True):
    """Insert an attempt for dispatch. `input_json` is the rendered input as JSON text, within the payload limit (L7); with `retry_of` it is
    that attempt's input instead, and its last heartbeat details come along (A1, A5). Times in ms count from lease (`timeout_ms`,
    `heartbeat_timeout_ms`) or from `due_time` (`queue_timeout_ms`). `held`: nobody is given it until its node or run is released (C2). `item`: what an
    inline child has behind it; None: nothing, and its logical attempt begins with this one."""

    step_ref: str
    attempt: int
    idempotency_key: str
    action: str
    queue: str
    due_time: datetime
    kind: TaskKind = TaskKind.STEP
    item_index: int = -1
    input_json: str = ""
    retry_of: int | None = None
    timeout_ms: int | None = None
    heartbeat_timeout_ms: int | None = None
    queue_timeout_ms: int | None = None
    held: bool = False
    item: Item | None = None


class CloseAttempt(_Effect, frozen=True, kw_only=True):
    """Write the verdict over an attempt; from then on every report for it is stale (A4)."""

    step_ref: str
    attempt: int
    status: AttemptStatus
    kind: TaskKind = TaskKind.STEP
    item_index: int = -1


class RequestCancel(_Effect, frozen=True, kw_only=True):
    """Have the worker told, at its next heartbeat, to stop this attempt."""

    step_ref: str
    attempt: int
    kind: TaskKind = TaskKind.STEP
    item_index: int = -1


class SetTimer(_Effect, frozen=True, kw_only=True):
    """Store a durable timer; one per (kind, step_ref, item_index), a new one replaces the old."""

    kind: TimerKind
    due_time: datetime
    step_ref: str = ""
    item_index: int = -1


class ClearTimers(_Effect, frozen=True, kw_only=True):
    """Delete timers: of one step, or with an empty `step_ref` all timers of the run (it ended)."""

    step_ref: str = ""
    kind: TimerKind | None = None


class RecordCheckpoint(_Effect, frozen=True, kw_only=True):
    """Publish a checkpoint's end to the callers that wait for it. `refs`: step ref → attempt that holds its output, for
    response_group_output (G9); a ref without an output is left out, and no payload travels through `decide`."""

    name: str
    status: CheckpointStatus
    refs: dict[str, int] = {}


class RecordResult(_Effect, frozen=True, kw_only=True):
    """Store the run's output (G8): the value of the definition's `output` expression, or, where it has none (`refs` is not None), its leaf
    outputs by reference, step ref → attempt."""

    output_json: str = "null"
    refs: dict[str, int] | None = None


class ClearCheckpoint(_Effect, frozen=True, kw_only=True):
    """Take back that a checkpoint is unreachable: a redrive or a reset of a node made it possible again."""

    name: str


class HoldTasks(_Effect, frozen=True, kw_only=True):
    """Keep the open tasks that nobody has leased from being leased: of one step, or with an empty `step_ref` of the whole run (C2). A held task is not
    waiting for a worker: its queue time begins anew when it is released."""

    step_ref: str = ""


class ReleaseTasks(_Effect, frozen=True, kw_only=True):
    """Let held tasks go again: of one step, or of the whole run except the steps in `still_held`."""

    step_ref: str = ""
    still_held: tuple[str, ...] = ()


class CloseLate(_Effect, frozen=True, kw_only=True):
    """A late success was judged; it is not shown again (C7)."""

    step_ref: str
    attempt: int
    kind: TaskKind = TaskKind.STEP
    item_index: int = -1


class SettleControl(_Effect, frozen=True, kw_only=True):
    """Write what became of a control, and its line in the audit trail (C1, C8). `code` and `message` say why it was rejected, or what an applied one should
    know. `result`: small facts, such as `new_run_id`."""

    request_id: str
    status: OperationStatus
    code: str = ""
    message: str = ""
    result: dict[str, str] = {}


class ForwardControl(_Effect, frozen=True, kw_only=True):
    """Hand a control that came too late on to the run's successor, under the same request id, and settle it here as applied (G8, C6)."""

    request_id: str
    run_id: str


class StartRun(_Effect, frozen=True, kw_only=True):
    """Give birth to a run of the same version, input, subject and labels (C5, C6); once, since its id is derived. A successor keeps parent, root, depth and
    journey and has `context_json` and `inverses`; a reset run (`reset_from_seq` > 0) is a root of its own with the source's context. `overrides_of`: the
    control whose body holds the step input overrides."""

    run_id: str
    context_json: str = "{}"
    inverses: tuple[Registered, ...] = ()
    reset_from_seq: int = 0
    overrides_of: str = ""
    preserved: dict[str, OutputRef] = {}


class AdoptHistory(_Effect, frozen=True, kw_only=True):
    """Copy transitions 1 to `seq` of another run into this one, the checkpoints that it had reached by then, and the rows of the attempts (step ref → number)
    that hold outputs (C5). `items`: of these steps the attempts of inline children up to this number come along, `children`: of these the rows of child runs
    that have ended; a gather may still read them."""

    source_run_id: str
    seq: int
    outputs: dict[str, int]
    items: dict[str, int] = {}
    children: tuple[str, ...] = ()


class RecordInverse(_Effect, frozen=True, kw_only=True):
    """Write one entry of the compensation ledger as it is now, and, once it is settled, its line in the audit trail (C7, C8). The last one per position
    wins."""

    position: int
    entry: Inverse


class RecordOutput(_Effect, frozen=True, kw_only=True):
    """Store the output of a step that no worker worked for: as the row of an attempt that has succeeded, so that an output lives where every output lives.
    `action`: the step's type."""

    step_ref: str
    attempt: int
    action: str
    output_json: str
    begin_time: datetime


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """One pattern of external events that a wait listens to. `any_key`: the correlation key does not matter. `filter`: a CEL bool over EVENT; empty: none."""

    event_name: str
    correlation_key: str = ""
    any_key: bool = False
    requirement: str = ""
    filter: str = ""


class OpenWait(_Effect, frozen=True, kw_only=True):
    """Register a wait for external events, in the commit that parks the node (E3). Kept events (`ttl_seconds`) that match become receipts at once, and the
    run is woken."""

    step_ref: str
    attempt: int
    subscriptions: tuple[Subscription, ...]


class CloseWait(_Effect, frozen=True, kw_only=True):
    """The wait listens no longer. A receipt of it that the tick has not been shown makes the whole decision void: the run is ticked again (E3)."""

    step_ref: str
    attempt: int


class TakeReceipts(_Effect, frozen=True, kw_only=True):
    """These receipts of a wait were applied; they are not shown again."""

    step_ref: str
    attempt: int
    event_ids: tuple[str, ...]


class SettleSignal(_Effect, frozen=True, kw_only=True):
    """Write what became of a signal, and, where it decided something, its line in the audit trail (C8)."""

    request_id: str
    status: SignalStatus
    decided: bool = False
    message: str = ""


class MoveSignals(_Effect, frozen=True, kw_only=True):
    """Hand signals that no step has consumed on to the run's successor, under their request ids (C6)."""

    run_id: str
    request_ids: tuple[str, ...]


class JoinDigest(_Effect, frozen=True, kw_only=True):
    """The run has reached a digest (E5): join the open window of this key, or open one with these settings, or pass alone; the commit decides, since only it
    sees the other runs, and tells this run by a `DigestFact`. `key`, `dedupe`: canonical JSON. `tick_time`: of mode timed, the cron tick that ends the
    window."""

    step_ref: str
    attempt: int
    key: str
    mode: DigestMode
    window_ms: int = 0
    look_back_ms: int = 0
    tick_time: datetime | None = None
    max_events: int = 0
    dedupe: str = ""


class TakeDigest(_Effect, frozen=True, kw_only=True):
    """The run knows its place now; it is shown again only when it becomes another."""

    step_ref: str
    attempt: int
    place: DigestPlace


class CloseDigest(_Effect, frozen=True, kw_only=True):
    """The leader's window is due: nobody joins it any more, and the leader is told who did."""

    step_ref: str
    attempt: int
    window_id: str


class FlushDigest(_Effect, frozen=True, kw_only=True):
    """The leader has gone on with everything that had come: the other runs of the window are told in the same commit that they are merged into it."""

    step_ref: str
    attempt: int
    window_id: str


class LeaveDigest(_Effect, frozen=True, kw_only=True):
    """The run's wait ended otherwise (cancelled, terminated, reset): its arrival is taken back, and the next one leads where it led."""

    step_ref: str
    attempt: int


class RecordAudit(_Effect, frozen=True, kw_only=True):
    """A line in the audit trail about something the engine decided by itself, unique by `key` within the run (C8)."""

    key: str
    action: str
    message: str = ""
    fault: Fault | None = None


Effect = (
    FanEffect
    | QueueTask
    | CloseAttempt
    | RequestCancel
    | SetTimer
    | ClearTimers
    | RecordCheckpoint
    | ClearCheckpoint
    | RecordResult
    | HoldTasks
    | ReleaseTasks
    | CloseLate
    | SettleControl
    | ForwardControl
    | StartRun
    | AdoptHistory
    | RecordInverse
    | RecordAudit
    | RecordOutput
    | OpenWait
    | CloseWait
    | TakeReceipts
    | SettleSignal
    | MoveSignals
    | JoinDigest
    | TakeDigest
    | CloseDigest
    | FlushDigest
    | LeaveDigest
)
