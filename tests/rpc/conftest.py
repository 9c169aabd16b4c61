"""What the tests of `rpc` share: a running echo process."""

from collections.abc import AsyncIterator

import pytest

from tests.rpc.echo import Echo, echoing


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    """A process with the echo service, and a client of it."""
    async with echoing() as running:
        yield running
