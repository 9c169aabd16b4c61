"""What waits and runs, counted from the rows with a bounded cost: for DescribeQueues and for the gauges. Counts stop at a bound, they never slow the
queue down.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductord.dispatch.fairness import TIERS
from ductord.dispatch.leases import SQL

_WALK: Final = 1_000
"""Combinations of queue, action and tier that are looked at."""
_COUNT: Final = 10_000
"""Tasks that are counted in each of them."""
_LEASED: Final = 50_000


class QueueState(msgspec.Struct, kw_only=True):
    """One tier of one queue. `ready`: due and without a lease; `delayed`: not due yet; `oldest`: when the oldest ready one came due."""

    queue: str
    tier: str
    ready: int = 0
    delayed: int = 0
    leased: int = 0
    oldest: datetime | None = None


async def describe(
    pool: asyncpg.Pool, tenant_id: str | None, queues: Sequence[str]
) -> tuple[list[QueueState], datetime]:
    """(every tier of every queue that has tasks, in that order; database time). `tenant_id` None: of all tenants; `queues` empty: all queues."""
    found: dict[tuple[str, str], QueueState] = {}
    async with pool.acquire() as connection:
        for row in await connection.fetch(SQL["describe_waiting"], tenant_id, queues, _WALK, _COUNT):
            state = _state(found, row["queue"], row["tier"])
            state.ready, state.delayed, state.oldest = row["ready"], row["delayed"], row["oldest"]
        for row in await connection.fetch(SQL["describe_leased"], tenant_id, queues, _LEASED):
            _state(found, row["queue"], row["tier"]).leased = row["leased"]
        now: datetime = await connection.fetchval(SQL["now"])
    return sorted(found.values(), key=lambda state: (state.queue, TIERS.index(state.tier))), now


def _state(found: dict[tuple[str, str], QueueState], queue: str, tier: str) -> QueueState:
    return found.setdefault((queue, tier), QueueState(queue=queue, tier=tier))
