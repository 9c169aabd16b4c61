"""What the kinds of all steps have in common whose children are runs: the node is parked, and nobody is at work for it here (rulings F5, C2, C3).

A type takes `BEARING` and says what is its own: at least `prepare`, `start`, `on_child` and `finish`.
"""

from typing import Final

from msgspec.structs import replace

from ductord.engine import attempts
from ductord.engine.fans import runs
from ductord.engine.steps.kind import StepKind
from ductord.engine.steps.parked import PARKED

BEARING: Final[StepKind] = replace(
    PARKED,
    ask=runs.ask,
    drop=runs.drop,
    reset=runs.reset,
    retime=attempts.retime,
    fill=runs.fill,
)
