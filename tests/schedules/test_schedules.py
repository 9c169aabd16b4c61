"""Every story of this folder, played in memory. `--rewrite` writes the transcripts anew: read the diff before you keep it.

The stories named after field cases have their very inputs: TC-01, TC-02, TC-04, TC-05, TC-06, TC-08.
"""

from pathlib import Path

import pytest

from tests.schedules.memory import MemorySchedule
from tests.schedules.playing import play
from tests.support.story import read

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
async def test_story(path: Path, request: pytest.FixtureRequest) -> None:
    story = read(path)
    played = await play(story, MemorySchedule())
    if request.config.getoption("--rewrite"):
        path.write_text(story.text(played))
    else:
        assert played == story.expected
