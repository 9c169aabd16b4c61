"""The laws of operating a run, on random graphs, with random controls at random moments (rulings C1 to C10, G8).

Whatever operators do, and whenever: a run has one end, leaves nothing open behind, is what its history says, and is decided again as it was. A redrive
reaches the end of a run that never failed; a reset does what it foretold and reaches its source's end.
"""

import os
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ductord.engine import forks
from ductord.engine.evolve import fold
from ductord.engine.replay import replay
from ductord.model.enums import (
    CompensationStatus,
    EdgeType,
    FailPolicy,
    InverseStatus,
    Join,
    NodeStatus,
    OnError,
    Outcome,
    Resolution,
    RunStatus,
    Verb,
)
from ductord.model.events import AttemptCreated, NodeEnded, RunForked
from ductord.model.manifest import Manifest, RetryPolicy, Timeouts
from ductord.model.recording import decode, encode
from ductord.model.run import Run
from tests.engine.families import Family
from tests.engine.graphs import Fate, manifests
from tests.engine.sagas import sagas
from tests.support.recording import recording_of
from tests.support.rows import Attempt, Rows

_FACTOR = int(os.environ.get("DUCTOR_LAWS", "1"))
"""`DUCTOR_LAWS=50 pytest tests/engine/test_control_laws.py` searches fifty times as long, each time elsewhere."""

_MAX_RUNS = 4
_LATER = (Verb.REDRIVE, Verb.REDRIVE, Verb.RESET, Verb.RESOLVE_REPAIR)
"""What an ended run may still be asked."""
_SILENT = (
    Outcome.LOST,
    Outcome.RELEASED,
    Outcome.TIMED_OUT,
    Outcome.HEARTBEAT_TIMED_OUT,
    Outcome.QUEUE_TIMED_OUT,
    Outcome.REVOKED,
)


def _search(examples: int) -> settings:
    return settings(
        max_examples=examples * _FACTOR,
        derandomize=_FACTOR == 1,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )


@_search(150)
@given(manifest=sagas(), seed=st.integers(0, 2**32))
def test_any_controls_at_any_moments_leave_one_end_and_nothing_behind(manifest: Manifest, seed: int) -> None:
    random = Random(seed)
    family = Family(replace(manifest, auto_continue=random.random() < 0.3))
    tiers = {"history_soft": random.choice((6, 50)), "history_hard": random.choice((12, 100)), "history_terminate": 300}
    family.first.limits = replace(family.first.limits, **tiers)
    family.settle(family.first)
    for _ in range(random.randint(5, 60)):
        rows = random.choice(family.runs)
        if rows.run is None:
            family.settle(rows)
        move = random.choices((_work, _wait, _control, _late), (6, 2, 3, 1))[0]
        move(family, rows, random)
        family.settle(rows)
    for rows in _all(family):
        _finish(family, rows)
        family.check_end(rows)
        recording = recording_of(rows)
        assert decode(encode(recording)) == recording
        difference = replay(recording)
        assert difference is None, f"a recorded run is decided again as it was: {difference}"
        _targets_are_points(rows)


def _work(family: Family, rows: Rows, random: Random) -> None:
    """A worker takes a task, or some word comes about one."""
    ready = [row for row in rows.attempts.values() if row.waiting and not row.held and row.due_time <= family.now]
    if not ready:
        return
    row = random.choice(ready)
    if not row.lease and random.random() < 0.3:
        rows.lease(row, family.now)
        return
    outcome = random.choices((Outcome.SUCCEEDED, Outcome.FAILED, random.choice(_SILENT)), (6, 2, 2))[0]
    if outcome is Outcome.QUEUE_TIMED_OUT and row.lease:
        return
    family.play(
        rows,
        row,
        Fate(
            outcome=outcome,
            output={"x": random.randint(0, 9), "effect": row.task.idempotency_key},
            code=random.choice(("UNAVAILABLE", "INVALID_ARGUMENT")),
            non_retryable=random.random() < 0.1,
            retry_after_ms=random.choice((None, None, 2_000)),
        ),
    )


