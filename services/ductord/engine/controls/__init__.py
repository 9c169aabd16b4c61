"""Controls: applying what operators ask (rulings C1 to C10).

`admission` says whether a control can be applied to a run as it stands; the service asks it before it accepts one, and the tick asks it again, since the
run may have moved on in between. Every verb has one function that applies it; what a control means for a kind of step is asked of the step's kind.
"""

from ductord.engine.tick import Tick


def apply(tick: Tick) -> None:
    """Apply or reject every pending control, in order of creation."""
