"""Windows of digests: what becomes of one arrival (ruling E5). Pure; whoever keeps the rows asks for one arrival after the other, in their order."""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from ductord.model.effects import JoinDigest
from ductord.model.enums import DigestMode, DigestPlace

MAX_EVENTS: Final = 10_000
"""The most events that a window takes where its definition says nothing: it then closes early, rather than growing beyond what a run can carry."""


class Window(msgspec.Struct, kw_only=True):
    """An open window. `size`: how many events it has; `known`: their dedupe keys. `max_events`: as it was when the window opened."""

    max_events: int
    size: int = 0
    known: set[str] = msgspec.field(default_factory=set)


class Placed(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the arrival. `place`: passes, leads (it opens a window, until `due_time`) or follows. `closes`: the window is full with it."""

    place: DigestPlace
    due_time: datetime | None = None
    closes: bool = False


def arrive(join: JoinDigest, window: Window | None, last: datetime | None, now: datetime) -> Placed:
    """The arrival passes if its mode is `backoff` and nothing passed or was flushed within the look-back; else it joins the window, which it adds itself to, or
    opens one. `window`: the open one; `last`: when something passed or was flushed last."""
    if join.mode is DigestMode.BACKOFF:
        within = last is not None and last > now - timedelta(milliseconds=join.look_back_ms)
        if not within:
            return Placed(place=DigestPlace.PASSES)
    if window is None:
        due = join.tick_time if join.mode is DigestMode.TIMED else now + timedelta(milliseconds=join.window_ms)
        return Placed(place=DigestPlace.LEADS, due_time=due, closes=join.max_events == 1)
    if not join.dedupe or join.dedupe not in window.known:
        window.size += 1
        window.known.add(join.dedupe)
    return Placed(place=DigestPlace.FOLLOWS, closes=window.size >= (window.max_events or MAX_EVENTS))


def opened(join: JoinDigest) -> Window:
    """The window that an arrival has opened, with itself in it."""
    return Window(max_events=join.max_events, size=1, known={join.dedupe})
