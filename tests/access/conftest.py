"""What the tests of keys share: all services that serve RPCs, in this event loop, with authentication on."""

from collections.abc import AsyncIterator

import pytest

from ductord.admin.service import SERVICE as ADMIN
from ductord.reads.service import SERVICE as READS
from ductord.run_control.service import SERVICE as RUN_CONTROL
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.support.edges import Edges, serving


@pytest.fixture
async def edges(database: Database) -> AsyncIterator[Edges]:
    """Admin, trigger, run control and reads. What was looked up is kept for 100 ms."""
    services = [ADMIN, TRIGGER, RUN_CONTROL, READS]
    async with serving(database, services, auth="keys", key_cache_ms=100, pool_max_size=2) as running:
        yield running
