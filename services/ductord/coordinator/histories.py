"""Histories: what a reset run begins with, and the points that a reset names (ruling C5), folded from stored transitions. Reads only.

Only a reset run's first tick and a tick with a pending reset need them. Folding is work, so one tick folds a bounded number of transitions.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import asyncpg
import msgspec
from msgspec.structs import replace

from ductord.coordinator.facts import SQL
from ductord.coordinator.loaded import Loaded
from ductord.engine.evolve import evolve
from ductord.model import events
from ductord.model.enums import Verb
from ductord.model.inbox import Origin
from ductord.model.run import Run

_TRANSITIONS = 20_000
"""How many transitions one tick folds; runs that need more wait for the next."""

_log: Final = logging.getLogger("ductor.coordinator")

_Rows = list[tuple[datetime, str]]


class _Wish(msgspec.Struct, frozen=True, kw_only=True):
    """The state of run `source_id` after each of the transitions `seqs`, wanted by a run's tick."""

    loaded: Loaded
    source_id: str
    seqs: frozenset[int]

    @property
    def last(self) -> int:
        return max(self.seqs)


async def fill(connection: asyncpg.Connection, runs: Iterable[Loaded]) -> set[str]:
    """Give the runs that are being reset, or born of a reset, the states that they ask for; the ids of those for which there is no room in this tick."""
    wishes: list[_Wish] = []
    beyond, room = set(), _TRANSITIONS
    for wish in (w for loaded in runs if (w := _wish(loaded)) is not None):
        room -= wish.last
        if room >= 0 or not wishes:
            wishes.append(wish)
        else:
            beyond.add(wish.loaded.known.start.run_id)
    if wishes:
        histories = await _load(connection, wishes)
        for wish in wishes:
            _grant(wish, histories[wish.loaded.known.start.run_id])
    return beyond


def _wish(loaded: Loaded) -> _Wish | None:
    run, start = loaded.known.run, loaded.known.start
    if run is None:
        if not start.reset_from_seq:
            return None
        return _Wish(loaded=loaded, source_id=start.reset_from_run_id, seqs=frozenset({start.reset_from_seq}))
    if not loaded.inbox.controls:
        return None
    resets = (control.body.seq for control in loaded.inbox.controls if control.verb is Verb.RESET)
    seqs = frozenset(seq for seq in resets if 1 <= seq <= run.seq)
    return _Wish(loaded=loaded, source_id=start.run_id, seqs=seqs) if seqs else None


async def _load(connection: asyncpg.Connection, wishes: list[_Wish]) -> dict[str, _Rows]:
    histories: dict[str, _Rows] = defaultdict(list)
    rows = await connection.fetch(
        SQL["load_histories"],
        [wish.loaded.known.start.tenant_id for wish in wishes],
        [wish.loaded.known.start.run_id for wish in wishes],
        [wish.source_id for wish in wishes],
        [wish.last for wish in wishes],
    )
    for row in rows:
        histories[row["run_id"]].append((row["at"], row["events"]))
    return histories


def _grant(wish: _Wish, rows: _Rows) -> None:
    loaded = wish.loaded
    try:
        states = _folded(wish, rows)
    except Exception as error:
        if loaded.known.run is None:
            loaded.error = error  # there is nothing that this run could begin with (C9)
        else:
            # The run itself is well: the reset is refused, and whoever looks after the engine is told why.
            _log.exception("a history does not fold", extra={"run_id": wish.source_id}, exc_info=error)
        return
    if loaded.known.run is None:
        loaded.inbox = replace(loaded.inbox, origin=Origin(run=states[wish.last]))
    else:
        resets = [control for control in loaded.inbox.controls if control.verb is Verb.RESET]
        points = {control.request_id: states[control.body.seq] for control in resets if control.body.seq in states}
        loaded.inbox = replace(loaded.inbox, points=points)


def _folded(wish: _Wish, rows: _Rows) -> dict[int, Run]:
    """The state after each of the wanted transitions."""
    compiled = wish.loaded.compiled
    assert compiled is not None
    if len(rows) != wish.last:
        raise ValueError(f"the history has {len(rows)} of {wish.last} transitions")
    states: dict[int, Run] = {}
    run: Run | None = None
    for at, text in rows:
        run = evolve(compiled.manifest, run, wish.source_id, events.decode(text), at)
        if run.seq in wish.seqs:
            states[run.seq] = run
    return states
