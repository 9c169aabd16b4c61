"""Fixtures of the coordinator's tests: the books and a coordinator connection with a cache of its own."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from ductord.coordinator.cache import Cache
from ductord.coordinator.tick import Ticked, tick
from ductord.engine.limits import LIMITS
from tests.conftest import Database
from tests.support.books import Books


class Ticker:
    """One coordinator, ticked by hand."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection
        self.cache = Cache()

    async def tick(self, batch_size: int = 500) -> Ticked:
        """One group tick."""
        return await tick(self.connection, self.cache, LIMITS, batch_size)

    async def drain(self) -> Ticked:
        """Tick until nothing is due; the sum."""
        total = Ticked()
        while (ticked := await self.tick()).claimed:
            total.add(ticked)
        return total


@pytest.fixture
async def books(database: Database) -> AsyncIterator[Books]:
    """The books of a fresh database."""
    owner = await asyncpg.connect(database.owner)
    yield Books(owner)
    await owner.close()


@pytest.fixture
async def ticker(database: Database) -> AsyncIterator[Ticker]:
    """A coordinator on the same database, logged in as its own role."""
    connection = await asyncpg.connect(database.dsn("coordinator"))
    yield Ticker(connection)
    await connection.close()


@pytest.fixture
async def other_ticker(database: Database) -> AsyncIterator[Ticker]:
    """A second coordinator process, as far as the database can tell."""
    connection = await asyncpg.connect(database.dsn("coordinator"))
    yield Ticker(connection)
    await connection.close()
