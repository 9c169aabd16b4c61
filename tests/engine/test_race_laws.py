"""The laws of a race, in any order of what its racers come to, in however many ticks, over any pauses (ruling G7).

The order in which racers end decides, and nothing else: neither how many of them a tick judges, nor the order of steps, nor a pause between the win and the
race.
"""

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ductord.engine.compile import compile_definition
from ductord.engine.replay import replay
from ductord.model.enums import NodeStatus, Outcome, RunStatus, SignalVerb, SkipReason, Verb
from ductord.model.manifest import Manifest
from ductord.model.run import Node, Run
from tests.engine.families import Family
from tests.engine.graphs import Fate
from tests.engine.waits import tell
from tests.support.recording import recording_of
from tests.support.rows import Rows

Draw = Any
Event = tuple[str, bool]
"""A racer's ref, and whether it succeeds."""


@st.composite
def lives(draw: Draw) -> tuple[Manifest, list[Event]]:
    """A race of actions and people, and what becomes of each, in order."""
    count = draw(st.integers(2, 5))
    steps: list[dict[str, Any]] = [{"ref": "after", "type": "action", "action": "core:echo"}]
    edges: list[dict[str, Any]] = [{"source_ref": "first", "target_ref": "after", "type": "success"}]
    for index in range(count):
        on_error = draw(st.sampled_from(["fail", "continue"]))
        kind = draw(st.sampled_from([{"type": "action", "action": "core:echo"}, {"type": "approval"}]))
        steps.append({"ref": f"r{index}", "on_error": on_error, **kind})
        edges.append({"source_ref": f"r{index}", "target_ref": "first", "type": "success"})
    losers = draw(st.sampled_from(["cancel", "cancel", "let_finish"]))
    steps.append({"ref": "first", "type": "race", "race": {"losers": losers}})
    compiled = compile_definition({"family_slug": "race", "steps": draw(st.permutations(steps)), "edges": edges})
    assert compiled.manifest is not None, compiled.violations
    order = draw(st.permutations(range(count)))
    return compiled.manifest, [(f"r{index}", draw(st.booleans())) for index in order]


@settings(max_examples=250, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck))
@given(life=lives(), seed=st.integers(0, 2**32))
def test_the_first_to_succeed_wins_in_however_many_ticks(life: tuple[Manifest, list[Event]], seed: int) -> None:
    manifest, events = life
    expected = _expected(manifest, events)
    for random in (None, Random(seed)):
        rows = _lived(manifest, events, random)
        run = rows.run
        assert run is not None
        assert _outcome(manifest, rows, run) == expected
        _losers(manifest, run, expected)
        difference = replay(recording_of(rows))
        assert difference is None, difference


def _expected(manifest: Manifest, events: list[Event]) -> tuple[str | None, RunStatus]:
    """The winner, and how the run ends, by the ruling read off the order of events alone."""
    steps = {step.ref: step for step in manifest.steps}
    keeps = steps["first"].race.losers == "cancel"  # type: ignore[union-attr]
    winner: str | None = None
    for ref, succeeds in events:
        if succeeds:
            winner = winner or ref
        elif (winner is None or not keeps) and steps[ref].on_error == "fail":
            # Before the win it stops the run, so nobody wins; beside losers that finish the two may meet in one tick.
            return None, RunStatus.FAILED
    return winner, RunStatus.COMPLETED if winner else RunStatus.FAILED


def _outcome(manifest: Manifest, rows: Rows, run: Run) -> tuple[str | None, RunStatus]:
    won = run.status is RunStatus.COMPLETED
    return (rows.output_of("first")["winner"] if won else None), run.status


def _losers(manifest: Manifest, run: Run, expected: tuple[str | None, RunStatus]) -> None:
    """Nobody who comes after the win has failed, where losers are called off."""
    winner, status = expected
    steps = {step.ref: step for step in manifest.steps}
    if winner is None or steps["first"].race.losers != "cancel" or status is not RunStatus.COMPLETED:  # type: ignore[union-attr]
        return
    for ref, node in _nodes(manifest, run).items():
        assert node.status is not NodeStatus.FAILED, ref
        if node.status is NodeStatus.CANCELLED:
            assert node.skip_reason is SkipReason.RACE_LOST, ref


def _nodes(manifest: Manifest, run: Run) -> dict[str, Node]:
    return {step.ref: node for step, node in zip(manifest.steps, run.nodes, strict=True)}


def _lived(manifest: Manifest, events: Iterable[Event], random: Random | None) -> Rows:
    """A run in which these things happen one after the other; without `random` each in a tick of its own, else in any ticks and under any pauses."""
    family = Family(manifest)
    rows = family.first
    family.settle(rows)
    for ready in [row for row in rows.attempts.values() if row.waiting]:
        rows.lease(ready, family.now)
    for ref, succeeds in events:
        family.now += family.now.resolution * 1_000
        _happens(family, rows, ref, succeeds=succeeds)
        if random is None or random.random() < 0.4:
            family.settle(rows)
        if random is not None and random.random() < 0.3 and rows.run is not None and not rows.run.status.terminal:
            family.ask(rows, random.choice((Verb.PAUSE, Verb.RESUME)))
    family.settle(rows)
    for _ in range(20):
        assert rows.run is not None
        if rows.run.status.terminal:
            family.check_end(rows)
            return rows
        if rows.run.status is RunStatus.PAUSED:
            family.ask(rows, Verb.RESUME)
        for row in [row for row in rows.attempts.values() if row.waiting and not row.held]:
            family.play(rows, row, Fate(outcome=Outcome.SUCCEEDED, output={}))
        family.settle(rows)
    pytest.fail("the run does not end")


def _happens(family: Family, rows: Rows, ref: str, *, succeeds: bool) -> None:
    row = rows.attempts.get((ref, 1))
    if row is None:
        tell(family, rows, ref, SignalVerb.APPROVE if succeeds else SignalVerb.REJECT)
    elif row.waiting:
        outcome = Outcome.SUCCEEDED if succeeds else Outcome.FAILED
        family.play(rows, row, Fate(outcome=outcome, output={"of": ref}, code="NOT_FOUND"))
