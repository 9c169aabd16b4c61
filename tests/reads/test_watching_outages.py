"""WatchRun where something is amiss: many streams, callers that leave, requests that cannot be met, outages, a process that stops (TN-01, PG-01)."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.db.embedded import EmbeddedPostgres
from ductord.db.ids import new_id
from ductord.db.migrate import migrate
from ductord.reads.service import SERVICE as READS
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.reads.watches import HEARTBEAT, META, are_told, goes_on, reason_of, watched
from tests.support.books import Books, chain
from tests.support.edges import Catalogue, Edges, serving


async def test_many_streams_hold_no_connection(
    database: Database, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """PG-01: fifty streams that wait and a pool of one: other calls are served, and all hear of the end at once."""
    async with serving(database, [TRIGGER, READS], pool_max_size=1) as edges:
        run_id = (await edges.start(await catalogue.published(chain(1)))).run_id
        await ticker.drain()
        streams = [watched(edges, run_id) for _ in range(50)]
        for stream in streams:
            await stream.next()
        for _ in range(20):
            assert await edges.reads.GetRun(reads.GetRunRequest(run_id=run_id), metadata=META, timeout=60)
        assert "ductor_watches 50.0" in edges.host.metrics.exposition().decode()
        await goes_on(ticker, books)
        for stream in streams:
            assert (await stream.next()).ended
            await stream.over()
        await _gone(edges)


async def _gone(edges: Edges) -> None:
    async with asyncio.timeout(60):
        while "ductor_watches 0.0" not in edges.host.metrics.exposition().decode():  # noqa: ASYNC110  # what a call that is over leaves
            await asyncio.sleep(0.01)


async def test_a_caller_that_leaves_leaves_nothing_behind(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    run_id = (await edges.start(await catalogue.published(chain(1)))).run_id
    await ticker.drain()
    streams = [watched(edges, run_id) for _ in range(5)]
    for stream in streams:
        await stream.next()
        stream.call.cancel()
    await _gone(edges)
    await goes_on(ticker, books)
    assert await books.status(run_id) == "completed"


async def test_without_hints_and_with_lost_connections_pg_01(
    database: Database, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """PG-01, PG-02: the server ends every connection of the service again and again, hints are off: the stream goes on, told once each."""
    async with serving(database, [TRIGGER, READS], notify=False) as edges:
        run_id = (await edges.start(await catalogue.published(chain(4)))).run_id
        watch = watched(edges, run_id)
        messages = [await watch.next()]
        await ticker.drain()
        for _ in range(4):
            await owner.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'ductor_reads' and datname = current_database()"
            )
            await goes_on(ticker, books)
        messages += await watch.until(lambda message: message.ended)
        are_told(messages[1:], 0)
        await watch.over()


async def test_tn01_and_bad_requests(edges: Edges, catalogue: Catalogue) -> None:
    """TN-01: a foreign run is none; what is asked for is judged before the first message."""
    run_id = (await edges.start(await catalogue.published())).run_id
    for watch in (watched(edges, run_id, tenant="other"), watched(edges, new_id()), watched(edges, "nonsense")):
        assert await reason_of(watch) == "RUN_NOT_FOUND"
    assert await reason_of(watched(edges, "")) == "FIELD_REQUIRED"
    bad: list[dict[str, Any]] = [
        {"after_seq": -1}, {"min_interval_ms": 19}, {"min_interval_ms": 60_001}, {"heartbeat_ms": -1},
    ]  # fmt: skip
    for fields in bad:
        assert await reason_of(watched(edges, run_id, **fields)) == "FIELD_INVALID"


async def test_more_streams_than_a_process_takes(database: Database, catalogue: Catalogue) -> None:
    """The other half of the calls that it takes is left to calls that end."""
    async with serving(database, [TRIGGER, READS], max_calls=4) as edges:
        run_id = (await edges.start(await catalogue.published())).run_id
        streams = [watched(edges, run_id) for _ in range(2)]
        for stream in streams:
            await stream.next()
        assert await reason_of(watched(edges, run_id)) == "OVERLOADED"
        assert await edges.reads.GetRun(reads.GetRunRequest(run_id=run_id), metadata=META, timeout=60)


async def test_a_process_that_stops_says_so(database: Database, catalogue: Catalogue) -> None:
    """KB-01: streams end with the code of a call that may be repeated, and do not hold up the stop."""
    async with serving(database, [TRIGGER, READS]) as edges:
        run_id = (await edges.start(await catalogue.published())).run_id
        watch = watched(edges, run_id)
        await watch.next()
        reason = asyncio.create_task(reason_of(watch))
        async with asyncio.timeout(60):
            await edges.host._stop()
            assert await reason == "SERVICE_DRAINING"


@pytest.fixture
def restartable() -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, to be stopped and started."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-test-"))
    folder.chmod(0o711)
    server = EmbeddedPostgres(folder)  # with fsync: what it said it has written outlives it
    server.start()
    try:
        yield server
    finally:
        server.stop(immediate=True)
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_database_that_restarts_pg_01(restartable: EmbeddedPostgres) -> None:
    """PG-01: the server is stopped hard and started again: the stream beats on, and goes on where it was."""
    restartable.sql("create database watched")
    owner_dsn = restartable.dsn("watched")
    await migrate(owner_dsn)
    database = Database(server=restartable, name="watched")
    async with serving(database, [TRIGGER, READS]) as edges:
        async with _connected(owner_dsn) as owner, _connected(database.dsn("coordinator")) as connection:
            run_id = (await edges.start(await Catalogue(owner).published(chain(1)))).run_id
            await Ticker(connection).drain()
        watch = watched(edges, run_id, heartbeat_ms=100)
        seq = (await watch.next()).seq
        await asyncio.to_thread(restartable.stop, immediate=True)
        for _ in range(3):
            assert (await watch.next(beats=True)).kind == HEARTBEAT
        await asyncio.to_thread(restartable.start)
        async with _connected(owner_dsn) as owner, _connected(database.dsn("coordinator")) as connection:
            await goes_on(Ticker(connection), Books(owner))
        told = await watch.until(lambda message: message.ended)
        are_told(told, seq)
        await watch.over()