def _wait(family: Family, _rows: Rows, _random: Random) -> None:
    family.wait()


def _late(family: Family, rows: Rows, random: Random) -> None:
    """A worker that was given up comes back with a success."""
    given_up = [row for row in rows.attempts.values() if row.start_time is not None and not row.waiting]
    if given_up:
        row = random.choice(given_up)
        rows.too_late(row, {"x": 5, "effect": row.task.idempotency_key}, family.now)


def _control(family: Family, rows: Rows, random: Random) -> None:
    ended = rows.run is not None and rows.run.status.terminal
    verb = random.choice(_LATER if ended and random.random() < 0.8 else tuple(Verb))
    refs = [step.ref for step in family.manifest.steps]
    ref = random.choice(refs)
    some = random.random() < 0.5
    body = dict[str, Any]()
    match verb:
        case Verb.PAUSE | Verb.RESUME | Verb.CANCEL:
            ref = ""
        case Verb.TERMINATE:
            ref, body = "", {"skip_finally": some}
        case Verb.REDRIVE:
            ref, body = "", {"force": some}
        case Verb.CONTINUE_AS_NEW:
            ref, body = "", {"seed": {"n": len(family.runs)}}
        case Verb.RESET:
            ref = ""
            body = {
                "seq": random.randint(0, len(rows.history) + 1),
                "preserve": tuple(sorted(random.sample(refs, min(len(refs), random.choice((0, 0, 1, 2)))))),
                "overrides": {r: {"by": "hand"} for r in random.sample(refs, random.choice((0, 0, 1)))},
                "force": some,
            }
        case Verb.PAUSE_NODE | Verb.RESUME_NODE | Verb.RESET_NODE:
            pass
        case Verb.UPDATE_NODE_RETRY_POLICY:
            body = {"retry": RetryPolicy(max_attempts=random.randint(1, 4)), "fields": ("max_attempts",)}
        case Verb.UPDATE_NODE_TIMEOUT:
            timeouts = Timeouts(total_timeout_ms=random.choice((None, 1, 5_000)))
            body = {"timeouts": timeouts, "fields": ("total_timeout_ms",)}
        case Verb.RESOLVE_REPAIR:
            plan = rows.run.saga.plan if rows.run is not None else ()
            ref = random.choice([e.step_ref for e in plan if e.status is InverseStatus.MANUAL_REPAIR] or refs)
            body = {"resolution": random.choice(tuple(Resolution))}
    if verb in (Verb.CONTINUE_AS_NEW, Verb.RESET) and len(family.runs) >= _MAX_RUNS:
        return
    family.ask(rows, verb, ref, **body)


def _all(family: Family) -> Iterator[Rows]:
    """The runs of a family, those too that are born while one looks."""
    seen = 0
    while seen < len(family.runs):
        yield family.runs[seen]
        seen += 1


def _finish(family: Family, rows: Rows, fate: Callable[[Attempt], Fate] | None = None) -> None:
    """Nobody holds anything any more, and every task comes to its `fate` (a success, where none is given): the run must come to its end."""
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
            success = Fate(outcome=Outcome.SUCCEEDED, output={"x": 5, "effect": row.task.idempotency_key})
            family.play(rows, row, fate(row) if fate is not None else success)
        if not ready:
            if rows.run.status.terminal and rows.run.saga.status is not CompensationStatus.RUNNING:
                return
            family.wait()
        family.settle(rows)
    pytest.fail("the run does not end")


