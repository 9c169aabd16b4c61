"""Continue-as-new: handing a run over to a successor, asked for or because its history grew too long (ruling C6)."""

from ductord.engine.tick import Tick


def by_length(tick: Tick) -> None:
    """Judge the length of the history against the tiers."""
