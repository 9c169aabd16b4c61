"""Fixtures of dispatch's tests: the queue by SQL, and a running dispatch process spoken to with nothing but the generated stubs."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import pytest

from ductord.dispatch.service import SERVICE
from ductord.rpc.channels import open_channel
from ductord.rpc.config import Settings
from ductord.rpc.host import hosting
from tests.conftest import Database
from tests.dispatch.client import Client
from tests.support.queue import Queue

Dispatching = Callable[..., AbstractAsyncContextManager[Client]]


@pytest.fixture
async def queue(database: Database) -> AsyncIterator[Queue]:
    """The attempts of a fresh database."""
    owner = await asyncpg.connect(database.owner)
    yield Queue(owner)
    await owner.close()


@pytest.fixture
def dispatching(database: Database) -> Dispatching:
    """`async with dispatching(lease_ms=…) as client`: a dispatch process with these settings."""

    @asynccontextmanager
    async def run(**given: Any) -> AsyncIterator[Client]:
        options = {"grpc_address": "127.0.0.1:0", "http_address": "off", "poll_ms": 200, **given}
        settings = Settings(dispatch_database_url=database.dsn("dispatch"), **options)
        async with hosting([SERVICE], settings) as host:
            channel = open_channel(host.grpc_address.reachable, settings)
            try:
                yield Client(channel, host)
            finally:
                await channel.close(None)

    return run


@pytest.fixture
async def client(dispatching: Dispatching, queue: Queue) -> AsyncIterator[Client]:
    """A client of a dispatch process with default settings."""
    async with dispatching() as running:
        yield running