def _targets_are_points(rows: Rows) -> None:
    """Listing the points of a history in one pass finds what folding every prefix finds."""
    transitions = [(t.at, t.events) for t in rows.history]
    found = list(forks.targets(rows.manifest, rows.start.run_id, transitions))
    runs = [fold(rows.manifest, rows.start.run_id, transitions[: seq + 1]) for seq in range(len(transitions))]
    last = runs[-1]
    fit = [
        run
        for run in runs
        if isinstance(
            forks.preview(rows.manifest, run, last, seq=run.seq, overrides={}, preserve=(), force=True), forks.Preview
        )
    ]
    assert [target.seq for target in found] == [run.seq for run in fit]
    refs = [step.ref for step in rows.manifest.steps]
    for target, run in zip(found, fit, strict=True):
        at_work = tuple(ref for ref, node in zip(refs, run.nodes, strict=True) if node.status is NodeStatus.RUNNING)
        assert target.at_work == at_work


@_search(120)
@given(manifest=manifests(joins=(Join.ALL,)), data=st.data())
def test_a_redrive_reaches_the_end_of_a_run_that_never_failed(manifest: Manifest, data: st.DataObject) -> None:
    """Steps fail, workers fall silent, operators cancel; whatever failed has only success edges. Redriven until it completes, the run has the statuses, the
    edges and the outputs of one to which nothing happened (C4)."""
    count = len(manifest.steps)
    weak = data.draw(st.sets(st.integers(0, count - 1), min_size=1), label="weak")
    outputs = data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count), label="outputs")
    manifest = _with_success_edges(_untimed(manifest), weak)
    untroubled = Family(manifest)
    _finish(untroubled, untroubled.first, lambda row: _by_step(row, outputs))
    assume(_ended(untroubled.first).status is RunStatus.COMPLETED)

    family, random = Family(manifest), Random(data.draw(st.integers(0, 2**32), label="seed"))
    family.settle(family.first)
    for trouble in (0.7, 0.5, 0.3, 0.1, 0.0, 0.0):
        _troubled(family, weak, outputs, random, trouble)
        if _ended(family.first).status is RunStatus.COMPLETED:
            break
        family.ask(family.first, Verb.REDRIVE)
        family.settle(family.first)
    assert _told(family.first) == _told(untroubled.first)
    assert replay(recording_of(family.first)) is None


@_search(120)
@given(manifest=manifests((FailPolicy.RUN_ALL,), joins=(Join.ALL,)), data=st.data())
def test_a_reset_does_what_it_foretold_and_reaches_its_sources_end(manifest: Manifest, data: st.DataObject) -> None:
    """The same fates lead from any valid transition to the same end, and every node is kept, preserved or run anew as the preview said (C5)."""
    count = len(manifest.steps)
    outputs = data.draw(st.lists(st.integers(-3, 9), min_size=count, max_size=count), label="outputs")  # below 0: fails
    random = Random(data.draw(st.integers(0, 2**32), label="seed"))
    family = Family(_untimed(manifest))
    _wander(family, family.first, outputs, random)
    source = family.first
    transitions = [(t.at, t.events) for t in source.history]
    points = list(forks.targets(manifest, source.start.run_id, transitions))
    point = random.choice(points)
    base = fold(manifest, source.start.run_id, transitions[: point.seq])
    later = [
        step.ref
        for step, then, now in zip(manifest.steps, base.nodes, _ended(source).nodes, strict=True)
        if now.status is NodeStatus.SUCCEEDED and not then.status.terminal
    ]
    preserve = data.draw(st.sets(st.sampled_from(later)), label="preserve") if later else set[str]()
    told = forks.preview(
        manifest, base, _ended(source), seq=point.seq, overrides={}, preserve=sorted(preserve), force=False
    )
    assert isinstance(told, forks.Preview)
    family.ask(source, Verb.RESET, seq=point.seq, preserve=tuple(sorted(preserve)))
    family.settle(source)
    born = family.runs[-1]
    assert born is not source
    _wander(family, born, outputs, random)
    assert _told(born) == _told(source)
    _as_foretold(told, base, born)


