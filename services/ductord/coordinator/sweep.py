"""Sweeps: what no wake-up tells. Overdue attempts and timers, and the net under lost wake-ups.

`Watch` runs often and reads two small indexes. `Net` runs once per sweep period and repairs what should never be missing: its counts belong at zero. Neither
decides anything: they report silence and wake runs, and the tick decides.
"""

from datetime import datetime, timedelta

import asyncpg
import msgspec

from ductord.coordinator.load import SQL

_BATCH = 1000
_FIRST = ("", "00000000-0000-0000-0000-000000000000")


class Swept(msgspec.Struct, kw_only=True):
    """Counts of one round. `expired`: attempts by outcome. `repaired`: wake-ups that had been lost, by where they were missing."""

    expired: dict[str, int] = {}
    timers: int = 0
    repaired: dict[str, int] = {}

    @property
    def woke(self) -> bool:
        """True when a run was woken."""
        return bool(self.expired or self.timers or any(self.repaired.values()))


async def watch(connection: asyncpg.Connection) -> Swept:
    """Report overdue attempts (A3, A4) and wake the runs of due timers, oldest first, in batches, until none is left."""
    swept = Swept()
    while True:
        rows = await connection.fetch(SQL["expire_attempts"], _BATCH)
        for row in rows:
            swept.expired[row["outcome"]] = swept.expired.get(row["outcome"], 0) + row["attempts"]
        if sum(row["attempts"] for row in rows) < _BATCH:
            break
    while True:
        count = await connection.fetchval(SQL["wake_timers"], _BATCH)
        swept.timers += count
        if count < _BATCH:
            break
    return swept


class Net:
    """The net under lost wake-ups. Walks all open runs page by page, a page per round, so that a round's cost is bounded."""

    def __init__(self, period_ms: int) -> None:
        self._period_ms = period_ms
        self._cursor = _FIRST
        self._starts_since: datetime | None = None

    async def round(self, connection: asyncpg.Connection) -> Swept:
        """One round over reports, timers, starts and a page of open runs."""
        swept = Swept()
        swept.repaired["reports"] = await connection.fetchval(SQL["sweep_reports"], self._period_ms, _BATCH)
        swept.repaired["timers"] = await connection.fetchval(SQL["sweep_timers"], self._period_ms)
        # The first round looks at every start ever; later ones at what was born since, with a margin for transactions that took long to commit.
        now = await connection.fetchval(SQL["now"])
        since = self._starts_since or datetime(1970, 1, 1, tzinfo=now.tzinfo)
        swept.repaired["starts"] = await connection.fetchval(SQL["sweep_starts"], since, self._period_ms, _BATCH)
        if swept.repaired["starts"] < _BATCH:
            self._starts_since = now - timedelta(minutes=10)
        page = await connection.fetchrow(SQL["sweep_stuck"], *self._cursor, _BATCH, self._period_ms)
        swept.repaired["stuck"] = page["stuck"]
        self._cursor = (page["last_tenant"], page["last_run"]) if page["seen"] == _BATCH else _FIRST
        return swept
