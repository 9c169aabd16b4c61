"""A run as the engine sees it: the value that `evolve` folds from events and `decide` reads.

Compact on purpose: status words, counters and references. Outputs live in their attempt's row, inputs in the run's start row; neither the
run row nor the history grows with payloads. `seq` is the number of transitions applied and equals the row's `record_version`.
"""

from datetime import datetime
from typing import Any

import msgspec

from ductord.model.enums import CheckpointStatus, NodeStatus, RunStatus, SkipReason


class _Value(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    pass


class Fault(_Value, frozen=True, kw_only=True):
    """An error as stored: a stable `code` (gRPC code name or our own, e.g. `expression_error`) and a text safe to store (ruling L6)."""

    code: str
    message: str = ""


class OutputRef(_Value, frozen=True, kw_only=True):
    """Where an output lives: the attempt that produced it, its size in bytes and a short hash."""

    attempt: int
    size: int
    hash: str


class Node(_Value, frozen=True, kw_only=True):
    """One step in one run. The zero value is a pending node that nothing has reached.

    `attempt`: number of the latest attempt (0: none yet), ever growing. `failures`: reported failures and time-outs that spent the retry
    budget (A1, A4). `losses`: attempts lost (A4). `logical`: number of the logical attempt, part of the idempotency key; it grows after a
    reported failure only (A6). `due_time`: set while a back-off holds the next attempt. `first_time`: first dispatch (total time-out).
    """

    status: NodeStatus = NodeStatus.PENDING
    skip_reason: SkipReason | None = None
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    logical: int = 0
    due_time: datetime | None = None
    first_time: datetime | None = None
    end_time: datetime | None = None
    output: OutputRef | None = None
    fault: Fault | None = None
    cancelling: bool = False


class Stop(_Value, frozen=True, kw_only=True):
    """Why the run is being stopped (ruling G8: the first committed cause sticks, except that terminate overrides).

    `cause` is the terminal status the run will take. `fault`/`step_ref`: the failure behind it. `deadline`: when in-flight attempts that were
    asked to stop are revoked (None: they may finish, fail_policy `drain`). `out_of_time`: the run time-out has come too and spares nothing.
    """

    cause: RunStatus
    fault: Fault | None = None
    step_ref: str | None = None
    deadline: datetime | None = None
    out_of_time: bool = False


class CheckpointState(_Value, frozen=True, kw_only=True):
    """State of one checkpoint (ruling G9)."""

    status: CheckpointStatus = CheckpointStatus.PENDING
    time: datetime | None = None


class Run(_Value, frozen=True, kw_only=True):
    """State of one run. `nodes` and `checkpoints` follow the manifest's order; `edges` holds one `EdgeState` character per manifest edge.

    `open_nodes` counts the nodes that are not terminal: the run closes when it is zero (G8).
    `fault` is the run's error once it failed; `output_fault` an output expression that did not evaluate (G8). `context` is the run context.
    """

    run_id: str
    status: RunStatus = RunStatus.PENDING
    seq: int = 0
    nodes: tuple[Node, ...] = ()
    edges: str = ""
    checkpoints: tuple[CheckpointState, ...] = ()
    open_nodes: int = 0
    stop: Stop | None = None
    fault: Fault | None = None
    output_fault: Fault | None = None
    has_errors: bool = False
    start_time: datetime | None = None
    end_time: datetime | None = None
    context: dict[str, Any] = {}


class RunStart(_Value, frozen=True, kw_only=True):
    """The immutable birth row of a run (architecture: a run is born as a run_start row).

    `payload` is the trigger's input: None where it was not loaded because no expression of the manifest reads TRIGGER.
    """

    tenant_id: str
    run_id: str
    definition_id: str
    version_id: str
    version: int
    family_slug: str
    create_time: datetime
    subject_type: str = ""
    subject_id: str = ""
    labels: dict[str, str] = {}
    payload: Any = None
    variables: dict[str, Any] = {}
    tier: str = "standard"
    traceparent: str = ""
    root_run_id: str = ""
    parent_run_id: str = ""
    nesting_depth: int = 0
