"""Compensation: what is registered, what an end of the run owes, and working it off (ruling C7)."""

from ductord.engine import attempts
from ductord.engine.tick import Tick
from ductord.model.inbox import AttemptReport


def register(tick: Tick, index: int, attempt: int, logical: int) -> None:
    """An action of the step at `index` has succeeded: register its inverses, if it declares any."""


def late(tick: Tick) -> None:
    """Register what succeeded too late to count for its node."""


def judge(tick: Tick, report: AttemptReport) -> None:
    """Apply a report of an inverse or final action."""
    tick.do(attempts.put_away(report))


def advance(tick: Tick) -> None:
    """After the end of the run: plan what it owes, begin the next entry, and end the compensation when nothing is owed."""
