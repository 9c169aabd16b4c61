"""What the tests of the reads service share: trigger and reads in one process, a coordinator ticked by hand, workers played by hand."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from ductord.reads.service import SERVICE as READS
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.support.books import Books
from tests.support.edges import Catalogue, Edges, serving


@pytest.fixture
async def owner(database: Database) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the schema's owner."""
    connection = await asyncpg.connect(database.owner)
    yield connection
    await connection.close()


@pytest.fixture
async def catalogue(owner: asyncpg.Connection) -> Catalogue:
    """Where definitions are published."""
    return Catalogue(owner)


@pytest.fixture
async def books(owner: asyncpg.Connection) -> Books:
    """Dispatch and workers, played by hand."""
    return Books(owner)


@pytest.fixture
async def ticker(database: Database) -> AsyncIterator[Ticker]:
    """A coordinator, ticked by hand."""
    connection = await asyncpg.connect(database.dsn("coordinator"))
    yield Ticker(connection)
    await connection.close()


@pytest.fixture
async def edges(database: Database) -> AsyncIterator[Edges]:
    """Trigger and reads."""
    async with serving(database, [TRIGGER, READS]) as running:
        yield running
