"""What the tests of the gateway share: per test module, one process with the gateway and its peers; per test, peers that have forgotten everything."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.gateway.peers import Running, running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def process() -> AsyncIterator[Running]:
    """The gateway with its peers, ready."""
    async with running() as it:
        yield it


@pytest.fixture
def gateway(process: Running) -> Running:
    """The gateway with peers that have seen nothing and answer nothing in particular."""
    process.peers.answers.clear()
    process.peers.calls.clear()
    return process
