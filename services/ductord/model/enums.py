"""The closed vocabularies of the product, as the database and the transition history spell them.

Every enum is a `str` whose value is the short lower-case name: the same word stands in SQL, in JSON history, in logs and (with the
proto's prefix) in the contract. Nothing here knows how a state is left; the transition tables in `engine.transitions` do. What is asked of a member is worked
out once for each.
"""

from enum import StrEnum
from functools import cached_property


class StepType(StrEnum):
    """The fifteen step types of the spec. Which of them this build can run is `engine.steps.SUPPORTED`."""

    ACTION = "action"
    WAIT = "wait"
    APPROVAL = "approval"
    SCATTER = "scatter"
    FOR_EACH = "for_each"
    GATHER = "gather"
    DATAFLOW = "dataflow"
    RACE = "race"
    SUBWORKFLOW = "subworkflow"
    HUMAN_LOOP = "human_loop"
    AI_ACTION = "ai_action"
    AI_AGENT = "ai_agent"
    BRIDGE = "bridge"
    DIGEST = "digest"
    EVENT_SET = "event_set"


class EdgeType(StrEnum):
    """Which outcome of its source an edge stands for (spec: Edges)."""

    SUCCESS = "success"
    ERROR = "error"
    TRUE = "true"
    FALSE = "false"
    APPROVED = "approved"
    REJECTED = "rejected"
    DONE = "done"


class RunStatus(StrEnum):
    """Status of a run (spec: Run status values). A run without a run row yet is `pending`."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    TERMINATED = "terminated"
    MERGED = "merged"

    @cached_property
    def terminal(self) -> bool:
        """True when nothing but redrive leaves this status."""
        return self not in (RunStatus.PENDING, RunStatus.RUNNING, RunStatus.PAUSED)


class NodeStatus(StrEnum):
    """Status of a node (spec: Node lifecycle)."""

    PENDING = "pending"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    COMPLETED_WITH_ERROR = "completed_with_error"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @cached_property
    def terminal(self) -> bool:
        """True when the node has ended; its outgoing edges are then taken or dead."""
        return self not in (NodeStatus.PENDING, NodeStatus.RUNNING, NodeStatus.WAITING)

    @cached_property
    def begun(self) -> bool:
        """True when the node has begun and not ended."""
        return self in (NodeStatus.RUNNING, NodeStatus.WAITING)


class SkipReason(StrEnum):
    """Why a node is `skipped` (ruling G1)."""

    CONDITION = "condition"
    CHOICE = "choice"
    UPSTREAM_SKIPPED = "upstream_skipped"
    UPSTREAM_FAILED = "upstream_failed"
    RACE_LOST = "race_lost"
    TIMEOUT = "timeout"
    OPERATOR = "operator"
    RUN_ENDED = "run_ended"


class EdgeState(StrEnum):
    """State of an edge in a run, one character each so that a run's edges are one string (rulings G1, G2)."""

    OPEN = "?"
    TAKEN = "T"
    DEAD_SKIP = "S"
    DEAD_FAILURE = "F"


class AttemptStatus(StrEnum):
    """The coordinator's verdict over an attempt. `open` until a tick has judged its outcome."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    CANCELLED = "cancelled"


class Outcome(StrEnum):
    """What became of an attempt, first writer wins: a worker's report through dispatch, or the coordinator's sweep on its behalf."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    RELEASED = "released"
    LOST = "lost"
    TIMED_OUT = "timed_out"
    HEARTBEAT_TIMED_OUT = "heartbeat_timed_out"
    QUEUE_TIMED_OUT = "queue_timed_out"
    REVOKED = "revoked"

    @cached_property
    def returned(self) -> bool:
        """True when the task came back and is made again at no cost (ruling A4)."""
        return self in (Outcome.RELEASED, Outcome.REVOKED)


class TaskKind(StrEnum):
    """What an attempt works for: a step, an item of a fan-out, an inverse action, a final action (ruling C7). Part of an attempt's key."""

    STEP = "step"
    ITEM = "item"
    COMPENSATION = "compensation"
    FINALLY = "finally"


class TimerKind(StrEnum):
    """What a durable timer is for."""

    RUN_TIMEOUT = "run_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    STOP_GRACE = "stop_grace"
    NODE_GRACE = "node_grace"
    WAIT = "wait"
    WAIT_TIMEOUT = "wait_timeout"


class Join(StrEnum):
    """When a step with several predecessors becomes runnable (ruling G2)."""

    ALL = "all"
    ANY = "any"


class OnError(StrEnum):
    """Whether a failed step halts the run or lets the graph go on (ruling G4)."""

    FAIL = "fail"
    CONTINUE = "continue"


