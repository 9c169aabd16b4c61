"""Laws of digests, on random arrivals, cancels, pauses and random turns of the coordinator (ruling E5)."""

import asyncio
import os
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ductord.engine.replay import replay
from ductord.model.control import Control
from ductord.model.enums import RunStatus, Verb
from tests.support.memory_world import MemoryWorld
from tests.support.recording import recording_of
from tests.support.rows import Rows
from tests.support.story import parse_definition

USERS = ("ann", "bob")
MODES: tuple[tuple[str, int], ...] = (
    ('"window_ms": 4000', 0),
    ('"window_ms": 4000, "max_events": 2', 2),
    ('"mode": "backoff", "window_ms": 4000, "look_back_ms": 3000', 0),
    ('"mode": "timed", "cron": "* * * * *"', 0),
)
MOVE = st.one_of(
    st.tuples(st.just("trigger"), st.integers(0, 1)),
    st.tuples(st.just("tick"), st.integers(0, 7)),
    st.tuples(st.just("tick"), st.integers(0, 7)),
    st.tuples(st.just("advance"), st.integers(1, 6)),
    st.tuples(st.sampled_from([Verb.CANCEL, Verb.PAUSE, Verb.RESUME, Verb.RESET_NODE]), st.integers(0, 7)),
)


_FACTOR = int(os.environ.get("DUCTOR_LAWS", "1"))


@settings(
    max_examples=100 * _FACTOR,
    derandomize=_FACTOR == 1,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(mode=st.sampled_from(MODES), moves=st.lists(MOVE, min_size=4, max_size=40))
def test_every_event_leaves_with_one_run_and_is_told_once(mode: tuple[str, int], moves: list[tuple[str, int]]) -> None:
    spelled, max_events = mode
    told: dict[str, str] = {}
    family = asyncio.run(_played(spelled, moves))
    for run_id, rows in family.items():
        for events in _outputs(rows):
            assert [e["payload"]["user"] for e in events] == [rows.start.payload["user"]] * len(events)
            assert events == sorted(events, key=lambda e: (e["arrived_at"], e["run_id"]))
            assert not max_events or len(events) <= max_events
            for event in events:
                assert event["run_id"] not in told, "told twice"
                told[event["run_id"]] = run_id
    for run_id, rows in family.items():
        assert rows.run is not None
        match rows.run.status:
            case RunStatus.COMPLETED:
                assert told[run_id] == run_id
            case RunStatus.MERGED:
                assert told[run_id] == rows.run.merged_into_run_id
            case status:
                # The cancel may have come when its event had gone: with itself, or with another while an operator held it.
                assert status is RunStatus.CANCELLED
        assert replay(recording_of(rows)) is None


async def _played(spelled: str, moves: list[tuple[str, int]]) -> dict[str, Rows]:
    """Play the moves, then let everybody go and all time pass; the rows of all runs."""
    world = MemoryWorld()
    line = f'step d type=digest digest={{"digest_key": "TRIGGER.payload.user", {spelled}}}'
    await world.define(parse_definition((line,), "laws"))
    for number, (what, which) in enumerate([("trigger", 0), *moves]):
        runs = list(world.family)
        if what == "trigger":
            await world.trigger({"user": USERS[which]}, "", "", "anonymous")
        elif what == "advance":
            await world.advance(which * 1_000)
        else:
            await world.turn(runs[which % len(runs)].start.run_id)
            if what == "tick":
                await world.tick()
            else:
                await _control(world, Verb(what), f"{what}-{number}")
    for number in range(3 * len(world.family)):
        for rows in world.family:
            await world.turn(rows.start.run_id)
            await world.tick()
            if rows.run is not None and rows.run.status is RunStatus.PAUSED:
                await _control(world, Verb.RESUME, f"last-{number}")
                await world.tick()
        await world.advance(60_000)
    return {rows.start.run_id: rows for rows in world.family}


async def _control(world: MemoryWorld, verb: Verb, request_id: str) -> None:
    step_ref = "d" if verb is Verb.RESET_NODE else ""
    control = Control(
        request_id=request_id, verb=verb, create_time=await world.now(), actor="operator", step_ref=step_ref
    )
    await world.control(control)


def _outputs(rows: Rows) -> list[list[dict[str, Any]]]:
    return [attempt.output["events"] for attempt in rows.attempts.values() if attempt.has_output]
