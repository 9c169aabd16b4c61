"""Whether it is known what an attempt did (rulings A6, C7): a leaf that attempts, evolve and the ledger share.

An attempt that ended without a word of its own may have acted. So may one whose worker says no more than that it ran out of time or was called off in the
middle: these two codes say by their meaning that nobody knows (field case RT-09).
"""

from typing import Final

from ductord.model.enums import Outcome
from ductord.model.fault import Fault

NO_WORD: Final = frozenset({"DEADLINE_EXCEEDED", "CANCELLED"})
"""Codes of a reported failure that leave open whether the action had its effect."""

_SILENT: Final = (
    Outcome.TIMED_OUT,
    Outcome.HEARTBEAT_TIMED_OUT,
    Outcome.QUEUE_TIMED_OUT,
    Outcome.LOST,
    Outcome.REVOKED,
    Outcome.RELEASED,
)


def unsaid(outcome: Outcome, fault: Fault | None) -> bool:
    """Whether the outcome of the logical attempt stays unknown, so that the next attempt shows the same idempotency key."""
    return outcome in _SILENT or (outcome is Outcome.FAILED and fault is not None and fault.code in NO_WORD)


def may_have_acted(outcome: Outcome, fault: Fault | None, *, started: bool) -> bool:
    """Whether an effect may exist of which nobody knows: a worker had taken the attempt and did not finish it. One that gives a task back when it shuts down
    has cut its action off in the middle (KB-01)."""
    return started and unsaid(outcome, fault)
