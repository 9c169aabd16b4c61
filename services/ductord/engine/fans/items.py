"""Inline children: tasks of the run itself, each with attempts, retries and a verdict of its own (rulings F1, A1 to A6)."""

from ductord.engine import attempts
from ductord.engine.tick import Tick
from ductord.model.inbox import AttemptReport


def judge(tick: Tick, report: AttemptReport) -> None:
    """Apply the report of an inline child (A2, A4). Helper A writes this."""
    tick.do(attempts.put_away(report))
