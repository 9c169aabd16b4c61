"""What the tests of the run control service share: the service over real rows, an operator who calls it, and runs put into any state by hand."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from ductord.run_control.service import SERVICE
from tests.conftest import Database
from tests.run_control.operator import Operator
from tests.run_control.standing import Stands
from tests.support.books import Books
from tests.support.edges import Edges, serving
from tests.trigger.conftest import books, owner, ticker

__all__ = ["books", "edges", "operator", "owner", "stands", "ticker"]


@pytest.fixture
async def edges(database: Database) -> AsyncIterator[Edges]:
    """The run control service with a pool of two, and no coordinator anywhere."""
    async with serving(database, [SERVICE], pool_max_size=2) as running:
        yield running


@pytest.fixture
def operator(edges: Edges) -> Operator:
    """Somebody who operates runs of the tenant of the books."""
    return Operator(edges)


@pytest.fixture
def stands(owner: asyncpg.Connection, books: Books) -> Stands:
    """Runs in any state."""
    return Stands(owner, books)
