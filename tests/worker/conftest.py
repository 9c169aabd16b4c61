"""Fixtures of the worker's tests: dispatch and worker in one process over a real queue, where the coordinator is a test that puts rows."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import pytest

from ductord.dispatch.service import SERVICE as DISPATCH
from ductord.rpc.config import Settings
from ductord.rpc.host import Host, hosting
from ductord.worker.context import Action
from ductord.worker.service import service
from tests.conftest import Database
from tests.support.queue import Queue

Working = Callable[..., AbstractAsyncContextManager[Host]]

FAST: dict[str, Any] = {
    "grpc_address": "127.0.0.1:0",
    "http_address": "off",
    "poll_ms": 100,
    "heartbeat_ms": 100,
    "lease_ms": 3_000,
    "drain_ms": 2_000,
}


@pytest.fixture
async def queue(database: Database) -> AsyncIterator[Queue]:
    """The attempts of a fresh database."""
    owner = await asyncpg.connect(database.owner)
    yield Queue(owner)
    await owner.close()


@pytest.fixture
def working(database: Database) -> Working:
    """`async with working({"t:x": action}, worker_slots=…)`: dispatch and a worker that also knows these actions."""

    @asynccontextmanager
    async def run(extra: Mapping[str, Action] | None = None, **given: Any) -> AsyncIterator[Host]:
        settings = Settings(dispatch_database_url=database.dsn("dispatch"), **{**FAST, **given})
        async with hosting([DISPATCH, service(extra)], settings) as host:
            yield host

    return run


@pytest.fixture
def dispatching(database: Database) -> Working:
    """`async with dispatching()`: dispatch alone, for a worker that runs elsewhere."""

    @asynccontextmanager
    async def run(**given: Any) -> AsyncIterator[Host]:
        settings = Settings(dispatch_database_url=database.dsn("dispatch"), **{**FAST, **given})
        async with hosting([DISPATCH], settings) as host:
            yield host

    return run
