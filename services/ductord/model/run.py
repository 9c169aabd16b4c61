"""A run as the engine sees it: the value that `evolve` folds from events and `decide` reads.

Compact on purpose: status words, counters and references. Outputs live in their attempt's row, inputs in the run's start row; neither the
run row nor the history grows with payloads. `seq` is the number of transitions applied and equals the row's `record_version`.
"""

from datetime import datetime
from typing import Any

from ductord.model.enums import (
    CheckpointStatus,
    CompensationBlock,
    CompensationStatus,
    InverseStatus,
    NodeStatus,
    RunStatus,
    SkipReason,
    TaskKind,
    WaitingType,
)
from ductord.model.fan import Fan
from ductord.model.fault import Fault, OutputRef, Value
from ductord.model.specs import RetryPolicy, Timeouts
from ductord.model.starting import Origin


class Vote(Value, frozen=True, kw_only=True):
    """One person's approval of a step that needs several (ruling E2)."""

    approver_id: str
    request_id: str
    time: datetime


class Received(Value, frozen=True, kw_only=True):
    """An external event that counts for a wait (rulings E3, E4). Its payload stands in its own row. `requirement`: which one it met; empty for a wait
    step."""

    event_id: str
    event_name: str
    time: datetime
    requirement: str = ""


class Waiting(Value, frozen=True, kw_only=True):
    """Why a node is parked, and what wakes it (spec: Node lifecycle). The node's attempt numbers the wait.

    `due_time`: the moment waited for, or the next look of an `until`. `timeout_time`: when its time-out acts. `event_name`,
    `correlation_key`: of an event wait or set. `signal`: the name of the signal waited for. `case_id`, `case_status`: of a human loop. `votes`:
    approvals so far. `heard`: request ids of the signals that moved the case so far. `received`: events that count so far.
    `window_id`, `leads`: of a digest, and whether this run leads it.
    """

    type: WaitingType
    since: datetime
    due_time: datetime | None = None
    timeout_time: datetime | None = None
    event_name: str = ""
    correlation_key: str = ""
    signal: str = ""
    case_id: str = ""
    case_status: str = ""
    votes: tuple[Vote, ...] = ()
    heard: tuple[str, ...] = ()
    received: tuple[Received, ...] = ()
    window_id: str = ""
    leads: bool = False


class Node(Value, frozen=True, kw_only=True):
    """One step in one run. The zero value is a pending node that nothing has reached.

    `attempt`: number of the latest attempt (0: none yet), ever growing. `failures`: reported failures and time-outs that spent the retry
    budget (A1, A4). `losses`: attempts lost, `returned`: attempts that came back undone (A4). `logical`: number of the logical attempt, part of the
    idempotency key; it grows after a reported failure, a reset or a redrive only (A6). `due_time`: set while a back-off holds the next attempt.
    `first_time`: first dispatch (total time-out). `unknown`: logical attempts that a worker had taken and that ended without a word of their own, with
    no success since: their effects may exist (C7). `doubts`: such ones of before a reset of the node or a redrive. `paused`: an operator holds the
    node. `preserved`: a reset gave it its output once; from then on it runs like any other. `retry`, `timeouts`: what an operator put in the place of
    the definition's. `lost`: it has lost a race (G7). `rank`: of a step in a race, the number of the move by which it ended: who was first is told by
    it, also of those that ended in one tick. `fan`: where its children stand; kept after its end. `top`: the highest number that an attempt of an inline child
    has had.
    """

    status: NodeStatus = NodeStatus.PENDING
    skip_reason: SkipReason | None = None
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    returned: int = 0
    logical: int = 0
    due_time: datetime | None = None
    first_time: datetime | None = None
    end_time: datetime | None = None
    output: OutputRef | None = None
    fault: Fault | None = None
    cancelling: bool = False
    unknown: tuple[int, ...] = ()
    doubts: tuple[int, ...] = ()
    paused: bool = False
    preserved: bool = False
    retry: RetryPolicy | None = None
    timeouts: Timeouts | None = None
    waiting: Waiting | None = None
    lost: bool = False
    rank: int = 0
    fan: Fan | None = None
    top: int = 0


class Continuation(Value, frozen=True, kw_only=True):
    """A continue-as-new that was accepted (ruling C6). `request_id`: its control, which stays pending until the run closes and whose body has the seed;
    empty when the history's length asked for it."""

    new_run_id: str
    request_id: str = ""


