"""PG-05: one long snapshot elsewhere keeps dead index entries alive; a claim must not crawl through them, and must still find what came to light late."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from ductord.db.pool import PROBES, open_pool
from ductord.dispatch.fairness import Filter
from ductord.dispatch.leases import Claim, Leases, Poll
from tests.conftest import Database
from tests.support.queue import Queue

pytestmark = pytest.mark.pages

WANTED = Filter(tenant_id=None, queues=("default",), actions=("noop:noop",))


class Measured:
    """Claims, and how many entries of the claim index each read, dead ones included."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self.pool = pool
        self.leases = Leases(pool, lease_ms=15_000, max_bytes=3 << 20)

    async def claim(self, limit: int = 100) -> tuple[Claim, int]:
        """One claim."""
        before = await self._entries()
        claim = await self.leases.claim(Poll(wanted=WANTED, worker_id="w", poll_id="p", limit=limit))
        return claim, await self._entries() - before

    async def _entries(self) -> int:
        await self.pool.execute("select pg_stat_force_next_flush()")
        count: int = await self.pool.fetchval(
            "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'eec_workflow_step_attempt_claim'"
        )
        return count


@pytest.fixture
async def measured(database: Database, queue: Queue) -> AsyncIterator[Measured]:
    """Claims over a connection of its own."""
    pool = await open_pool(database.dsn("dispatch"), "dispatch", max_size=1, settings=PROBES)
    yield Measured(pool)
    await pool.close()


async def test_pg_05_dead_entries_do_not_slow_a_claim(database: Database, measured: Measured, queue: Queue) -> None:
    """10,000 tasks pass while a snapshot is open: claims at the end read no more than a few at the begin did."""
    snapshot = await asyncpg.connect(database.owner)
    try:
        await snapshot.execute("begin isolation level repeatable read")
        await snapshot.fetchval("select count(*) from eec_workflow_run")
        first, reads = 0, []
        for n in range(50):
            await queue.put(200, due_in_ms=(n - 50) * 60_000, notify=False)
            for _ in range(2):
                claim, read = await measured.claim(100)
                assert len(claim.tasks) == 100
                reads.append(read)
            first = first or reads[0]
        # Of the last claims one may have been a look at everything; the others are what counts.
        assert min(reads[-6:]) < 5 * first
    finally:
        await snapshot.close()


async def test_what_came_to_light_late_is_found(measured: Measured, queue: Queue) -> None:
    """A tick may take long to commit: tasks that were due before the mark are found at the next full look, and then all of them at once."""
    await queue.put(10, due_in_ms=-1_000, notify=False)
    await measured.claim()
    await queue.put(30, due_in_ms=-3_600_000, notify=False)
    assert (await measured.claim(10))[0].tasks == []
    await queue.owner.execute(
        "create or replace function eec_now() returns timestamptz language sql stable as $$ select statement_timestamp() + interval '6 seconds' $$"
    )
    await measured.claim(10)
    taken = [len((await measured.claim(10))[0].tasks) for _ in range(3)]
    assert taken == [10, 10, 10]


async def test_what_was_given_back_is_found_at_once(measured: Measured, queue: Queue) -> None:
    """However old it is."""
    await queue.put(5, due_in_ms=-3_600_000, notify=False)
    claim, _ = await measured.claim()
    await queue.put(5, notify=False)
    await measured.claim(5)
    assert await measured.leases.give_back(claim.tasks) == 5
    assert {t.key.run_id for t in (await measured.claim())[0].tasks} == {t.key.run_id for t in claim.tasks}
