"""What the tests of the reads service share: trigger and reads in one process, a coordinator ticked by hand, workers played by hand."""

from collections.abc import AsyncIterator

import pytest

from ductord.reads.service import SERVICE as READS
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.support.edges import Edges, serving
from tests.trigger.conftest import books, catalogue, owner, ticker

__all__ = ["books", "catalogue", "edges", "owner", "ticker"]


@pytest.fixture
async def edges(database: Database) -> AsyncIterator[Edges]:
    """Trigger and reads."""
    async with serving(database, [TRIGGER, READS]) as running:
        yield running
