"""What the tests of the signals service share: the service over real rows, somebody outside who calls it, and runs that wait, put there by hand."""

from collections.abc import AsyncIterator

import asyncpg
import pytest

from ductord.signals.service import SERVICE
from tests.conftest import Database
from tests.signals.live import Live
from tests.signals.sender import Sender
from tests.signals.standing import Desk
from tests.support.books import Books
from tests.support.edges import Edges, serving
from tests.trigger.conftest import books, owner, ticker

__all__ = ["books", "desk", "edges", "live", "owner", "sender", "ticker"]


@pytest.fixture
async def edges(database: Database) -> AsyncIterator[Edges]:
    """The signals service with a pool of four, and no coordinator anywhere."""
    async with serving(database, [SERVICE], pool_max_size=4) as running:
        yield running


@pytest.fixture
def sender(edges: Edges) -> Sender:
    """Somebody outside, who speaks for the tenant of the books."""
    return Sender(edges)


@pytest.fixture
def desk(owner: asyncpg.Connection, books: Books) -> Desk:
    """Runs that wait."""
    return Desk(owner, books)


@pytest.fixture
def live(owner: asyncpg.Connection) -> Live:
    """Definitions with event triggers."""
    return Live(owner)
