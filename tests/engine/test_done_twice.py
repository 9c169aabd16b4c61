"""An inverse that turns out to have acted twice is told in the audit trail (rulings A6, C7, C8)."""

from tests.scenarios.test_scenarios import STORIES
from tests.support.memory_world import MemoryWorld
from tests.support.story import play, read


async def test_an_inverse_that_acted_under_two_keys_is_told() -> None:
    """The worker of the first attempt is heard when a later one, under another key, has done it: nothing is undone, one line says so."""
    world = MemoryWorld()
    path = next(path for path in STORIES if path.stem == "saga_undo_done_twice")
    await play(read(path), world)
    (rows,) = world.family
    told = {key: line.message for key, line in rows.audit.items()}
    assert told == {"done_twice:0:1": "attempt 1 of compensation of a succeeded after all, beside attempt 3"}
