"""Every story of this folder, played in memory. `pytest tests/scenarios --rewrite` writes the transcripts anew: read the diff before you keep it."""

from pathlib import Path

import pytest

from tests.support.memory_world import MemoryWorld
from tests.support.story import play, read

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
async def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    story = read(path)
    played = await play(story, MemoryWorld())
    if request.config.getoption("--rewrite"):
        path.write_text(story.text(played))
    else:
        assert played == story.expected
