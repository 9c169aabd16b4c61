"""What the tests of keys share: one suite for all of them, in which each has a tenant of its own, and calls that most of them make."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ductord.db.ids import new_id
from tests.access.world import World, suite
from tests.conftest import Cluster


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def world(postgres: Cluster) -> AsyncIterator[World]:
    """The suite. What it has looked up it keeps for 100 ms."""
    with postgres.database() as database:
        async with suite(database) as running:
            yield running


@pytest.fixture
def tenant() -> str:
    """A tenant that nobody has heard of."""
    return f"t{new_id()}"
