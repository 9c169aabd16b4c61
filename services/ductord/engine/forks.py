"""Reset: a new run from the state that another had after one of its transitions (ruling C5)."""

from ductord.engine.tick import Tick
from ductord.model.inbox import Inbox
from ductord.model.run import Run


def base_of(inbox: Inbox) -> Run | None:
    """The state that a reset run begins with; None for every other run."""
    return None


def start(tick: Tick) -> None:
    """Take a reset run up: its source's state, with what was open there pending again."""
