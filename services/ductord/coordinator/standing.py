"""What stands still, as gauges: the wake-up and the schedule that have waited longest, the runs that are set aside.

Numbers of the whole database, the same in every replica: take their maximum. Looked at once per sweep, by the first entries of indexes: a look costs two
probes for each tenant that has wake-ups just then (140 ms for 10,000 of them, measured), however many wake-ups, schedules and runs there are.
"""

from typing import Final

import asyncpg

from ductord.coordinator.sweep import SQL
from ductord.rpc.metrics import Metrics

_QUARANTINED: Final = 1_000
"""More than so many are not counted."""


class Standing:
    """The gauges of one coordinator."""

    def __init__(self, metrics: Metrics) -> None:
        self._wakeup = metrics.gauge(
            "ductor_wakeup_oldest_seconds", "How long the oldest wake-up has been due that no tick has served."
        )
        self._schedule = metrics.gauge(
            "ductor_schedule_oldest_seconds", "How long the schedule has been due that is most late."
        )
        self._quarantined = metrics.gauge(
            "ductor_quarantined_runs", "Runs that are set aside, since their ticks raise; at most 1,000 are counted."
        )

    async def look(self, connection: asyncpg.Connection) -> None:
        """Set the gauges."""
        row = await connection.fetchrow(SQL["standing"], _QUARANTINED)
        self._wakeup.set(row["wakeup_s"])
        self._schedule.set(row["schedule_s"])
        self._quarantined.set(row["quarantined"])
