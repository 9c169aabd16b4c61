"""The state of a run after each of its transitions: its history, folded from the begin.

A history only ever grows, so what was found of a stretch of it stays true. Folding is work for the processor: it is done in chunks, between which others are
served.
"""

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import Final

import asyncpg
from cachetools import LRUCache

from ductord.db.queries import Queries
from ductord.engine import forks
from ductord.engine.evolve import evolve
from ductord.engine.forks import Target
from ductord.model import events as history
from ductord.model.events import Event
from ductord.model.run import Run
from ductord.run_control.runs import Found

_CHUNK: Final = 200
_STRETCH: Final = 2_000
"""Targets found in one pass over a history, and remembered, so that a listing page by page does not fold it anew for every page."""
_REMEMBERED: Final = 500_000
"""Step refs that the remembered targets may name together."""
_q: Final = Queries("ductord.run_control")


async def state_after(db: asyncpg.Connection, found: Found, seq: int) -> Run | None:
    """The run as it was after transition `seq`; None if it has none of that number."""
    run: Run | None = None
    at = 0
    while at < seq:
        rows = await _transitions(db, found, at, min(at + _CHUNK, seq))
        if not rows:
            return None
        for row in rows:
            run = evolve(found.manifest, run, found.run_id, history.decode(row["events"]), row["at"])
        at = rows[-1]["seq"]
    return run


class Histories:
    """The stretches of reset targets that this process has met, by tenant, run and the transition that they come after."""

    def __init__(self) -> None:
        self._known: LRUCache[tuple[str, str, int], Sequence[Target]] = LRUCache(
            _REMEMBERED, getsizeof=lambda found: sum(4 + len(t.ended) + len(t.at_work) for t in found)
        )

    async def targets(self, db: asyncpg.Connection, found: Found, after: int, count: int) -> Sequence[Target]:
        """The first `count` targets after transition `after`, fewer where there are no more."""
        known = self._known.get((found.tenant_id, found.run_id, after), ())
        if len(known) < count:
            known = await self._pass(db, found, after)
        shown = known[:count]
        if len(shown) == count:
            self._remember(found, shown[-2].seq if count > 1 else shown[-1].seq, known)
        return shown

    async def _pass(self, db: asyncpg.Connection, found: Found, after: int) -> Sequence[Target]:
        rows = await _transitions(db, found, 0, found.run.seq if found.run is not None else 0)
        made = forks.targets(found.manifest, found.run_id, _decoded(rows))
        wanted: list[Target] = []
        while chunk := list(islice(made, _CHUNK)):
            wanted += (target for target in chunk if target.seq > after)
            if len(wanted) >= _STRETCH:
                break
            await asyncio.sleep(0)
        return wanted

    def _remember(self, found: Found, last: int, known: Sequence[Target]) -> None:
        """Keep what comes after the last target of a page for the next one."""
        rest = [target for target in known if target.seq > last]
        key = (found.tenant_id, found.run_id, last)
        try:
            self._known[key] = rest
        except ValueError:  # one that is too large to be remembered
            self._known.pop(key, None)


async def _transitions(db: asyncpg.Connection, found: Found, after: int, last: int) -> list[asyncpg.Record]:
    rows: list[asyncpg.Record] = await db.fetch(_q["list_transitions"], found.tenant_id, found.run_id, after, last)
    return rows


def _decoded(rows: Sequence[asyncpg.Record]) -> Iterator[tuple[datetime, tuple[Event, ...]]]:
    return ((row["at"], history.decode(row["events"])) for row in rows)
