"""One suite of twenty processes on a durable Postgres for all tests of this folder. A test that replaces processes by others brings back what it found."""

import asyncio
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from ductord.db.embedded import EmbeddedPostgres
from ductord.db.migrate import migrate
from tests.rolling.caller import Caller
from tests.rolling.suite import Suite
from tests.support.recorder import Recorder, recording

OPTIONS = {
    "DUCTOR_SWEEP_MS": "2000",
    "DUCTOR_POLL_MS": "500",
    "DUCTOR_DRAIN_MS": "5000",
    "DUCTOR_LEASE_MS": "60000",  # a lease that is lost stalls its run for longer than a test waits
    "DUCTOR_HTTP_ALLOW_PRIVATE": "1",
}


@pytest.fixture(scope="package")
def running() -> Iterator[Suite]:
    """The suite, all of this release."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-rolling-"))
    folder.chmod(0o711)
    postgres = EmbeddedPostgres(folder / "pg", settings={"max_connections": "200"})
    suite = Suite(postgres, folder, OPTIONS)
    try:
        postgres.start()
        asyncio.run(migrate(postgres.dsn("ductor")))
        suite.start()
        yield suite
    finally:
        suite.stack.stop()
        postgres.stop(immediate=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
async def suite(running: Suite) -> AsyncIterator[Suite]:
    """The suite; afterwards every replica is there and of this release."""
    yield running
    await running.renew()


@pytest.fixture
async def caller(suite: Suite, request: pytest.FixtureRequest) -> AsyncIterator[Caller]:
    """A caller of a tenant of the test's own."""
    async with Caller(suite, re.sub(r"\W", "_", request.node.name)[:64]) as caller:
        yield caller


@pytest.fixture
async def owner(running: Suite) -> AsyncIterator[asyncpg.Connection]:
    """The database's owner."""
    connection = await asyncpg.connect(running.stack.postgres.dsn("ductor"))
    yield connection
    await connection.close()


@pytest.fixture
async def recorder() -> AsyncIterator[Recorder]:
    """The outside, which counts every effect by its key."""
    async with recording(Recorder()) as outside:
        yield outside
