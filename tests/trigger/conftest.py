"""What the tests of the trigger service share."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from ductord.trigger.service import SERVICE
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.support.books import Books
from tests.support.edges import Catalogue, Edges, serving
from tests.trigger.operated import NOON, Operator


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
async def edges(database: Database) -> AsyncIterator[Edges]:
    """The trigger service with a pool of two."""
    async with serving(database, [SERVICE], pool_max_size=2) as running:
        yield running


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
async def operator(owner: asyncpg.Connection, edges: Edges) -> Operator:
    """Who operates schedules, at half a minute past noon."""
    operator = Operator(owner, edges)
    await operator.clock(NOON)
    return operator
