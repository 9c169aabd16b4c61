"""The laws of the engine, on random graphs and random orders of facts.

The five invariants that field reports most often break, and the house's own: folding events rebuilds the run; an empty inbox decides nothing;
a fact twice changes nothing; the order of concurrent results does not matter under `run_all`; a terminal run stays; no attempt is dispatched
twice; an open run has something it waits for.
"""

import os
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ductord.engine.decide import decide
from ductord.engine.evolve import DEAD_FAILURE, DEAD_SKIP, OPEN, TAKEN, fold
from ductord.engine.expressions import programs_for
from ductord.model.decision import Decision
from ductord.model.enums import (
    AttemptStatus,
    CheckpointStatus,
    EdgeType,
    FailPolicy,
    Join,
    NodeStatus,
    Outcome,
    SkipReason,
)
from ductord.model.fault import Fault
from ductord.model.inbox import AttemptReport, Inbox, TimerDue
from ductord.model.manifest import Manifest
from ductord.model.run import Run
from tests.engine.graphs import Fate, fates, manifests, reported
from tests.support.rows import Rows
from tests.support.starts import start_of
from tests.support.tasks import Attempt
from tests.support.world import START

_FACTOR = int(os.environ.get("DUCTOR_LAWS", "1"))
"""`DUCTOR_LAWS=50 pytest tests/engine/test_laws.py` searches fifty times as long, each time elsewhere; the gate always looks at the same runs."""


