"""One stack for the tests of this folder: two coordinators, two dispatchers, two workers, each a process."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from tests.support.api import Api
from tests.support.stack import Stack, running_stack


@pytest.fixture(scope="package")
def stack() -> Iterator[Stack]:
    """Everything twice (acceptance: two coordinators, two dispatchers, two workers at once)."""
    with running_stack(coordinators=2, dispatchers=2, workers=2, durable=False) as running:
        yield running


@pytest.fixture
async def api(stack: Stack) -> AsyncIterator[Api]:
    """A caller of tenant `stack`."""
    async with Api(stack["edges"].target, "stack") as caller:
        yield caller


@pytest.fixture
async def owner(stack: Stack) -> AsyncIterator[asyncpg.Connection]:
    """The database's owner."""
    connection = await asyncpg.connect(stack.postgres.dsn("ductor"))
    yield connection
    await connection.close()
