"""What WatchRun takes from events: every node that a transition changes is named by one of them, in every story (contract)."""

from pathlib import Path

import pytest

from ductord.engine.evolve import evolve
from ductord.model.run import Run
from ductord.reads.changes import named
from tests.scenarios.test_scenarios import STORIES
from tests.support.memory_world import MemoryWorld
from tests.support.recording import recording_of
from tests.support.story import play, read


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
async def test_every_node_that_changes_is_named(path: Path) -> None:
    world = MemoryWorld()
    await play(read(path), world)
    for rows in world.family:
        if (
            not rows.history or rows.start.reset_from_run_id
        ):  # a reset run begins with what another one had: its first event says so
            continue
        recording = recording_of(rows)
        manifest, run = recording.run.manifest, None
        for transition in recording.transitions:
            before: Run | None = run
            run = evolve(manifest, before, rows.start.run_id, transition.events, transition.at)
            told = named(transition.events)
            if told is None or before is None:
                continue
            changed = {
                step.ref for step, old, new in zip(manifest.steps, before.nodes, run.nodes, strict=True) if old != new
            }
            assert changed <= told, (transition.seq, changed - told)
