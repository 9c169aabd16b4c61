"""Runs of before, decided by today's engine: a change of the engine that would change history shows up here as a difference.

The files of this folder are recordings of runs, as `ductor run export` writes them or from a story. `pytest tests/replays --rewrite` records the stories of
STORIES anew; a recording that changes by it is a behaviour that has changed, for runs that are under way too: read the diff, and see that the manifest's
`engine_level` says so where it must. To record more, add a story to the list and rewrite, or put the export of a real run beside the others.
"""

from datetime import timedelta
from pathlib import Path
from typing import TypeGuard

import msgspec
import pytest
from msgspec.structs import replace

from ductord.engine.replay import ReplayError, replay
from ductord.model.enums import Outcome
from ductord.model.events import AttemptEnded, Event, NodeEnded
from ductord.model.recording import FORMAT, Recording, decode, encode
from tests.support.memory_world import MemoryWorld
from tests.support.recording import recording_of
from tests.support.story import play, read

HERE = Path(__file__).parent
SCENARIOS = sorted((HERE.parent / "scenarios").glob("*.txt"))

STORIES = (
    "choice",
    "edge_done",
    "edge_true_false",
    "checkpoint_skips",
    "fail_cleanup",
    "fail_drain_backoff",
    "fail_fast_grace",
    "fail_run_all",
    "join_any",
    "lost_too_often",
    "output_expression",
    "retry_jitter",
    "retry_worker_says",
    "templates",
    "timeout_run_during_grace",
    "timeout_total_in_backoff",
    "try_catch",
    "control_cancel_drain",
    "control_continue_by_itself",
    "control_continue_controls_meanwhile",
    "control_pause_failure",
    "control_pause_total_timeout",
    "control_reset_node_skipped_downstream",
    "control_retry_policy_in_backoff",
    "control_terminate_stopping",
    "control_timeouts_total",
    "redrive_after_timeout",
    "redrive_checkpoint",
    "redrive_compensated",
    "redrive_judges_again_upstream",
    "reset_of_reset_run",
    "reset_preserve_routing",
    "reset_takes_inverses_over",
    "saga_continue_as_new",
    "saga_late_success_appended",
    "saga_outcome_unknown_revoked",
    "saga_repair",
    "saga_two_effects",
    "saga_undo_fails_manual_repair",
    "saga_undo_late_in_retry",
    "approval_continue",
    "approval_first_wins",
    "approval_kept",
    "approval_pause",
    "approval_required",
    "approval_reset",
    "event_set_all_required",
    "event_set_pause",
    "event_set_until_timeout",
    "human_loop_resolved",
    "human_loop_timeout_continue",
    "digest_backoff",
    "digest_promotion",
    "race_pause",
    "race_redrive_again",
    "race_reset",
    "race_waits",
    "wait_event_kept",
    "wait_signal_early",
    "dataflow_map",
    "scatter_interval_concurrency",
    "scatter_many_ticks",
    "scatter_redrive_again",
    "scatter_retry_policy",
    "scatter_saga_late",
    "scatter_too_many_grace",
    "gather_too_large",
    "for_each_redrive",
    "scatter_child_redrive",
    "scatter_child_stopped",
    "scatter_child_tolerated",
    "subworkflow_checkpoint",
    "subworkflow_timeout_redrive",
    "child_continued",
    "child_depth",
    "child_redrive_tree",
    "child_reset",
)
OTHER_SETTINGS = ("scatter_redrive_of_gather",)
"""Stories that change the engine's settings on the way: a recording has those that are in force when it is made."""


@pytest.mark.parametrize("path", sorted(HERE.glob("*.jsonl")), ids=lambda path: path.stem)
def test_a_recorded_run_comes_out_as_it_did(path: Path) -> None:
    assert replay(decode(path.read_bytes())) is None


async def test_the_recordings_are_there(request: pytest.FixtureRequest) -> None:
    for name in STORIES:
        for number, recording in enumerate(await _recordings(HERE.parent / "scenarios" / f"{name}.txt"), start=1):
            path = HERE / f"{name}.{number}.jsonl"
            if request.config.getoption("--rewrite"):
                path.write_text(encode(recording))
            assert path.exists(), f"record it: pytest {HERE.name} --rewrite"


@pytest.mark.parametrize("path", [p for p in SCENARIOS if p.stem not in OTHER_SETTINGS], ids=lambda path: path.stem)
async def test_every_story_replays_without_difference(path: Path) -> None:
    """What a recording holds is enough to decide every transition again, whatever happened to the run."""
    for recording in await _recordings(path):
        assert replay(decode(encode(recording))) is None


async def test_a_change_is_named() -> None:
    """The first transition that comes out otherwise, and both versions of it."""
    recording = (await _recordings(HERE.parent / "scenarios" / "try_catch.txt"))[0]
    number, told = next(
        (number, t) for number, t in enumerate(recording.transitions) if any(isinstance(e, NodeEnded) for e in t.events)
    )
    doctored = replace(told, events=told.events[:-1])
    transitions = (*recording.transitions[:number], doctored, *recording.transitions[number + 1 :])
    difference = replay(replace(recording, transitions=transitions))
    assert difference is not None
    assert (difference.seq, difference.expected, difference.found) == (told.seq, doctored.events, told.events)


async def test_a_lease_while_the_tick_was_loading() -> None:
    """C7: the clock of a tick is read first, and a task that is leased after that is still seen as taken. Its events say so, not the times."""
    recording = (await _recordings(HERE.parent / "scenarios" / "saga_outcome_unknown_revoked.txt"))[0]
    (taken,) = {(e.step_ref, e.attempt, t.at) for t in recording.transitions for e in t.events if _taken(e)}
    attempts = tuple(
        replace(a, start_time=taken[2] + timedelta(milliseconds=1)) if (a.step_ref, a.attempt) == taken[:2] else a
        for a in recording.attempts
    )
    assert attempts != recording.attempts
    assert replay(replace(recording, attempts=attempts)) is None


def _taken(event: Event) -> TypeGuard[AttemptEnded]:
    """Whether the tick ended an attempt that a worker had, by itself."""
    return isinstance(event, AttemptEnded) and event.started and event.outcome is Outcome.REVOKED


async def _recordings(path: Path) -> list[Recording]:
    world = MemoryWorld()
    await play(read(path), world)
    return [recording_of(rows) for rows in world.family if rows.history]


async def test_a_recording_with_a_gap_is_no_recording() -> None:
    """What is missing is named, and never taken for a difference of the engine."""
    recording = (await _recordings(HERE.parent / "scenarios" / "try_catch.txt"))[0]
    with pytest.raises(ReplayError, match="transition 2"):
        replay(replace(recording, transitions=(recording.transitions[0], *recording.transitions[2:])))
    with pytest.raises(ReplayError, match="attempt 1 of a"):
        replay(replace(recording, attempts=recording.attempts[1:]))


async def test_what_is_no_recording_is_refused() -> None:
    recording = (await _recordings(HERE.parent / "scenarios" / "try_catch.txt"))[0]
    newer = replace(recording, run=replace(recording.run, format=FORMAT + 1))
    for text in ("", "{}", encode(recording).split("\n", 1)[1], encode(recording) * 2, encode(newer)):
        with pytest.raises(msgspec.ValidationError):
            decode(text)
