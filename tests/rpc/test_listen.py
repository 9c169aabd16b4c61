"""PG-02: LISTEN that dies, silently or not; nobody waits for it and nobody is kept from stopping."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest

from ductord.db.embedded import EmbeddedPostgres
from ductord.db.listen import Listener
from tests.conftest import Database
from tests.rpc.echo import until


class Hints:
    """Counts the hints and lets a test wait for more."""

    def __init__(self) -> None:
        self.count = 0
        self._more = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._more.set()

    async def beyond(self, count: int) -> None:
        async with asyncio.timeout(60):
            while self.count <= count:
                self._more.clear()
                await self._more.wait()


class Wire:
    """A TCP port in front of the server's socket that can turn into a black hole: open, and silent."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._open = asyncio.Event()
        self._open.set()
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Wire"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            self._open.set()
            for writer in self._writers:
                writer.close()
            server.close()

    def black_hole(self, *, on: bool) -> None:
        """Swallow everything, or let it pass again (on new connections)."""
        if on:
            self._open.clear()
        else:
            self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._open.is_set():
            self._writers.append(writer)
            return
        behind_reader, behind_writer = await asyncio.open_unix_connection(self._path)
        self._writers += [writer, behind_writer]
        await asyncio.gather(self._pump(reader, behind_writer), self._pump(behind_reader, writer))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                if not self._open.is_set():
                    return  # never read again: what is sent is swallowed
                sink.write(data)
        except ConnectionError:
            pass
        finally:
            if self._open.is_set():
                sink.close()


@pytest.fixture
async def writer(database: Database) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database.owner)
    yield connection
    await connection.close()


async def test_a_hint_arrives_at_its_own_callback(database: Database, writer: asyncpg.Connection) -> None:
    woken, tasks = Hints(), Hints()
    listener = Listener(database.dsn("coordinator"), {"ductor_wakeup": woken, "ductor_task": tasks})
    listener.start()
    await tasks.beyond(0)  # each reconnect is a hint: some may have been missed
    await writer.execute("select eec_notify('ductor_wakeup')")
    await woken.beyond(1)
    assert tasks.count == 1
    await listener.stop()


async def test_pg_02_a_killed_backend_is_replaced(database: Database, writer: asyncpg.Connection) -> None:
    hints = Hints()
    listener = Listener(database.dsn("coordinator"), {"ductor_wakeup": hints})
    listener.start()
    for count in range(3):
        await hints.beyond(count)
        await writer.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'ductor-listen' and datname = current_database()"
        )
    await hints.beyond(3)
    await writer.execute("notify ductor_wakeup")
    await hints.beyond(4)
    await listener.stop()


async def test_pg_02_a_black_hole_is_noticed_and_stop_does_not_wait_for_it(
    database: Database, writer: asyncpg.Connection
) -> None:
    hints = Hints()
    if not isinstance(database.server, EmbeddedPostgres):
        pytest.skip("the wire stands before a socket of this machine")
    async with Wire(f"{database.server.socket_dir}/.s.PGSQL.5432").running() as wire:
        dsn = f"postgresql://ductor_coordinator@127.0.0.1:{wire.port}/{database.name}?sslmode=disable"
        listener = Listener(dsn, {"ductor_wakeup": hints}, ping_s=0.1, answer_s=2)
        listener.start()
        await hints.beyond(0)
        wire.black_hole(on=True)
        await until(lambda: not listener.listening.is_set())
        wire.black_hole(on=False)
        await hints.beyond(1)
        await writer.execute("notify ductor_wakeup")
        await hints.beyond(2)
        wire.black_hole(on=True)
        async with asyncio.timeout(10):
            await listener.stop()


async def test_starting_needs_no_server(database: Database) -> None:
    hints = Hints()
    listener = Listener("postgresql://nobody@127.0.0.1:1/x", {"ductor_wakeup": hints})
    listener.start()
    await asyncio.sleep(0)
    async with asyncio.timeout(10):
        await listener.stop()
    assert hints.count == 0