def _search(examples: int) -> settings:
    return settings(
        max_examples=examples * _FACTOR,
        derandomize=_FACTOR == 1,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def _rows(manifest: Manifest) -> Rows:
    start = start_of(family_slug="law")
    return Rows(manifest, programs_for(manifest), start)


class _Life:
    """A run under way, checked after every tick."""

    def __init__(self, manifest: Manifest) -> None:
        self.rows = _rows(manifest)
        self.manifest = manifest
        self.now = START
        self.shown: list[AttemptReport] = []

    @property
    def run(self) -> Run:
        assert self.rows.run is not None
        return self.rows.run

    def settle(self) -> None:
        before = self.rows.run
        shown = tuple(self.rows._reports())
        timers = tuple(
            TimerDue(kind=kind, step_ref=ref, due_time=due)
            for (kind, ref), due in self.rows.timers.items()
            if due <= self.now
        )
        self.rows.tick(self.now)
        self.shown += shown
        self._check(before)
        self._nothing_happens(Inbox(start=self.rows.start, outputs=self._outputs()))
        self._nothing_happens(Inbox(start=self.rows.start, outputs=self._outputs(), reports=shown, timers=timers))

    def play(self, row: Attempt, fate: Fate) -> None:
        if fate.outcome is not Outcome.QUEUE_TIMED_OUT:
            self.rows.lease(row, self.now)
        row.outcome, row.report_time = fate.outcome, self.now
        if fate.outcome is Outcome.SUCCEEDED:
            row.output, row.has_output = fate.output, True
        elif fate.outcome is Outcome.FAILED:
            row.fault = Fault(code=fate.code)
            row.non_retryable, row.retry_after_ms = fate.non_retryable, fate.retry_after_ms

    def wait(self) -> None:
        """Let time pass to the next instant at which something is due."""
        due = [a.task.due_time for a in self.rows.attempts.values() if a.waiting] + list(self.rows.timers.values())
        self.now = min((d for d in due if d > self.now), default=self.now + timedelta(seconds=1))

    def _outputs(self) -> dict[str, Any]:
        nodes = zip(self.manifest.steps, self.run.nodes, strict=True)
        return {step.ref: self.rows.output_of(step.ref) for step, node in nodes if node.output is not None}

    def _nothing_happens(self, inbox: Inbox) -> None:
        """An empty inbox decides nothing; facts that were applied change nothing (invariant 3)."""
        outputs = dict(inbox.outputs)
        decision = decide(self.manifest, self.rows.programs, self.rows.run, inbox, self.now)
        assert isinstance(decision, Decision), outputs
        assert not decision.events
        if not inbox.reports and not inbox.timers:
            assert decision == Decision()

    def _check(self, before: Run | None) -> None:
        run = self.run
        assert fold(self.manifest, "r", ((t.at, t.events) for t in self.rows.history)) == run
        assert run.open_nodes == sum(1 for node in run.nodes if not node.status.terminal)
        assert run.status.terminal == (run.open_nodes == 0), "all nodes terminal, run terminal (invariant 1)"
        for index, (step, node) in enumerate(zip(self.manifest.steps, run.nodes, strict=True)):
            latest = self.rows.attempts.get((step.ref, node.attempt))
            if before is not None and before.nodes[index].status.terminal:
                assert node == before.nodes[index], "a terminal node stays (invariant 2)"
            if node.status is NodeStatus.RUNNING:
                assert latest is not None
                assert latest.status is AttemptStatus.OPEN, "a running node has an attempt to wait for (invariant 4)"
            elif latest is not None:
                assert latest.status is not AttemptStatus.OPEN, "an ended node leaves no open attempt"
            if node.status is NodeStatus.PENDING:
                assert any(run.edges[e] == "?" for e in step.incoming), "a pending node waits for an edge"
            resolved = {run.edges[e] != "?" for e in step.outgoing}
            assert resolved <= {node.status.terminal}, "edges are open exactly while their source is"
            if node.cancelling:
                assert any(kind == "stop_grace" for kind, _ in self.rows.timers), "who was asked to stop has a deadline"

    def check_end(self) -> None:
        """What must hold of every finished run."""
        run = self.run
        assert run.status.terminal
        assert not self.rows.timers
        assert all(a.status is not AttemptStatus.OPEN for a in self.rows.attempts.values())
        assert all(c.status is not CheckpointStatus.PENDING for c in run.checkpoints)
        assert set(self.rows.checkpoints) == {c.name for c in self.manifest.checkpoints}
        edges = bytearray(run.edges, "ascii")
        for index, (step, node) in enumerate(zip(self.manifest.steps, run.nodes, strict=True)):
            _joined_as_ruled(self.manifest, index, edges, run)
            _left_as_ruled(self.manifest, index, run)
            spent = [
                event
                for transition in self.rows.history
                for event in transition.events
                if getattr(event, "spent", False) and getattr(event, "step_ref", None) == step.ref
            ]
            assert len(spent) == node.failures <= step.retry.max_attempts, "the budget counts failures (A4)"
            assert node.losses <= step.max_lost + 1, "one loss too many fails the node (RT-06)"


def _joined_as_ruled(manifest: Manifest, index: int, edges: bytearray, run: Run) -> None:
    """Ruling G2 read off the final edges, written again and differently from the engine."""
    step, node = manifest.steps[index], run.nodes[index]
    if not step.incoming or node.skip_reason is SkipReason.RUN_ENDED:
        return
    by_source: dict[int, set[int]] = {}
    for e in step.incoming:
        by_source.setdefault(manifest.edges[e].source, set()).add(edges[e])
    arrivals = [
        TAKEN if TAKEN in states else DEAD_FAILURE if DEAD_FAILURE in states else DEAD_SKIP
        for states in by_source.values()
    ]
    assert not any(state == OPEN for states in by_source.values() for state in states)
    skipped_above = (SkipReason.UPSTREAM_SKIPPED, SkipReason.UPSTREAM_FAILED, SkipReason.CHOICE)
    ran = node.status is not NodeStatus.SKIPPED or node.skip_reason not in skipped_above
    if step.join is Join.ANY and TAKEN in arrivals:
        assert ran
    elif DEAD_FAILURE in arrivals:
        assert node.skip_reason is SkipReason.UPSTREAM_FAILED
    elif TAKEN in arrivals:
        assert ran
    else:
        assert node.skip_reason in (SkipReason.UPSTREAM_SKIPPED, SkipReason.CHOICE)


_OUTCOMES = (EdgeType.SUCCESS, EdgeType.TRUE, EdgeType.FALSE)


def _left_as_ruled(manifest: Manifest, index: int, run: Run) -> None:
    """Rulings G1 and G3 read off the final edges: which types may be taken from which end, and what the dead ones pass on."""
    step, node = manifest.steps[index], run.nodes[index]
    states = {e: run.edges[e] for e in step.outgoing}
    taken = {manifest.edges[e].type for e, state in states.items() if state == "T"}
    dead = {state for state in states.values() if state != "T"}
    match node.status:
        case NodeStatus.SUCCEEDED:
            assert taken <= {*_OUTCOMES, EdgeType.DONE}
            assert dead <= {"S"}
        case NodeStatus.FAILED | NodeStatus.COMPLETED_WITH_ERROR:
            assert taken <= {EdgeType.ERROR, EdgeType.DONE}
            assert dead <= {"S" if EdgeType.ERROR in taken else "F"}
        case NodeStatus.SKIPPED if node.skip_reason is SkipReason.CONDITION:
            assert taken <= {EdgeType.DONE}
            assert dead <= {"S"}
        case NodeStatus.SKIPPED:
            assert not taken
            assert dead <= {"F" if node.skip_reason is SkipReason.UPSTREAM_FAILED else "S"}
        case _:
            assert node.status is NodeStatus.CANCELLED
            assert not taken
            assert dead <= {"F"}


@_search(600)
@given(manifest=manifests(), data=st.data())
def test_laws_hold_in_any_life_of_any_graph(manifest: Manifest, data: st.DataObject) -> None:
    life = _Life(manifest)
    life.settle()
    for _ in range(60):
        if life.run.status.terminal:
            break
        waiting = [row for row in life.rows.attempts.values() if row.waiting]
        free = life.rows.leasable(life.now)
        if waiting and (not free or data.draw(st.booleans(), label="early")):
            # Whoever is asked to stop, or held, or just queued may be reported on: by its worker or by a sweep.
            free = [row for row in waiting if row.asked or row.task.due_time <= life.now]
        if free and data.draw(st.integers(0, 3), label="work or wait") > 0:
            for row in data.draw(st.lists(st.sampled_from(free), unique_by=id, min_size=1, max_size=3), label="rows"):
                life.play(row, data.draw(fates, label="fate"))
        else:
            life.wait()
        life.settle()
    _finish(life)
    life.check_end()
    end = life.run
    late = Inbox(start=life.rows.start, reports=tuple(life.shown))
    decision = decide(manifest, life.rows.programs, end, late, life.now + timedelta(days=1))
    assert isinstance(decision, Decision)
    assert not decision.events, "a terminal run stays (invariant 2)"


@_search(300)
@given(
    manifest=manifests((FailPolicy.RUN_ALL,), joins=(Join.ALL,)),
    seeds=st.tuples(st.integers(0, 2**32), st.integers(0, 2**32)),
    fate=st.dictionaries(
        st.tuples(st.integers(0, 7), st.integers(1, 3)),
        reported,
    ),
)
def test_the_order_of_concurrent_results_does_not_change_final_statuses(
    manifest: Manifest, seeds: tuple[int, int], fate: dict[tuple[int, int], Fate]
) -> None:
    def lived(seed: int) -> tuple[Any, ...]:
        life, random = _Life(_without_time(manifest)), Random(seed)
        life.settle()
        while not life.run.status.terminal:
            free = life.rows.leasable(life.now)
            if not free:
                life.wait()
                continue
            for row in random.sample(free, random.randint(1, len(free))):
                key = (int(row.task.step_ref[1:]), row.task.attempt)
                life.play(row, fate.get(key, Fate(outcome=Outcome.SUCCEEDED, output={"x": key[0]})))
                if random.random() < 0.5:
                    life.settle()
            life.settle()
        run = life.run
        return run.status, run.edges, run.has_errors, [(n.status, n.skip_reason, n.failures) for n in run.nodes]

    assert lived(seeds[0]) == lived(seeds[1])


@_search(100)
@given(manifest=manifests(tuple(FailPolicy)))
def test_a_run_without_trouble_runs_every_step_that_its_edges_reach(manifest: Manifest) -> None:
    """No failure and no condition: every step with a success or done way in runs, exactly once."""
    life = _Life(_without_time(_unconditional(manifest)))
    _finish(life)
    for step, node in zip(life.manifest.steps, life.run.nodes, strict=True):
        assert node.attempt == (node.status is NodeStatus.SUCCEEDED)
        assert (node.status is NodeStatus.SUCCEEDED) == (
            not step.incoming or any(life.run.edges[e] == "T" for e in step.incoming)
        )


def _finish(life: _Life) -> None:
    """Everything goes well from here on, so the run must end."""
    if life.rows.run is None:
        life.settle()
    for _ in range(200):
        if life.run.status.terminal:
            return
        free = [row for row in life.rows.attempts.values() if row.waiting and row.task.due_time <= life.now]
        for row in free:
            life.play(row, Fate(outcome=Outcome.SUCCEEDED, output={"x": 5}))
        if not free:
            life.wait()
        life.settle()
    pytest.fail("the run does not end")


def _without_time(manifest: Manifest) -> Manifest:
    return replace(
        manifest, run_timeout_ms=None, steps=tuple(replace(s, total_timeout_ms=None) for s in manifest.steps)
    )


def _unconditional(manifest: Manifest) -> Manifest:
    edges = tuple(
        replace(
            e,
            condition=None,
            choice_group=None,
            default=False,
            type=EdgeType.SUCCESS if e.type in (EdgeType.TRUE, EdgeType.FALSE) else e.type,
        )
        for e in manifest.edges
    )
    return replace(
        manifest, edges=edges, steps=tuple(replace(s, run_if=None, result_expr=None) for s in manifest.steps)
    )
