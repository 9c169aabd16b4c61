"""PG-05: one long snapshot elsewhere keeps dead index entries alive; the watch must not crawl through them, and must still find what came to light late."""

import asyncpg
import pytest

from ductord.coordinator.sweep import watch
from ductord.model.control import ControlBody
from ductord.model.enums import Verb
from ductord.model.specs import Timeouts
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.support.books import Books, chain

pytestmark = pytest.mark.pages

_SET = (
    "insert into eec_workflow_timer (tenant_id, run_id, kind, step_ref, due_time)"
    " select 't', gen_random_uuid(), 'wait', 's', eec_now() + $2 * interval '1 second' from generate_series(1, $1)"
)


async def _entries(connection: asyncpg.Connection) -> int:
    """How many entries of the timers' index have been read so far, dead ones included."""
    await connection.execute("select pg_stat_force_next_flush()")
    read: int = await connection.fetchval(
        "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'eec_workflow_timer_due'"
    )
    return read


async def test_pg_05_dead_timers_do_not_slow_the_watch(database: Database, books: Books, ticker: Ticker) -> None:
    """20,000 timers fire while a snapshot is open: a look afterwards reads no more than one before did, give or take a handful."""
    snapshot = await asyncpg.connect(database.owner)
    try:
        await snapshot.execute("begin isolation level repeatable read")
        await snapshot.fetchval("select count(*) from eec_workflow_run")
        since = (await watch(ticker.connection)).since
        await books.owner.execute(_SET, 20_000, -60)
        swept = await watch(ticker.connection)
        assert swept.timers == 20_000
        await books.owner.execute("delete from eec_workflow_timer")
        before = await _entries(ticker.connection)
        for _ in range(10):
            assert (await watch(ticker.connection, since)).timers == 0
        assert await _entries(ticker.connection) - before < 50
    finally:
        await snapshot.close()


async def test_what_came_to_light_late_is_found(books: Books, ticker: Ticker) -> None:
    """A tick may take long to commit: a timer that was due before the look's mark waits for a look at everything, one a few seconds old does not."""
    since = (await watch(ticker.connection)).since
    await books.owner.execute(_SET, 1, -5)
    await books.owner.execute(_SET, 1, -60)
    assert (await watch(ticker.connection, since)).timers == 1
    assert (await watch(ticker.connection, since)).timers == 0
    assert (await watch(ticker.connection)).timers == 1


async def test_a_timer_that_is_due_when_it_is_set_wakes_its_run(books: Books, ticker: Ticker) -> None:
    """A3: an operator gives a step a time that is over already; the next tick fires it, and no look has to find it."""
    run_id = await books.start(await books.publish(chain(1)))
    await ticker.drain()
    body = ControlBody(timeouts=Timeouts(total_timeout_ms=1), fields=("total_timeout_ms",))
    await books.control(run_id, Verb.UPDATE_NODE_TIMEOUT, step_ref="s0", body=body)
    await ticker.drain()
    fault = (await books.settled(run_id)).nodes[0].fault
    assert fault is not None
    assert fault.code == "total_timeout"
