"""What the shell must be able to rely on: outputs asked for at once, late facts put away, a tick that costs what changed."""

import gc
import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from ductord.engine import graph
from ductord.engine.decide import decide
from ductord.engine.expressions import programs_for
from ductord.engine.graph import graph_of
from ductord.engine.steps import SUPPORTED
from ductord.model.decision import Decision, Missing
from ductord.model.effects import ClearTimers, CloseAttempt, QueueTask, SetTimer
from ductord.model.enums import AttemptStatus, EdgeType, Outcome, StepType, TimerKind
from ductord.model.fault import OutputRef
from ductord.model.inbox import AttemptReport, Inbox, TimerDue
from ductord.model.manifest import Edge, Manifest, Step
from ductord.model.run import Run
from ductord.model.specs import ActionSpec, Expression, Template
from tests.support.starts import start_of
from tests.support.world import START

_START = start_of()


def _manifest(steps: int, edges: list[tuple[int, int]], **of_step: dict[int, Any]) -> Manifest:
    return Manifest(
        format_version=1,
        engine_level=1,
        family_slug="f",
        steps=tuple(
            Step(
                ref=f"s{i}",
                type=StepType.ACTION,
                incoming=tuple(e for e, (_, target) in enumerate(edges) if target == i),
                outgoing=tuple(e for e, (source, _) in enumerate(edges) if source == i),
                action=ActionSpec(action="core:echo", args=of_step.get("args", {}).get(i, Template())),
                **{
                    field: by_step[i]
                    for field, by_step in of_step.items()
                    if field not in ("args", "condition") and i in by_step
                },
            )
            for i in range(steps)
        ),
        edges=tuple(
            Edge(source=source, target=target, type=EdgeType.SUCCESS, condition=of_step.get("condition", {}).get(e))
            for e, (source, target) in enumerate(edges)
        ),
        entrypoints=tuple(i for i in range(steps) if all(target != i for _, target in edges)),
    )


def _report(ref: str, attempt: int = 1, *, output: bool = True) -> AttemptReport:
    reference = OutputRef(attempt=attempt, size=1, hash="h") if output else None
    return AttemptReport(step_ref=ref, attempt=attempt, outcome=Outcome.SUCCEEDED, report_time=START, output=reference)


def _decided(manifest: Manifest, run: Run | None, **inbox: Any) -> Decision:
    decision = decide(manifest, programs_for(manifest), run, Inbox(start=_START, **inbox), START)
    assert isinstance(decision, Decision)
    return decision


def _after(manifest: Manifest, *refs: str) -> Run:
    """The run after the successes of these steps, one tick each."""
    run = _decided(manifest, None).run
    for ref in refs:
        run = _decided(manifest, run, reports=(_report(ref),), outputs={r: {"n": 1} for r in refs}).run
    assert run is not None
    return run


def _reads(*refs: str) -> Template:
    tree = {ref: f'${{{{ STEPS["{ref}"].output.n }}}}' for ref in refs}
    return Template(tree=tree, static=False, names=("STEPS",), steps=refs)


def test_everything_that_is_missing_is_asked_for_at_once() -> None:
    """A condition reads s0, the steps behind it read s0 and s1: one `Missing` names all, the second call decides."""
    condition = Expression(source='STEPS["s0"].output.n == 1', names=("STEPS",), steps=("s0",))
    guarded = _manifest(
        5,
        [(0, 1), (1, 2), (2, 3), (2, 4)],
        condition={2: condition},
        args={3: _reads("s0", "s1"), 4: _reads("s2")},
    )
    run = _after(guarded, "s0", "s1")
    inbox = Inbox(start=_START, reports=(_report("s2"),), outputs={"s2": {"n": 3}})
    first = decide(guarded, programs_for(guarded), run, inbox, START)
    assert first == Missing(steps=frozenset({"s0", "s1"}))
    given = {"s0": {"n": 1}, "s1": {"n": 2}, "s2": {"n": 3}}
    second = _decided(guarded, run, reports=(_report("s2"),), outputs=given)
    inputs = {e.step_ref: json.loads(e.input_json) for e in second.effects if isinstance(e, QueueTask)}
    assert inputs == {"s3": {"s0": 1, "s1": 2}, "s4": {"s2": 3}}


def test_a_step_without_output_is_never_missing() -> None:
    manifest = _manifest(
        2, [(0, 1)], args={1: Template(tree='${{ STEPS["s0"].output }}', static=False, names=("STEPS",), steps=("s0",))}
    )
    run = _decided(manifest, None).run
    decision = _decided(manifest, run, reports=(_report("s0", output=False),))
    assert [e.input_json for e in decision.effects if isinstance(e, QueueTask)] == ["null"]


def test_g8_facts_that_are_too_late_are_put_away() -> None:
    """No fact stays unapplied: a stale report closes its attempt, a timer that was shown is cleared; the run does not change."""
    manifest = _manifest(2, [(0, 1)])
    run = _after(manifest, "s0")
    timer = TimerDue(kind=TimerKind.TOTAL_TIMEOUT, step_ref="s0", due_time=START)
    decision = _decided(manifest, run, reports=(_report("s0"),), timers=(timer,))
    assert decision == Decision(
        effects=(
            CloseAttempt(step_ref="s0", attempt=1, status=AttemptStatus.SUCCEEDED),
            ClearTimers(step_ref="s0", kind=TimerKind.TOTAL_TIMEOUT),
        )
    )
    ended = _after(manifest, "s0", "s1")
    assert ended.status.terminal
    decision = _decided(manifest, ended, reports=(_report("s1"),), timers=(timer,))
    assert not decision.events
    assert decision.effects[1:] == (ClearTimers(),)
    assert _decided(manifest, ended) == Decision()


