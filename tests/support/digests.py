"""The windows of digests that the runs of a story share, in memory: what the coordinator's commit would keep in rows.

Holds the promises of the real rows: one open window per family, step and key; every arrival is in one window at most; a place is told until it is taken.
"""

from collections.abc import Iterator
from datetime import datetime

import msgspec
import orjson

from ductord.engine import windows
from ductord.model.effects import JoinDigest, LeaveDigest, TakeDigest
from ductord.model.enums import DigestMode, DigestPlace
from ductord.model.ids import derived
from ductord.model.inbox import Arrival, DigestFact
from ductord.model.run import RunStart

_Key = tuple[str, str, str]


class _Arrived(msgspec.Struct, kw_only=True):
    """A run that joined. `window_id` empty: it passed. `told`: it has taken its place. `left`: its wait ended otherwise."""

    start: RunStart
    join: JoinDigest
    time: datetime
    place: DigestPlace
    window_id: str = ""
    told: bool = False
    left: bool = False


class _Window(msgspec.Struct, kw_only=True):
    key: _Key
    leader: str
    mode: DigestMode
    due_time: datetime
    max_events: int
    closed: bool = False
    flushed: bool = False


class Digests:
    """Windows, arrivals, and when something passed or was flushed last."""

    def __init__(self) -> None:
        self._windows: dict[str, _Window] = {}
        self._arrived: list[_Arrived] = []
        self._last: dict[_Key, datetime] = {}

    def facts(self, run_id: str) -> Iterator[DigestFact]:
        """What the run has not taken yet."""
        for one in self._arrived:
            if one.start.run_id != run_id or one.told or one.left:
                continue
            window = self._windows.get(one.window_id)
            counted = [one] if one.place is DigestPlace.PASSES else self._counted(one.window_id)
            yield DigestFact(
                step_ref=one.join.step_ref,
                attempt=one.join.attempt,
                place=one.place,
                window_id=one.window_id,
                due_time=window.due_time if window and one.place is DigestPlace.LEADS else None,
                arrivals=tuple(_arrival(a) for a in counted)
                if one.place in (DigestPlace.PASSES, DigestPlace.CLOSED)
                else (),
                leader_run_id=window.leader if window is not None else "",
            )

    def join(self, start: RunStart, join: JoinDigest, now: datetime) -> None:
        """A run arrives."""
        key = (start.family_slug, join.step_ref, join.key)
        window_id = next((id_ for id_, w in self._windows.items() if w.key == key and not w.closed), "")
        placed = windows.arrive(join, self._open(window_id), self._last.get(key), now)
        one = _Arrived(start=start, join=join, time=now, place=placed.place, window_id=window_id)
        self._arrived.append(one)
        match placed.place:
            case DigestPlace.PASSES:
                one.window_id = ""
                self._last[key] = now
            case DigestPlace.LEADS:
                assert placed.due_time is not None
                one.window_id = derived("digest", start.run_id, join.step_ref, join.attempt)
                self._windows[one.window_id] = _Window(
                    key=key,
                    leader=start.run_id,
                    mode=join.mode,
                    due_time=placed.due_time,
                    max_events=join.max_events,
                )
        if placed.closes:
            self.close(one.window_id)

    def take(self, run_id: str, effect: TakeDigest) -> None:
        """A run knows its place."""
        for one in self._of(run_id, effect):
            one.told = one.told or one.place is effect.place

    def close(self, window_id: str) -> None:
        """Nobody joins it any more, and its leader is told."""
        window = self._windows[window_id]
        if not window.closed:
            window.closed = True
            self._tell(window_id, window.leader, DigestPlace.CLOSED)

    def flush(self, window_id: str, now: datetime) -> None:
        """The leader has gone on, the others are merged into it."""
        window = self._windows[window_id]
        assert window.closed
        assert not window.flushed
        window.flushed = True
        if window.mode is DigestMode.BACKOFF:
            self._last[window.key] = now
        for one in self._members(window_id):
            if one.start.run_id != window.leader:
                self._tell(window_id, one.start.run_id, DigestPlace.MERGED)

    def leave(self, run_id: str, effect: LeaveDigest) -> None:
        """The run's arrival is taken back, and the next one leads where it led."""
        for one in self._of(run_id, effect):
            assert not one.left
            one.left = True
            window = self._windows.get(one.window_id)
            if window is None or window.flushed or window.leader != run_id:
                continue
            members = self._members(one.window_id)
            if not members:
                window.closed = window.flushed = True
                continue
            window.leader = members[0].start.run_id
            self._tell(one.window_id, window.leader, DigestPlace.CLOSED if window.closed else DigestPlace.LEADS)

    def _open(self, window_id: str) -> windows.Window | None:
        if not window_id:
            return None
        counted = self._counted(window_id)
        known = {one.join.dedupe for one in counted}
        return windows.Window(max_events=self._windows[window_id].max_events, size=len(counted), known=known)

    def _members(self, window_id: str) -> list[_Arrived]:
        """In the order of their arrival."""
        members = [one for one in self._arrived if one.window_id == window_id and not one.left]
        return sorted(members, key=lambda one: (one.time, one.start.run_id))

    def _counted(self, window_id: str) -> list[_Arrived]:
        """The members whose events count: the first of each dedupe key."""
        first: dict[str, _Arrived] = {}
        for one in self._members(window_id):
            first.setdefault(one.join.dedupe or one.start.run_id, one)
        return list(first.values())

    def _of(self, run_id: str, wait: TakeDigest | LeaveDigest) -> Iterator[_Arrived]:
        place = (run_id, wait.step_ref, wait.attempt)
        return (a for a in self._arrived if (a.start.run_id, a.join.step_ref, a.join.attempt) == place)

    def _tell(self, window_id: str, run_id: str, place: DigestPlace) -> None:
        for one in self._members(window_id):
            if one.start.run_id == run_id:
                one.place, one.told = place, False


def _arrival(of: _Arrived) -> Arrival:
    size = len(orjson.dumps(of.start.payload))
    return Arrival(run_id=of.start.run_id, time=of.time, size=size)
