"""What the tests of the gateway share: one process with the gateway and its peers."""

from collections.abc import AsyncIterator

import pytest

from tests.gateway.peers import Running, running


@pytest.fixture
async def gateway() -> AsyncIterator[Running]:
    """The gateway with its peers, ready."""
    async with running() as it:
        yield it
