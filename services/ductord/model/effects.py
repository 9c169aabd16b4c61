"""The effects: what a tick wants done, as values. The coordinator's commit writes them in the same transaction as the events.

Effects name rows by their keys; applying one twice is prevented by the versioned run update that every statement of the commit hangs on.
"""

from datetime import datetime

import msgspec

from ductord.model.enums import AttemptStatus, CheckpointStatus, TaskKind, TimerKind


class _Effect(msgspec.Struct, frozen=True, kw_only=True):
    pass


class QueueTask(_Effect, frozen=True, kw_only=True):
    """Insert an attempt for dispatch. `input_json` is the rendered input as JSON text, within the payload limit (L7); with `retry_of` it is
    that attempt's input instead, and its last heartbeat details come along (A1, A5). Times in ms count from lease (`timeout_ms`,
    `heartbeat_timeout_ms`) or from `due_time` (`queue_timeout_ms`)."""

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


Effect = QueueTask | CloseAttempt | RequestCancel | SetTimer | ClearTimers | RecordCheckpoint | RecordResult
