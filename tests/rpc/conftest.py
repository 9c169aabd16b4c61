"""What the tests of `rpc` share: a running echo process, and two authorities of certificates."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.rpc.echo import Echo, echoing
from tests.support.certificates import Authority


@pytest.fixture
async def echo() -> AsyncIterator[Echo]:
    """A process with the echo service, and a client of it."""
    async with echoing() as running:
        yield running


@pytest.fixture
def ours(tmp_path: Path) -> Authority:
    """The authority that everybody trusts."""
    return Authority(tmp_path / "ours")


@pytest.fixture
def foreign(tmp_path: Path) -> Authority:
    """One that nobody here trusts."""
    return Authority(tmp_path / "foreign")