class FailPolicy(StrEnum):
    """How a failing `fail` step stops the run (ruling G5)."""

    FAIL_FAST = "fail_fast"
    DRAIN = "drain"
    RUN_ALL = "run_all"


class Tier(StrEnum):
    """Weight class of a run's tasks in the fair queue (8:3:1)."""

    CRITICAL = "critical"
    STANDARD = "standard"
    BULK = "bulk"


class CheckpointStatus(StrEnum):
    """A checkpoint is `pending` until it is reached once or can no longer be (ruling G9)."""

    PENDING = "pending"
    REACHED = "reached"
    UNREACHABLE = "unreachable"


class Verb(StrEnum):
    """What a control asks for (rulings C1 to C10). One intent row each."""

    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"
    TERMINATE = "terminate"
    REDRIVE = "redrive"
    CONTINUE_AS_NEW = "continue_as_new"
    RESET = "reset"
    PAUSE_NODE = "pause_node"
    RESUME_NODE = "resume_node"
    RESET_NODE = "reset_node"
    UPDATE_NODE_RETRY_POLICY = "update_node_retry_policy"
    UPDATE_NODE_TIMEOUT = "update_node_timeout"
    RESOLVE_REPAIR = "resolve_repair"


class OperationStatus(StrEnum):
    """What became of a control (ruling C1)."""

    PENDING = "pending"
    APPLIED = "applied"
    REJECTED = "rejected"


class CompensationBlock(StrEnum):
    """The lists of a step's compensation (spec: Saga)."""

    ON_FAILURE = "on_failure"
    ON_CANCEL = "on_cancel"
    FINALLY = "finally"


class FailurePolicy(StrEnum):
    """What a failed inverse or final action leads to (spec: CompensationFailurePolicy)."""

    MANUAL_REPAIR = "manual_repair"
    FAIL_COMPENSATION = "fail_compensation"
    IGNORE_WITH_AUDIT = "ignore_with_audit"


class CompensationStatus(StrEnum):
    """Where the unwinding of a run stands, on an axis of its own beside the terminal status (ruling C7)."""

    NONE = "none"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    MANUAL_REPAIR = "manual_repair"


class InverseStatus(StrEnum):
    """Where one entry of a run's compensation ledger stands."""

    OWED = "owed"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    IGNORED = "ignored"
    MANUAL_REPAIR = "manual_repair"

    @cached_property
    def settled(self) -> bool:
        """True when the engine has nothing more to do for the entry (a person may have)."""
        return self not in (InverseStatus.OWED, InverseStatus.RUNNING)


class Resolution(StrEnum):
    """What a person says about an entry that needs repair."""

    DONE = "done"
    RETRY = "retry"
    NOT_NEEDED = "not_needed"


class WaitingType(StrEnum):
    """Why a node is parked (spec: Node lifecycle)."""

    TIMER = "timer"
    APPROVAL = "approval"
    CHILD = "child"
    SIGNAL = "signal"
    DIGEST = "digest"
    INTERACTION = "interaction"
    EVENT = "event"
    EVENT_SET = "event_set"


class OnTimeout(StrEnum):
    """What the time-out of a parked step does: fail it, skip it, let it succeed (`continue`), or act as an approval (rulings E2, A3)."""

    FAIL = "fail"
    SKIP = "skip"
    CONTINUE = "continue"
    APPROVE = "approve"


class SignalVerb(StrEnum):
    """What somebody tells a step (spec: Signals)."""

    APPROVE = "approve"
    REJECT = "reject"
    RESOLVE_INTERACTION = "resolve_interaction"


class SignalStatus(StrEnum):
    """What became of a signal (ruling E1). `kept`: its step has not parked yet. `ignored`: its step had ended. `discarded`: with its run."""

    KEPT = "kept"
    APPLIED = "applied"
    IGNORED = "ignored"
    DISCARDED = "discarded"


class CompletionPolicy(StrEnum):
    """When an event set is complete (ruling E4)."""

    ALL_REQUIRED = "all_required"
    ANY = "any"
    QUORUM = "quorum"
    COUNT = "count"
    UNTIL_TIMEOUT = "until_timeout"


class RaceLosers(StrEnum):
    """What becomes of those that lost a race (ruling G7)."""

    CANCEL = "cancel"
    LET_FINISH = "let_finish"


class DigestPlace(StrEnum):
    """What the commit made of a run that reached a digest (ruling E5). `closed`: its window takes nobody any more, it leads and goes on."""

    PASSES = "passes"
    LEADS = "leads"
    FOLLOWS = "follows"
    CLOSED = "closed"
    MERGED = "merged"


class DigestMode(StrEnum):
    """When a digest lets its arrivals go (ruling E5)."""

    REGULAR = "regular"
    BACKOFF = "backoff"
    TIMED = "timed"
