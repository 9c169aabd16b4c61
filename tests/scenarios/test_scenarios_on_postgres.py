"""The same stories on real Postgres, through the coordinator's ticks and dispatch's leases, with the same transcript to the letter."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from ductord.db.pool import open_pool
from tests.conftest import Cluster, Database
from tests.scenarios.test_scenarios import STORIES
from tests.support.postgres_world import PostgresWorld
from tests.support.story import play, read


@pytest.fixture(scope="module")
def shared_database(postgres: Cluster) -> Iterator[Database]:
    """One database for all stories, emptied before each: cloning one for every story would take longer than playing it."""
    with postgres.database() as database:
        yield database


@pytest.fixture
async def world(shared_database: Database) -> AsyncIterator[PostgresWorld]:
    """An empty world of rows."""
    database = shared_database
    owner = await asyncpg.connect(database.owner)
    coordinator = await asyncpg.connect(database.dsn("coordinator"))
    dispatch = await open_pool(database.dsn("dispatch"), "dispatch", max_size=1)
    signals = await open_pool(database.dsn("signals"), "signals", max_size=1)
    world = PostgresWorld(owner, coordinator, dispatch, signals)
    await world.open()
    yield world
    await dispatch.close()
    await signals.close()
    await coordinator.close()
    await owner.close()


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
async def test_story(path: Path, world: PostgresWorld) -> None:
    story = read(path)
    assert await play(story, world) == story.expected
