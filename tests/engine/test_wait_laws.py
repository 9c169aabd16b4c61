"""The laws of waiting, on random graphs under random words from outside and random controls (rulings A3, C2, C3, C6, C10, E1 to E4, G7; TC-10).

Whatever is said, whenever, and whatever operators do: a run has one end, nothing keeps waiting behind it, every signal and every receipt has been dealt with,
no wait is over before its time, and what was decided is decided again as it was.
"""

import os
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ductord.engine.compile import compile_definition
from ductord.engine.expressions import programs_for
from ductord.engine.moments import time_zone
from ductord.engine.replay import replay
from ductord.model.enums import CompensationStatus, Outcome, RunStatus, Verb
from ductord.model.events import NodeEnded, NodeParked
from ductord.model.manifest import Manifest
from ductord.model.specs import Timeouts
from tests.engine.families import Family
from tests.engine.graphs import Fate
from tests.engine.waits import answer, speak, waits
from tests.support.recording import recording_of
from tests.support.rows import Rows
from tests.support.starts import start_of
from tests.support.world import START

_FACTOR = int(os.environ.get("DUCTOR_LAWS", "1"))
_MAX_RUNS = 3
_VERBS = (
    Verb.PAUSE,
    Verb.RESUME,
    Verb.PAUSE_NODE,
    Verb.RESUME_NODE,
    Verb.RESET_NODE,
    Verb.RESET_NODE,
    Verb.CANCEL,
    Verb.TERMINATE,
    Verb.REDRIVE,
    Verb.REDRIVE,
    Verb.CONTINUE_AS_NEW,
    Verb.RESET,
    Verb.UPDATE_NODE_TIMEOUT,
)
_OF_A_STEP = frozenset({Verb.PAUSE_NODE, Verb.RESUME_NODE, Verb.RESET_NODE, Verb.UPDATE_NODE_TIMEOUT})