def _as_foretold(told: forks.Preview, base: Run, born: Rows) -> None:
    forked = next(i for i, t in enumerate(born.history) if any(isinstance(e, RunForked) for e in t.events))
    after = [e for t in born.history[forked:] for e in t.events]
    ran = {e.step_ref for e in after if isinstance(e, AttemptCreated)}
    ended = {e.step_ref for e in after if isinstance(e, NodeEnded)}
    assert ended == {*told.preserved, *told.restarted}
    assert ran <= set(told.restarted)
    for index, step in enumerate(born.manifest.steps):
        node = _ended(born).nodes[index]
        if step.ref in told.kept:
            assert (node.status, node.output) == (base.nodes[index].status, base.nodes[index].output)
        elif step.ref in told.preserved and node.output is not None:
            assert node.output == told.preserved[step.ref]
        elif node.status is NodeStatus.SUCCEEDED:
            assert step.ref in ran


def _wander(family: Family, rows: Rows, outputs: list[int], random: Random) -> None:
    """To the end, in random steps: a few of the ready tasks at a time."""
    family.settle(rows)
    for _ in range(200):
        if _ended(rows).status.terminal:
            return
        ready = [row for row in rows.attempts.values() if row.waiting and row.due_time <= family.now]
        for row in random.sample(ready, random.randint(1, len(ready))) if ready else ():
            family.play(rows, row, _by_step(row, outputs))
        if not ready:
            family.wait()
        family.settle(rows)
    pytest.fail("the run does not end")


def _troubled(family: Family, weak: set[int], outputs: list[int], random: Random, trouble: float) -> None:
    """To the end, with so much trouble: weak steps fail or lose their worker, and operators cancel."""
    rows = family.first
    for _ in range(200):
        if _ended(rows).status.terminal:
            return
        ready = [row for row in rows.attempts.values() if row.waiting and row.due_time <= family.now]
        if random.random() < trouble / 8:
            family.ask(rows, Verb.CANCEL)
        for row in random.sample(ready, random.randint(1, len(ready))) if ready else ():
            index = int(row.task.step_ref[1:])
            if index in weak and random.random() < trouble:
                outcome = random.choice((Outcome.FAILED, Outcome.TIMED_OUT, Outcome.LOST))
                family.play(rows, row, Fate(outcome=outcome, code="NOT_FOUND"))
            else:
                family.play(rows, row, _by_step(row, outputs))
        if not ready:
            family.wait()
        family.settle(rows)
    pytest.fail("the run does not end")


def _by_step(row: Attempt, outputs: list[int]) -> Fate:
    """The same for every attempt of a step."""
    x = outputs[int(row.task.step_ref[1:])]
    if x < 0:
        return Fate(outcome=Outcome.FAILED, code="NOT_FOUND")
    return Fate(outcome=Outcome.SUCCEEDED, output={"x": x})


def _ended(rows: Rows) -> Run:
    assert rows.run is not None
    return rows.run


def _told(rows: Rows) -> Any:
    """What a run came to: nothing of how."""
    run = _ended(rows)
    nodes = [
        (node.status, node.skip_reason, rows.output_of(step.ref) if node.output is not None else None, node.fault)
        for step, node in zip(rows.manifest.steps, run.nodes, strict=True)
    ]
    result = (rows.result.output_json, rows.result.refs and sorted(rows.result.refs)) if rows.result else None
    return run.status, run.edges, run.has_errors, run.output_fault, nodes, result, [c.status for c in run.checkpoints]


def _untimed(manifest: Manifest) -> Manifest:
    steps = tuple(replace(step, total_timeout_ms=None) for step in manifest.steps)
    return replace(manifest, run_timeout_ms=None, steps=steps)


def _with_success_edges(manifest: Manifest, weak: set[int]) -> Manifest:
    """These steps lead on by success alone, and their failure is the run's."""
    edges = tuple(replace(e, type=EdgeType.SUCCESS) if e.source in weak else e for e in manifest.edges)
    steps = tuple(replace(s, on_error=OnError.FAIL) if i in weak else s for i, s in enumerate(manifest.steps))
    return replace(manifest, edges=edges, steps=steps)
