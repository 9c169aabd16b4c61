"""Taking and giving back leases: typed functions over the claim statements.

A claim is one statement and its own transaction: when it returns, the leases are committed. Nothing here waits for work (that is `waiting`) and
nothing here decides what an attempt's outcome means (that is the coordinator).
"""

import secrets
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import asyncpg
import msgspec

from ductord.db.pool import OnRetry, retrying
from ductord.db.queries import Queries
from ductord.dispatch.fairness import TIERS, Filter, Rotations
from ductord.dispatch.token import LeaseKey

SQL: Final = Queries("ductord.dispatch")

_WALK_MARGIN: Final = 4
_WALK_LIMIT: Final = 1_024
"""Tenants that one claim statement looks at per queue, action and tier; the next one goes on behind them."""
_WALKS: Final = 6


class LeasedTask(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An attempt under a fresh lease. JSON as text. `remaining_ms`: until its time-out, None without one. `waited_ms`: how long it was due."""

    key: LeaseKey
    tier: str
    queue: str
    action: str
    input: str
    idempotency_key: str
    previous_details: str | None
    traceparent: str
    heartbeat_timeout_ms: int | None
    remaining_ms: int | None
    waited_ms: int


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What one claim brought, at database time `now`. `contended`: tasks were due, but others held them. `emptied`: it took every task that it saw due.
    `next_due_ms`: when something comes due, where that is known."""

    tasks: list[LeasedTask]
    now: datetime
    contended: bool = False
    emptied: bool = False
    next_due_ms: int | None = None


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker asks for: at most `limit` tasks that the filter lets through. `poll_id` names the call across its repetitions."""

    wanted: Filter
    worker_id: str
    poll_id: str
    limit: int


class Leases:
    """The claim statements over one pool. `max_bytes` bounds the payload of one reply; a single task is always allowed."""

    def __init__(self, pool: asyncpg.Pool, *, lease_ms: int, max_bytes: int, on_retry: OnRetry | None = None) -> None:
        self._pool = pool
        self._on_retry = on_retry
        self._lease_ms = lease_ms
        self._max_bytes = max_bytes
        self._rotations = Rotations()

    async def claim(self, poll: Poll) -> Claim:
        """Lease due tasks for a poll, in fair order. Two claims of one filter may run at once; they take different tasks."""
        wanted = poll.wanted
        rotation = self._rotations.of(wanted)
        bound = poll.limit + _WALK_MARGIN
        for _ in range(_WALKS):
            mark = rotation.mark
            rows = await self._pool.fetch(
                SQL["claim"], wanted.queues, wanted.actions, wanted.tenant_id, poll.limit, rotation.passes, rotation.cursors, bound,
                self._max_bytes, poll.worker_id, poll.poll_id, self._lease_ms, mark, secrets.token_bytes(16 * poll.limit),
            )  # fmt: skip
            seen = rows[0]
            tasks = [_task(row) for row in rows[1:]]
            served = Counter(task.tier for task in tasks)
            rotation.advance(
                served=[served[tier] for tier in TIERS],
                backlogged=seen["tiers"],
                last_served=seen["last_served"],
                horizons=seen["horizons"],
            )
            cut = any(seen["horizons"])
            rotation.looked(mark=mark, front=seen["front"], cut=cut, now=seen["now"])
            if tasks or seen["candidates"] or not cut:
                break
            bound = min(bound * 4, _WALK_LIMIT)
        contended = not tasks and seen["candidates"] > 0
        emptied = seen["candidates"] == len(tasks) and not (cut or seen["cut"])
        return Claim(
            tasks=tasks, now=seen["now"], contended=contended, emptied=emptied, next_due_ms=seen["next_due_ms"]
        )

    async def redeliver(self, poll: Poll) -> Claim | None:
        """The leases of a poll whose reply was lost, as far as they are still held, under new secrets. None: there are none."""
        arguments = (poll.poll_id, poll.worker_id, poll.wanted.tenant_id, self._lease_ms)
        rows = await self._pool.fetch(SQL["redeliver"], *arguments)
        return Claim(tasks=[_task(row) for row in rows], now=rows[0]["now"]) if rows else None

    async def give_back(self, tasks: Sequence[LeasedTask]) -> int:
        """Undo leases that no worker was told of; how many there still were. Repeating it does nothing."""
        columns = [list(column) for column in zip(*sorted(task.key for task in tasks), strict=True)]
        self._rotations.look_everywhere()
        if not tasks:
            return 0
        count = await retrying(lambda: self._pool.fetchval(SQL["give_back"], *columns), on_retry=self._on_retry)
        return int(count)

    async def due(self, filters: Sequence[Filter]) -> tuple[set[int], datetime]:
        """(which of many filters have due tasks, by index; database time), in one statement. There must be a filter."""
        rows = [
            (n, queue, action, f.tenant_id) for n, f in enumerate(filters) for queue in f.queues for action in f.actions
        ]
        columns = [list(column) for column in zip(*rows, strict=True)]
        row = await self._pool.fetchrow(SQL["due"], *columns)
        return set(row["numbers"]), row["now"]


def _task(row: Any) -> LeasedTask:
    (
        tier,
        queue,
        action,
        given,
        idempotency_key,
        previous_details,
        traceparent,
        heartbeat_timeout_ms,
        remaining_ms,
        waited_ms,
    ) = row[7:17]
    return LeasedTask(
        key=LeaseKey(*row[:7]),
        tier=tier,
        queue=queue,
        action=action,
        input=given,
        idempotency_key=idempotency_key,
        previous_details=previous_details,
        traceparent=traceparent,
        heartbeat_timeout_ms=heartbeat_timeout_ms,
        remaining_ms=remaining_ms,
        waited_ms=waited_ms,
    )
