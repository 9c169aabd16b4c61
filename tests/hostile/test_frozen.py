"""A coordinator that is frozen in the middle of a tick: a paused machine, a cut cable, SIGSTOP (PG-01, IL-06)."""

import asyncio

import asyncpg
import pytest

from ductord.coordinator.starts import SQL
from ductord.db.pool import open_pool
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.support.books import Books, chain


async def test_what_a_frozen_coordinator_had_claimed_goes_on_elsewhere(
    database: Database, books: Books, ticker: Ticker
) -> None:
    """The claim is a lock to the end of a transaction that never ends: the run stood still for as long as the server believed in its client."""
    run_id = await books.start(await books.publish(chain(1)))
    soon = {"idle_in_transaction_session_timeout": "3s"}
    pool = await open_pool(database.dsn("coordinator"), "coordinator", max_size=1, settings=soon)
    frozen = await pool.acquire()
    await frozen.execute("begin")
    assert len(await frozen.fetch(SQL["claim_runs"], 500)) == 1
    assert (await ticker.tick()).claimed == 0
    async with asyncio.timeout(60):
        while not (await ticker.tick()).claimed:  # noqa: ASYNC110  # a lock that is given up tells nobody
            await asyncio.sleep(0.02)
    assert await books.status(run_id) == "running"
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await frozen.fetch(SQL["claim_runs"], 500)
    pool.terminate()


@pytest.mark.parametrize(
    "role", ["definition", "trigger", "run_control", "signals", "reads", "admin", "coordinator", "dispatch"]
)
async def test_every_service_lets_go_in_time(database: Database, role: str) -> None:
    """The server's default is never."""
    pool = await open_pool(database.dsn(role), role, max_size=1)
    assert await pool.fetchval("select current_setting('idle_in_transaction_session_timeout')") == "20s"
    await pool.close()