class Stop(Value, frozen=True, kw_only=True):
    """Why the run is being stopped (ruling G8: the first committed cause sticks, except that terminate overrides).

    `cause` is the terminal status the run will take. `fault`/`step_ref`: the failure behind it. `deadline`: when in-flight attempts that were
    asked to stop are revoked (None: they may finish, fail_policy `drain`). `emptied`: everything was told to stop and no cleanup is spared, by a
    run time-out, a cancel or a continue-as-new, be it later than the cause. `request_id`: the control that was the cause. `skip_finally`: of a
    terminate (C3). `continuation`: the run ends to go on as a successor. `merged_into_run_id`: the run ends because another carries its event on (E5).
    """

    cause: RunStatus
    fault: Fault | None = None
    step_ref: str | None = None
    deadline: datetime | None = None
    emptied: bool = False
    request_id: str = ""
    skip_finally: bool = False
    continuation: Continuation | None = None
    merged_into_run_id: str = ""


class CheckpointState(Value, frozen=True, kw_only=True):
    """State of one checkpoint (ruling G9)."""

    status: CheckpointStatus = CheckpointStatus.PENDING
    time: datetime | None = None


class Registered(Value, frozen=True, kw_only=True):
    """An action that succeeded and declares inverses (ruling C7). `attempt`: whose row holds its output, in run `run_id` (empty: this run; else one that was
    continued as this one; 0: nobody knows whether it acted, there). `logical`: which logical attempt it was, so that two reports of one effect register once.
    `spent`: its inverses are in the plan.
    """

    step_ref: str
    attempt: int
    logical: int
    item_index: int = -1
    run_id: str = ""
    spent: bool = False


class Inverse(Value, frozen=True, kw_only=True):
    """One entry of the compensation ledger: an inverse or final action that is owed, or was. Its place in `Saga.plan` is its position.

    `number`: of the action in its block. `source_attempt`, `source_run_id`: where OUTPUT is (0: there is none). `source_logical`: the logical attempt that an
    inverse undoes. The counters mean what they mean on a node. `unknown`: the latest attempt ended without a word of its own, so the next has its key (A6).
    `doubts`: the logical attempts of it under which a worker was at work and ended without a word: they may have done it all the same.
    """

    step_ref: str
    kind: TaskKind
    block: CompensationBlock
    number: int = 0
    item_index: int = -1
    source_attempt: int = 0
    source_run_id: str = ""
    source_logical: int = 0
    status: InverseStatus = InverseStatus.OWED
    attempt: int = 0
    failures: int = 0
    losses: int = 0
    returned: int = 0
    logical: int = 0
    unknown: bool = False
    doubts: tuple[int, ...] = ()
    due_time: datetime | None = None
    fault: Fault | None = None


class Saga(Value, frozen=True, kw_only=True):
    """Compensation of a run: what was registered, in order, and the plan of what is owed, append-only, worked off in order and one by one."""

    status: CompensationStatus = CompensationStatus.NONE
    registered: tuple[Registered, ...] = ()
    plan: tuple[Inverse, ...] = ()


NO_SAGA = Saga()


class Run(Value, frozen=True, kw_only=True):
    """State of one run. `nodes` and `checkpoints` follow the manifest's order; `edges` holds one `EdgeState` character per manifest edge.

    `open_nodes` counts the nodes that are not terminal: the run closes when it is zero (G8).
    `fault` is the run's error once it failed; `output_fault` an output expression that did not evaluate (G8). `saga`: its compensation, which moves on
    after the end. `close_reason`, `continued_to_run_id`: of a run that was continued as new. `moves`: how many attempts and node ends its history has, the
    length that the tiers of C6 count; `warned`: the soft tier was told.
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
    saga: Saga = NO_SAGA
    close_reason: str = ""
    continued_to_run_id: str = ""
    merged_into_run_id: str = ""
    moves: int = 0
    warned: bool = False

    @property
    def held(self) -> bool:
        """True while an operator holds the run or one of its nodes: it may then have nothing to wait for but a control."""
        if self.status is RunStatus.PAUSED:
            return True
        for node in self.nodes:  # noqa: SIM110  # asked at every tick: a generator would take three times as long
            if node.paused and not node.status.terminal:
                return True
        return False


class RunStart(Value, frozen=True, kw_only=True):
    """The immutable birth row of a run (architecture: a run is born as a run_start row).

    `payload` is the trigger's input: None where it was not loaded because no expression of the manifest reads TRIGGER.
    `context`: the run context. `actor`: who started it.
    `continued_from_run_id`, `inverses`: of a successor (C6). `reset_from_run_id`, `reset_from_seq`: the history that a reset run begins with;
    `overrides`: inputs by step ref that its steps get instead of their args; `preserved`: outputs by step ref that its steps have instead of running
    (C5).
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
    journey_id: str = ""
    actor: str = "anonymous"
    context: dict[str, Any] = {}
    continued_from_run_id: str = ""
    inverses: tuple[Registered, ...] = ()
    reset_from_run_id: str = ""
    reset_from_seq: int = 0
    overrides: dict[str, Any] = {}
    preserved: dict[str, OutputRef] = {}
    origin: Origin = Origin()
    environment: str = ""