def _search(examples: int) -> settings:
    return settings(
        max_examples=examples * _FACTOR,
        derandomize=_FACTOR == 1,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


@_search(200)
@given(manifest=waits(), seed=st.integers(0, 2**32))
def test_whatever_is_said_and_done_nothing_keeps_waiting(manifest: Manifest, seed: int) -> None:
    random = Random(seed)
    family = Family(manifest)
    family.settle(family.first)
    for _ in range(random.randint(5, 50)):
        rows = random.choice(family.runs)
        if rows.run is None:
            family.settle(rows)
        move = random.choices((_work, _wait, _control, speak), (5, 3, 2, 4))[0]
        move(family, rows, random)
        if random.random() < 0.8:
            family.settle(rows)
    seen = 0
    while seen < len(family.runs):
        rows = family.runs[seen]
        _finish(family, rows)
        family.check_end(rows)
        _never_early(rows)
        difference = replay(recording_of(rows))
        assert difference is None, f"a recorded run is decided again as it was: {difference}"
        seen += 1


def _work(family: Family, rows: Rows, random: Random) -> None:
    ready = [row for row in rows.attempts.values() if row.waiting and not row.held and row.due_time <= family.now]
    if ready:
        row = random.choice(ready)
        outcome = random.choices((Outcome.SUCCEEDED, Outcome.FAILED, Outcome.LOST), (6, 2, 1))[0]
        output = {"x": random.randint(0, 9), "effect": row.task.idempotency_key}
        family.play(rows, row, Fate(outcome=outcome, output=output, code="UNAVAILABLE"))


def _wait(family: Family, _rows: Rows, _random: Random) -> None:
    family.wait()


def _control(family: Family, rows: Rows, random: Random) -> None:
    verb = random.choice(_VERBS)
    if verb in (Verb.CONTINUE_AS_NEW, Verb.RESET) and len(family.runs) >= _MAX_RUNS:
        return
    ref = random.choice(family.manifest.steps).ref if verb in _OF_A_STEP else ""
    body = dict[str, Any]()
    if verb is Verb.RESET:
        body = {"seq": random.randint(1, len(rows.history) + 1)}
    elif verb is Verb.REDRIVE:
        body = {"force": True}
    elif verb is Verb.UPDATE_NODE_TIMEOUT:
        body = {"timeouts": Timeouts(total_timeout_ms=random.choice((None, 1, 5_000))), "fields": ("total_timeout_ms",)}
    family.ask(rows, verb, ref, **body)


def _finish(family: Family, rows: Rows) -> None:
    """Nobody holds anything any more, tasks succeed, and whoever waits is answered: the run must come to its end."""
    family.settle(rows)
    for _ in range(300):
        assert rows.run is not None
        if rows.run.status is RunStatus.PAUSED:
            family.ask(rows, Verb.RESUME)
        for step, node in zip(family.manifest.steps, rows.run.nodes, strict=True):
            if node.paused and not node.status.terminal:
                family.ask(rows, Verb.RESUME_NODE, step.ref)
        ready = [row for row in rows.attempts.values() if row.waiting and not row.held and row.due_time <= family.now]
        for row in ready:
            output = {"x": 5, "effect": row.task.idempotency_key}
            family.play(rows, row, Fate(outcome=Outcome.SUCCEEDED, output=output))
        if not ready:
            if rows.run.status.terminal and rows.run.saga.status is not CompensationStatus.RUNNING:
                return
            answer(family, rows)
            family.settle(rows)
            family.wait()
        family.settle(rows)
    pytest.fail("the run does not end")


def _never_early(rows: Rows) -> None:
    """A wait that a moment woke was not woken before it, by database time. Histories that were adopted are their source's."""
    due = {}
    for transition in rows.history:
        for event in transition.events:
            if isinstance(event, NodeParked):
                due[event.step_ref] = event.waiting.due_time
            elif isinstance(event, NodeEnded) and event.output is not None:
                row = rows.attempts.get((event.step_ref, event.output.attempt))
                if row is not None and row.output.get("woken_by") in ("duration", "timestamp", "cron"):
                    moment = due[event.step_ref]
                    assert moment is not None
                    assert transition.at >= moment


@pytest.mark.parametrize(
    ("cron", "zone", "begin", "due"),
    [
        # TC-01: a time that is left out; TC-02: one that is repeated, for a fixed time and for a wildcard; TC-05: either day will do.
        ("30 2 * * *", "America/New_York", "2024-03-10T00:00:00", "2024-03-10T07:00:00"),
        ("30 1 * * *", "America/New_York", "2024-11-03T05:30:00", "2024-11-04T06:30:00"),
        ("*/30 * * * *", "America/New_York", "2024-11-03T05:30:00", "2024-11-03T06:00:00"),
        ("0 0 13 * 5", "UTC", "2024-01-01T00:00:00", "2024-01-05T00:00:00"),
        ("0 0 29 2 *", "UTC", "2096-03-01T00:00:00", "2104-02-29T00:00:00"),
    ],
)
def test_tc_01_02_04_05_a_wait_for_a_cron_tick(cron: str, zone: str, begin: str, due: str) -> None:
    """The node is parked until that tick, is not woken a microsecond before it, and once at it."""
    at = START.fromisoformat(begin).replace(tzinfo=time_zone("UTC"))
    wait = {"cron": cron, "timezone": zone}
    compiled = compile_definition({"family_slug": "f", "steps": [{"ref": "w", "type": "wait", "wait": wait}]})
    assert compiled.manifest is not None
    start = start_of(create_time=at)
    rows = Rows(compiled.manifest, programs_for(compiled.manifest), start)
    rows.tick(at)
    assert rows.run is not None
    waiting = rows.run.nodes[0].waiting
    assert waiting is not None
    assert waiting.due_time is not None
    assert waiting.due_time.isoformat() == f"{due}+00:00"
    assert rows.tick(waiting.due_time - timedelta(microseconds=1)) is None
    assert rows.tick(waiting.due_time) is not None
    assert rows.run.status is RunStatus.COMPLETED
    assert rows.output_of("w")["fired_at"] == f"{due}.000000Z"


@_search(100)
@given(milliseconds=st.integers(0, 10**9), ticks=st.lists(st.integers(0, 2 * 10**9), max_size=20))
def test_a_wait_is_never_early_and_over_once(milliseconds: int, ticks: list[int]) -> None:
    wait = {"duration": f"{milliseconds}ms"}
    compiled = compile_definition({"family_slug": "f", "steps": [{"ref": "w", "type": "wait", "wait": wait}]})
    assert compiled.manifest is not None
    start = start_of()
    rows = Rows(compiled.manifest, programs_for(compiled.manifest), start)
    ends = 0
    for at in (0, *sorted(ticks)):
        transition = rows.tick(START + timedelta(milliseconds=at))
        ends += transition is not None and any(isinstance(e, NodeEnded) for e in transition.events)
        assert ends == (at >= milliseconds)
