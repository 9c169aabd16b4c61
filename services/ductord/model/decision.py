"""What `decide` answers: a decision, or what it still has to be told."""

import msgspec

from ductord.model.effects import Effect
from ductord.model.events import Event


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Events (what happened) and effects (what to do). No events means nothing changed and nothing is written."""

    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """`decide` met an expression that reads outputs it was not given: load these steps' outputs and call again (pure, so nothing is lost)."""

    steps: frozenset[str]
