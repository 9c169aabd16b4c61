"""The queue by SQL: attempts as the coordinator's commit inserts them, for tests of dispatch and worker alone, and what became of them.

Writes go in as the owner. `wait_for` follows rows until they are as expected; nobody sleeps for a guessed time.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg

from ductord.db.ids import new_id

TENANT = "acme"


class Queue:
    """The attempts of one test database, over one owner connection."""

    def __init__(self, owner: asyncpg.Connection) -> None:
        self.owner = owner

    async def put(
        self,
        count: int = 1,
        *,
        tenant: str = TENANT,
        action: str = "noop:noop",
        queue: str = "default",
        tier: str = "standard",
        args: Any = None,
        due_in_ms: int = 0,
        notify: bool = True,
        **columns: Any,
    ) -> list[str]:
        """Queue tasks, each of a run of its own; their run ids. `columns`: further columns of the attempt."""
        runs = [new_id() for _ in range(count)]
        names = ["queue", "tier", "action", "input", "idempotency_key", *columns]
        values = [queue, tier, action, json.dumps({} if args is None else args), "key", *columns.values()]
        places = ", ".join(
            f"${n}::{_type(name, value)}" for n, (name, value) in enumerate(zip(names, values, strict=True), 4)
        )
        await self.owner.execute(
            f"insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, attempt, due_time, create_time, {', '.join(names)})"
            f" select $1, r, 's', 1, eec_now() + $3::bigint * interval '1 millisecond', eec_now(), {places} from unnest($2::uuid[]) r",
            tenant, runs, due_in_ms, *values,
        )  # fmt: skip
        if notify:
            await self.owner.execute("select eec_notify('ductor_task')")
        return runs

    async def row(self, run_id: str) -> asyncpg.Record:
        """The attempt of a run."""
        return await self.owner.fetchrow("select * from eec_workflow_step_attempt where run_id = $1", run_id)

    async def outcomes(self) -> dict[str | None, int]:
        """How many attempts have each outcome; None: no report yet."""
        rows = await self.owner.fetch("select outcome, count(*) from eec_workflow_step_attempt group by outcome")
        return {row["outcome"]: row["count"] for row in rows}

    async def leased(self) -> int:
        """How many attempts somebody holds."""
        count: int = await self.owner.fetchval(
            "select count(*) from eec_workflow_step_attempt where lease_secret is not null and report_time is null"
        )
        return count

    async def wakeups(self) -> list[str]:
        """Run ids of all wake-ups."""
        return [str(row["run_id"]) for row in await self.owner.fetch("select run_id from eec_workflow_wakeup")]

    async def shift(self, column: str, ms: int) -> None:
        """Move a time column of all open attempts: into the past with a negative number. Stepping a clock, row by row."""
        await self.owner.execute(
            f"update eec_workflow_step_attempt set {column} = {column} + $1::bigint * interval '1 millisecond' where status = 'open'",
            ms,
        )

    async def wait_for(self, what: Callable[[], Awaitable[Any]], seconds: float = 60) -> None:
        """Wait until an async predicate holds. The limit is for what never comes: it claims nothing about speed."""
        async with asyncio.timeout(seconds):
            while not await what():  # noqa: ASYNC110  # rows have no event
                await asyncio.sleep(0.005)


def _type(name: str, value: Any) -> str:
    if name in ("input", "previous_details"):
        return "json"
    if isinstance(value, str):
        return "text"
    return "bigint" if isinstance(value, int) else "timestamptz"
