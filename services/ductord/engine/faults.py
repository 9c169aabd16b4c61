"""The codes of the faults that the engine itself gives. Codes reported by workers pass through as they are."""

from ductord.engine.expressions import ExpressionError
from ductord.model.enums import Outcome, RunStatus
from ductord.model.errors import PayloadInvalid
from ductord.model.fault import Fault
from ductord.model.jsonvalue import storable_text

CHOICE_NO_MATCH = "CHOICE_NO_MATCH"
WORKER_LOST = "worker_lost"
TOTAL_TIMEOUT = "total_timeout"
RUN_TIMEOUT = "run_timeout"
HISTORY_LIMIT = "history_limit"
PAYLOAD_INVALID = "payload_invalid"
PAYLOAD_TOO_LARGE = "payload_too_large"
WAIT_INVALID = "wait_invalid"
WAIT_TIMEOUT = "wait_timeout"
COLLECTION_TOO_LARGE = "collection_too_large"
EVENT_SET_FULL = "event_set_full"
APPROVAL_REJECTED = "approval_rejected"
APPROVAL_TIMEOUT = "approval_timeout"
FAN_TOO_WIDE = "fan_too_wide"
CHILDREN_FAILED = "children_failed"
NOTHING_TO_GATHER = "nothing_to_gather"
CHILD_TIMEOUT = "child_timeout"
CHILD_INPUT_INVALID = "child_input_invalid"
CHECKPOINT_UNREACHABLE = "checkpoint_unreachable"
DEPTH_LIMIT_EXCEEDED = "depth_limit_exceeded"

_BY_OUTCOME = {
    Outcome.FAILED: Fault(code="UNKNOWN", message="the worker gave no reason"),
    Outcome.TIMED_OUT: Fault(code="attempt_timeout", message="the attempt took longer than timeout_ms"),
    Outcome.HEARTBEAT_TIMED_OUT: Fault(code="heartbeat_timeout", message="no heartbeat within heartbeat_timeout_ms"),
    Outcome.QUEUE_TIMED_OUT: Fault(code="queue_timeout", message="no worker took the attempt within queue_timeout_ms"),
}


class NodeFault(Exception):
    """A node cannot begin, and why: what `prepare` raises where it is not an expression that fails."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(code)
        self.fault = Fault(code=code, message=storable_text(message))

    @classmethod
    def of(cls, fault: Fault, before: str = "") -> "NodeFault":
        """The same fault, with something said before its text."""
        return cls(fault.code, f"{before}{fault.message}")


def of_outcome(outcome: Outcome) -> Fault | None:
    """The fault of an attempt that ended so without saying why; None where the outcome is no failure."""
    return _BY_OUTCOME.get(outcome)


def of_child(status: RunStatus, fault: Fault | None, run_id: str) -> Fault:
    """What a child run that has ended otherwise than completed is to its parent: `child_<status>` (F5). The text names the run and what it failed by."""
    why = f": {fault.code}" if fault is not None else ""
    detail = f" ({fault.message})" if fault is not None and fault.message else ""
    word = str(status).replace("_", " ")
    return Fault(code=f"child_{status}", message=storable_text(f"child run {run_id} {word}{why}{detail}"))


def of_expression(error: ExpressionError) -> Fault:
    """The fault of a node whose expression did not evaluate (L4). The message names the expression and is safe to store (L6)."""
    return Fault(code=error.code, message=error.message)


def of_payload(error: PayloadInvalid) -> Fault:
    """The fault of a node whose rendered input, or of a run whose output, cannot be carried (L6, L7). Never retried."""
    code = PAYLOAD_TOO_LARGE if error.reason == "too_large" else PAYLOAD_INVALID
    return Fault(code=code, message=storable_text(error.message))
