"""The laws of going on and of going back, on random graphs (rulings C4, C5).

A redrive reaches the end of a run that never failed; a reset does what it foretold and reaches its source's end.
"""

from random import Random
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from ductord.engine import forks
from ductord.engine.evolve import fold
from ductord.engine.replay import replay
from ductord.model.enums import (
    EdgeType,
    FailPolicy,
    Join,
    NodeStatus,
    OnError,
    Outcome,
    RunStatus,
    Verb,
)
from ductord.model.events import AttemptCreated, NodeEnded, RunForked
from ductord.model.manifest import Manifest
from ductord.model.run import Run
from tests.engine.families import Family
from tests.engine.graphs import Fate, manifests
from tests.engine.searching import search
from tests.support.recording import recording_of
from tests.support.rows import Rows
from tests.support.tasks import Attempt


@search(120)
@given(manifest=manifests(joins=(Join.ALL,)), data=st.data())
def test_a_redrive_reaches_the_end_of_a_run_that_never_failed(manifest: Manifest, data: st.DataObject) -> None:
    """Steps fail, workers fall silent, operators cancel; whatever failed has only success edges. Redriven until it completes, the run has the statuses, the
    edges and the outputs of one to which nothing happened (C4)."""
    count = len(manifest.steps)
    weak = data.draw(st.sets(st.integers(0, count - 1), min_size=1), label="weak")
    outputs = data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count), label="outputs")
    manifest = _with_success_edges(_untimed(manifest), weak)
    untroubled = Family(manifest)
    untroubled.finish(untroubled.first, lambda row: _by_step(row, outputs))
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


@search(120)
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
