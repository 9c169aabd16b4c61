"""What `decide` answers: a decision, or what it still has to be told."""

import msgspec

from ductord.model.effects import Effect
from ductord.model.events import Event
from ductord.model.inbox import SourceKey
from ductord.model.needs import Need
from ductord.model.run import Run


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """Events (what happened) and effects (what to do). No events means that the run did not change: its row and history are not written; the
    effects, if any, only put away facts that came too late, and the timers that were shown. `run`: the state after the events, exactly what `evolve` makes of
    them (None: unchanged)."""

    events: tuple[Event, ...] = ()
    effects: tuple[Effect, ...] = ()
    run: Run | None = None


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """`decide` met an expression that reads outputs it was not given: load these steps' outputs, and what inverses read, and call again (pure, so nothing is
    lost)."""

    steps: frozenset[str] = frozenset()
    sources: frozenset[SourceKey] = frozenset()
    payloads: frozenset[str] = frozenset()
    needs: frozenset[Need] = frozenset()
