"""The same stories on real Postgres, through the coordinator's ticks and dispatch's leases, with the same transcript to the letter; and what is exported of
their runs replays without a difference.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from ductord.engine.replay import replay
from tests.conftest import Cluster, Database
from tests.replays.test_replays import OTHER_SETTINGS
from tests.scenarios.test_scenarios import STORIES
from tests.support.postgres_world import Logins, PostgresWorld, logged_in, opened
from tests.support.story import play, read

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def shared_database(postgres: Cluster) -> Iterator[Database]:
    """One database for all stories, emptied before each: cloning one for every story would take longer than playing it."""
    with postgres.database() as database:
        yield database


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def logins(shared_database: Database) -> AsyncIterator[Logins]:
    """Everybody's connections to it."""
    async with logged_in(shared_database) as logins:
        yield logins


@pytest_asyncio.fixture(loop_scope="module")
async def world(logins: Logins) -> PostgresWorld:
    """An empty world of rows."""
    return await opened(logins)


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
async def test_story(path: Path, world: PostgresWorld) -> None:
    story = read(path)
    assert await play(story, world) == story.expected
    for recording in await world.recordings():
        # What was said in one instant belongs to one transition: so it is with clocks that go on, and not with a story's, which stands still.
        told = recording.signals or recording.receipts
        if not told and path.stem not in OTHER_SETTINGS:
            assert replay(recording) is None, recording.run.start.run_id
