"""What the tests of the definition service share: the real service on loopback over a real database, called through generated stubs."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from ductord.definition.service import SERVICE
from tests.conftest import Database
from tests.definition.client import Definitions
from tests.support.edges import serving


@pytest.fixture
async def owner(database: Database) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the schema's owner, who sees all tenants."""
    connection = await asyncpg.connect(database.owner)
    yield connection
    await connection.close()


@pytest.fixture
async def definitions(database: Database) -> AsyncIterator[Definitions]:
    """The service, as tenant `acme` calls it."""
    async with serving(database, [SERVICE]) as running:
        yield Definitions(running.channel)
