"""The same stories on real Postgres, through the coordinator's watch and ScheduleService, with the same transcript to the letter."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Cluster, Database
from tests.schedules.playing import play
from tests.schedules.rows import opened
from tests.schedules.test_schedules import STORIES
from tests.support.story import read


@pytest.fixture(scope="module")
def shared_database(postgres: Cluster) -> Iterator[Database]:
    """One database for all stories, emptied before each."""
    with postgres.database() as database:
        yield database


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
async def test_story(path: Path, shared_database: Database) -> None:
    story = read(path)
    async with opened(shared_database) as world:
        assert await play(story, world) == story.expected
        await world.whole()
