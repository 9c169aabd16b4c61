"""The same stories on real Postgres, through the coordinator's ticks and dispatch's leases, with the same transcript to the letter; and what is exported of
their runs replays without a difference.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from ductord.engine.replay import replay
from tests.conftest import Cluster, Database
from tests.replays.test_replays import OTHER_SETTINGS
from tests.scenarios.test_scenarios import STORIES
from tests.support.postgres_world import PostgresWorld, opened
from tests.support.story import play, read


@pytest.fixture(scope="module")
def shared_database(postgres: Cluster) -> Iterator[Database]:
    """One database for all stories, emptied before each: cloning one for every story would take longer than playing it."""
    with postgres.database() as database:
        yield database


@pytest.fixture
async def world(shared_database: Database) -> AsyncIterator[PostgresWorld]:
    """An empty world of rows."""
    async with opened(shared_database) as world:
        yield world


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
async def test_story(path: Path, world: PostgresWorld) -> None:
    story = read(path)
    assert await play(story, world) == story.expected
    for recording in await world.recordings():
        # What was said in one instant belongs to one transition: so it is with clocks that go on, and not with a story's, which stands still.
        told = recording.signals or recording.receipts
        if not told and path.stem not in OTHER_SETTINGS:
            assert replay(recording) is None, recording.run.start.run_id
