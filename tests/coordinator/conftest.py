"""Fixtures of the coordinator's tests: the books and a coordinator connection with a cache of its own."""

from collections.abc import AsyncIterator
from datetime import datetime

import asyncpg
import pytest

from ductord.coordinator.cache import Cache
from ductord.coordinator.commit import commit
from ductord.coordinator.decided import Decided
from ductord.coordinator.deciding import load_missing
from ductord.coordinator.load import load
from ductord.coordinator.loaded import Loaded
from ductord.coordinator.tick import Ticked, tick
from ductord.db.pool import PROBES, open_pool
from ductord.engine.decide import decide
from ductord.engine.limits import LIMITS
from ductord.model.decision import Decision, Missing
from tests.conftest import Database
from tests.coordinator.waiters import Publisher
from tests.coordinator.workers import Workers
from tests.support.books import Books


class Ticker:
    """One coordinator, ticked by hand."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self.connection = connection
        self.cache = Cache()
        self.limits = LIMITS
        self._now = datetime.min

    async def tick(self, batch_size: int = 500) -> Ticked:
        """One group tick."""
        return await tick(self.connection, self.cache, self.limits, batch_size)

    async def decide(self, tenant: str, run_id: str) -> Decided:
        """Load a run and decide, as a tick does that nobody keeps from it: without its lock, and without serving its wake-ups."""
        claimed = await self.connection.fetch(
            "select $1::text as tenant_id, $2::uuid::text as run_id, eec_now() as now", tenant, run_id
        )
        batch = await load(self.connection, self.cache, claimed)
        self._now = batch.now
        (loaded,) = batch.runs
        decision = self._decision(loaded)
        while isinstance(decision, Missing):
            await load_missing(self.connection, [(loaded, decision)])
            decision = self._decision(loaded)
        self.cache.forget(run_id)
        return Decided(loaded=loaded, decision=decision)

    def _decision(self, loaded: Loaded) -> Decision | Missing:
        assert loaded.compiled is not None
        manifest, programs = loaded.compiled.manifest, loaded.compiled.programs
        return decide(manifest, programs, loaded.known.run, loaded.inbox, self._now, self.limits)

    @property
    def now(self) -> datetime:
        """The time of what was decided last."""
        return self._now

    async def commit(self, *decided: Decided) -> set[str]:
        """Commit what was decided last; the runs that lost the race."""
        async with self.connection.transaction():
            return await commit(self.connection, list(decided), self._now, [])

    async def drain(self) -> Ticked:
        """Tick until nothing is due; the sum."""
        total = Ticked()
        while (ticked := await self.tick()).claimed:
            total.add(ticked)
        return total


@pytest.fixture
async def books(database: Database) -> AsyncIterator[Books]:
    """The books of a fresh database."""
    owner = await asyncpg.connect(database.owner)
    yield Books(owner)
    await owner.close()


@pytest.fixture
async def other_books(database: Database) -> AsyncIterator[Books]:
    """The same books over a connection of their own: whoever writes at the same time."""
    owner = await asyncpg.connect(database.owner)
    yield Books(owner)
    await owner.close()


@pytest.fixture
async def ticker(database: Database) -> AsyncIterator[Ticker]:
    """A coordinator on the same database, logged in as its own role."""
    connection = await asyncpg.connect(database.dsn("coordinator"))
    yield Ticker(connection)
    await connection.close()


@pytest.fixture
async def other_ticker(database: Database) -> AsyncIterator[Ticker]:
    """A second coordinator process, as far as the database can tell."""
    connection = await asyncpg.connect(database.dsn("coordinator"))
    yield Ticker(connection)
    await connection.close()


@pytest.fixture
async def workers(database: Database) -> AsyncIterator[Workers]:
    """Workers behind a dispatch of the same database."""
    pool = await open_pool(database.dsn("dispatch"), "dispatch", max_size=4, settings=PROBES)
    yield Workers(pool)
    await pool.close()


@pytest.fixture
async def publisher(database: Database) -> AsyncIterator[Publisher]:
    """The real publishing."""
    pool = await open_pool(database.dsn("signals"), "signals", max_size=2)
    yield Publisher(pool)
    await pool.close()