def test_a_timer_that_is_not_due_is_left_alone() -> None:
    manifest = _manifest(1, [], total_timeout_ms={0: 1_000})
    started = _decided(manifest, None)
    due = next(e.due_time for e in started.effects if isinstance(e, SetTimer))
    timer = TimerDue(kind=TimerKind.TOTAL_TIMEOUT, step_ref="s0", due_time=due)
    assert _decided(manifest, started.run, timers=(timer,)) == Decision()


def _lines(manifest: Manifest, run: Run, ref: str) -> int:
    """How many lines of Python one tick executes: a measure of its work that no busy machine disturbs."""
    lines = 0

    def trace(_frame: FrameType, event: str, _arg: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    inbox = Inbox(start=_START, reports=(_report(ref),))
    programs = programs_for(manifest)
    graph_of(manifest)  # worked out once per manifest, not per tick
    before = sys.gettrace()
    gc.disable()  # a collection would call back into whoever listens for it, and be counted
    sys.settrace(trace)
    try:
        decide(manifest, programs, run, inbox, START)
    finally:
        sys.settrace(before)
        gc.enable()
    return lines


@pytest.mark.parametrize("steps", [50, 500])
def test_a_tick_costs_what_changed_not_the_graph(steps: int) -> None:
    small = _manifest(10, [(i, i + 1) for i in range(9)])
    large = _manifest(steps, [(i, i + 1) for i in range(steps - 1)])
    assert _lines(large, _after(large, "s0", "s1"), "s2") == _lines(small, _after(small, "s0", "s1"), "s2")


def test_what_something_reads_is_known_beforehand() -> None:
    """A shell keeps those outputs at hand, and no others: they are all that a decision asks for."""
    edges = [(0, 1), (1, 2), (2, 3)]
    condition = {2: Expression(source='STEPS["s1"].output.n == 1', names=("STEPS",), steps=("s1",))}
    manifest = _manifest(4, edges, args={1: _reads("s0")}, condition=condition)
    assert graph_of(manifest).read == {"s0", "s1"}
    run = _decided(manifest, None).run
    for ref in ("s0", "s1", "s2", "s3"):
        outputs = {r: {"n": 1} for r in graph_of(manifest).read}
        run = _decided(manifest, run, reports=(_report(ref),), outputs=outputs).run
    assert run is not None
    assert run.status.terminal


def test_a_wide_join_is_not_scanned_whole_for_every_arrival() -> None:
    """500 steps into one: an arrival while another edge is open costs the same as in a join of ten."""
    narrow, wide = (_manifest(n + 1, [(i, n) for i in range(n)]) for n in (10, 499))
    assert _lines(wide, _after(wide, "s1"), "s2") == _lines(narrow, _after(narrow, "s1"), "s2")


def test_a4_a_report_of_an_earlier_attempt_changes_nothing() -> None:
    """The outcome of attempt 1 was lost and the task made again; what attempt 1 says after all is put away."""
    manifest = _manifest(1, [])
    lost = AttemptReport(step_ref="s0", attempt=1, outcome=Outcome.LOST, report_time=START)
    run = _decided(manifest, _decided(manifest, None).run, reports=(lost,)).run
    assert not _decided(manifest, run, reports=(_report("s0"),)).events
    assert _decided(manifest, run, reports=(_report("s0", 2),)).events


@pytest.mark.parametrize("outcome", [Outcome.LOST, Outcome.SUCCEEDED])
def test_a_report_that_is_shown_twice_at_once_counts_once(outcome: Outcome) -> None:
    """Invariant 3, within one tick."""
    manifest = _manifest(2, [(0, 1)])
    run = _decided(manifest, None).run
    report = AttemptReport(step_ref="s0", attempt=1, outcome=outcome, report_time=START)
    once, twice = (_decided(manifest, run, reports=(report,) * n) for n in (1, 2))
    assert twice.events == once.events


def test_a_step_type_is_a_file_a_line_an_enum_value_and_a_story() -> None:
    """What a new step type consists of is held together here."""
    root = Path(__file__).parents[2]
    files = {path.stem for path in (root / "services/ductord/engine/steps").glob("*.py")} - {
        "__init__",
        "kind",
        "parked",
        "bearing",
    }
    assert files == {str(step_type) for step_type in SUPPORTED}
    contract = "".join(path.read_text() for path in (root / "proto").rglob("*.proto"))
    stories = "".join(path.read_text() for path in (root / "tests/scenarios").glob("*.txt"))
    for step_type in StepType:
        assert f" STEP_TYPE_{step_type.name} = " in contract
    for step_type, kind in SUPPORTED.items():
        assert kind.start.__module__ == f"ductord.engine.steps.{step_type}"
        assert step_type is StepType.ACTION or f"type={step_type}" in stories, (
            "an action is what a story's step is unless told"
        )


def test_what_is_worked_out_for_a_manifest_dies_with_it() -> None:
    """A coordinator that has seen many versions keeps nothing of those that it has forgotten."""
    before = len(graph._memo)
    for _ in range(10):
        _after(_manifest(2, [(0, 1)]), "s0")
    gc.collect()
    assert len(graph._memo) <= before
