"""Sweeps: what no wake-up tells. Overdue attempts and timers, and the net under lost wake-ups.

`watch` runs often and reads two small indexes. `Net` runs once per sweep period and repairs what should never be missing: its counts belong at zero. It also
puts away external events whose time is over. Neither decides anything: they report silence and wake runs, and the tick decides.
"""

from datetime import datetime, timedelta

import asyncpg
import msgspec

from ductord.coordinator.children import SQL as CHILDREN
from ductord.db.queries import Queries

SQL = Queries("ductord.coordinator", "sweep.sql")

_BATCH = 1000
_EVENT_BATCHES = 100
_LATE_COMMIT = timedelta(seconds=10)
"""How much older than a look a start may be that the look before could not see yet. What takes longer is found by the walk over all starts."""
_WAITING = ("reports", "timers", "controls", "lates", "signals", "receipts", "digests", "compensations", "children")
PLACES = (*_WAITING, "starts", "stuck", "untold")
"""Where a wake-up can be missing."""
SILENCES = ("lost", "timed_out", "heartbeat_timed_out", "queue_timed_out")
"""How a limit ends an attempt."""
_FIRST = ("", "00000000-0000-0000-0000-000000000000")
_FIRST_CHILD = (*_FIRST, "", -1, -1)


class Swept(msgspec.Struct, kw_only=True):
    """Counts of one round. `expired`: attempts by outcome. `repaired`: wake-ups that had been lost, by where they were missing. `events`: external events that
    were put away. `next_s`: seconds until the next timer that nobody has seen to is due. `since`: what the next look need not look behind."""

    expired: dict[str, int] = {}
    timers: int = 0
    repaired: dict[str, int] = {}
    events: int = 0
    next_s: float | None = None
    since: datetime | None = None

    @property
    def woke(self) -> bool:
        """True when a run was woken."""
        return bool(self.expired or self.timers or any(self.repaired.values()))


async def watch(connection: asyncpg.Connection, since: datetime | None = None) -> Swept:
    """Report overdue attempts (A3, A4) and wake the runs of due timers, oldest first, in batches, until none is left. `since`: of the look before; what was due
    earlier is left to a look without it, which the net makes once per period: only what a transaction took longer than `_LATE_COMMIT` to commit can be
    there (PG-05)."""
    swept = Swept()
    while True:
        rows = await connection.fetch(SQL["expire_attempts"], _BATCH, since)
        for row in rows:
            swept.expired[row["outcome"]] = swept.expired.get(row["outcome"], 0) + row["attempts"]
        if sum(row["attempts"] for row in rows) < _BATCH:
            break
    while True:
        count = await connection.fetchval(SQL["wake_timers"], _BATCH, since)
        swept.timers += count
        if count < _BATCH:
            break
    row = await connection.fetchrow(SQL["next_timer"], since)
    swept.next_s, swept.since = row["next_s"], row["now"] - _LATE_COMMIT
    return swept


async def rest(connection: asyncpg.Connection) -> tuple[bool, float | None]:
    """Whether any wake-up is due, and the seconds until the next one that nobody will tell of: of a child that was born to begin later (F1), or of a run that
    was put off. None where there is none."""
    row = await connection.fetchrow(SQL["next_wakeup"])
    return row["due"], row["next_s"]


class Net:
    """The net under lost wake-ups. Walks all open runs, all starts and all open children page by page, a page per round, so that a round's cost is bounded."""

    def __init__(self, period_ms: int) -> None:
        self._period_ms = period_ms
        self._open_runs = _FIRST
        self._starts = _FIRST
        self._children = _FIRST_CHILD
        self._starts_since: datetime | None = None

    async def round(self, connection: asyncpg.Connection) -> Swept:
        """One round over what waits to be judged, the latest starts, and a page each of starts, open runs and open children."""
        swept = Swept(events=await _expire_events(connection))
        for place in _WAITING:
            swept.repaired[place] = await connection.fetchval(SQL[f"sweep_{place}"], self._period_ms, _BATCH)
        now = await connection.fetchval(SQL["now"])
        reach = timedelta(milliseconds=self._period_ms) + _LATE_COMMIT
        latest = await connection.fetchval(
            SQL["sweep_starts"], (self._starts_since or now) - reach, self._period_ms, _BATCH
        )
        if latest < _BATCH:
            self._starts_since = now
        page = await connection.fetchrow(SQL["sweep_old_starts"], *self._starts, _BATCH, self._period_ms)
        swept.repaired["starts"] = latest + page["lost"]
        self._starts = _after(page)
        page = await connection.fetchrow(SQL["sweep_stuck"], *self._open_runs, _BATCH, self._period_ms)
        swept.repaired["stuck"] = page["stuck"]
        self._open_runs = _after(page)
        swept.repaired["untold"] = await self._tell_ended(connection)
        return swept

    async def _tell_ended(self, connection: asyncpg.Connection) -> int:
        """Tell parents of children that have ended, where a page of open ones has such."""
        page = [tuple(row) for row in await connection.fetch(SQL["sweep_untold"], *self._children, _BATCH)]
        self._children = page[-1][:5] if len(page) == _BATCH else _FIRST_CHILD
        untold = [row[:5] for row in page if row[5]]
        if not untold:
            return 0
        now = await connection.fetchval(SQL["now"])
        count: int = await connection.fetchval(CHILDREN["tell_ended"], *map(list, zip(*untold, strict=True)), now)
        return count


async def _expire_events(connection: asyncpg.Connection) -> int:
    """Put away external events that nobody needs any more (E3), in batches, until none is left or this round has done enough."""
    count = 0
    for _ in range(_EVENT_BATCHES):
        batch = await connection.fetchval(SQL["expire_events"], _BATCH)
        count += batch
        if batch < _BATCH:
            break
    return count


def _after(page: asyncpg.Record) -> tuple[str, str]:
    """Where the next page begins; after the last one, at the first again."""
    return (page["last_tenant"], page["last_run"]) if page["seen"] == _BATCH else _FIRST
