"""What the kinds of all steps have in common at which nobody is at work: a wait, and what ends where it would begin (rulings A3, C2, C3).

A type takes `PARKED` and says what is its own: at least `prepare` and `start`.
"""

from typing import Final

from ductord.engine import waiting
from ductord.engine.steps.kind import StepKind

PARKED: Final = StepKind(
    prepare=waiting.nothing,
    start=waiting.never,
    again=waiting.again,
    may_report=waiting.may_report,
    ask=waiting.ask,
    drop=waiting.drop,
    hold=waiting.hold,
    release=waiting.release,
    retime=waiting.retime,
    reset=waiting.reset,
    parks=True,
)
