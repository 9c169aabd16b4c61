"""What controls ask of the commit, where no transcript shows it: tasks held and released, doubts about attempts, what a successor is given."""

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from ductord.engine.compile import compile_definition
from ductord.engine.controls.continuing import successor_of
from ductord.engine.decide import decide
from ductord.engine.errors import EngineError
from ductord.engine.expressions import programs_for
from ductord.engine.limits import Limits
from ductord.model.control import Control, ControlBody
from ductord.model.decision import Decision
from ductord.model.effects import ClearTimers, HoldTasks, QueueTask, RecordAudit, ReleaseTasks, SettleControl, StartRun
from ductord.model.enums import OperationStatus, Outcome, TimerKind, Verb
from ductord.model.events import AttemptEnded, InverseRegistered
from ductord.model.fault import OutputRef
from ductord.model.inbox import AttemptReport, Inbox, TimerDue
from ductord.model.manifest import Manifest
from ductord.model.run import Registered, Run, RunStart
from tests.support.starts import start_of
from tests.support.world import START

_UNDO = {"on_failure": [{"action": "core:echo"}]}


def _manifest(*steps: dict[str, Any], edges: tuple[tuple[str, str], ...] = (), **fields: Any) -> Manifest:
    definition = {
        "family_slug": "f",
        "steps": [{"type": "action", "action": "core:echo", **step} for step in steps],
        "edges": [{"source_ref": source, "target_ref": target, "type": "success"} for source, target in edges],
        **fields,
    }
    manifest = compile_definition(definition).manifest
    assert manifest is not None
    return manifest


def _control(verb: Verb, step_ref: str = "", **body: Any) -> Control:
    return Control(request_id=verb, verb=verb, create_time=START, step_ref=step_ref, body=ControlBody(**body))


def _decided(
    manifest: Manifest, run: Run | None, *, start: RunStart | None = None, limits: Limits | None = None, **inbox: Any
) -> Decision:
    given = Inbox(start=start or start_of(), **inbox)
    decision = decide(manifest, programs_for(manifest), run, given, START + timedelta(seconds=1), limits or Limits())
    assert isinstance(decision, Decision)
    return decision


def _after(manifest: Manifest, *controls: Control) -> Run:
    run = _decided(manifest, None).run
    for control in controls:
        run = _decided(manifest, run, controls=(control,)).run
    assert run is not None
    return run


def _ended(decision: Decision) -> dict[str, AttemptEnded]:
    return {event.step_ref: event for event in decision.events if isinstance(event, AttemptEnded)}


def _holds(decision: Decision) -> list[HoldTasks | ReleaseTasks]:
    return [effect for effect in decision.effects if isinstance(effect, HoldTasks | ReleaseTasks)]


A, B = {"ref": "a"}, {"ref": "b"}
PAUSE, RESUME = _control(Verb.PAUSE), _control(Verb.RESUME)


def test_c2_a_pause_holds_all_tasks_and_a_resume_releases_all_but_those_of_paused_nodes() -> None:
    manifest = _manifest(A, B)
    hold_a, pause = _control(Verb.PAUSE_NODE, "a"), PAUSE
    run = _after(manifest)
    assert _holds(_decided(manifest, run, controls=(pause,))) == [HoldTasks()]
    assert _holds(_decided(manifest, run, controls=(hold_a,))) == [HoldTasks(step_ref="a")]
    paused = _after(manifest, hold_a, pause)
    assert _holds(_decided(manifest, paused, controls=(RESUME,))) == [ReleaseTasks(still_held=("a",))]
    release_a = _control(Verb.RESUME_NODE, "a")
    assert _holds(_decided(manifest, paused, controls=(release_a,))) == []
    assert _holds(_decided(manifest, paused, controls=(release_a, RESUME))) == [ReleaseTasks()]
    assert _holds(_decided(manifest, _after(manifest, hold_a), controls=(release_a,))) == [ReleaseTasks(step_ref="a")]


def test_c2_what_meets_in_one_tick_is_worked_out_once() -> None:
    manifest = _manifest(A)
    assert _holds(_decided(manifest, _after(manifest), controls=(PAUSE, RESUME))) == []
    assert _holds(_decided(manifest, _after(manifest, PAUSE), controls=(RESUME, PAUSE))) == []


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.TERMINATE, Verb.CONTINUE_AS_NEW])
def test_c2_a_paused_run_that_is_ended_releases_nothing(verb: Verb) -> None:
    """Nobody may be given a task between the stop and its revocation."""
    manifest = _manifest(A)
    assert _holds(_decided(manifest, _after(manifest, PAUSE), controls=(_control(verb),))) == []


def test_c2_a_retry_under_a_pause_is_queued_held() -> None:
    manifest = _manifest({**A, "retry_max_attempts": 2}, B)
    failed = AttemptReport(step_ref="a", attempt=1, outcome=Outcome.FAILED, report_time=START, start_time=START)
    for controls in ((PAUSE,), (_control(Verb.PAUSE_NODE, "a"),)):
        decision = _decided(manifest, _after(manifest, *controls), reports=(failed,))
        assert [effect.held for effect in decision.effects if isinstance(effect, QueueTask)] == [True]
    decision = _decided(manifest, _after(manifest), reports=(failed,))
    assert [effect.held for effect in decision.effects if isinstance(effect, QueueTask)] == [False]


@pytest.mark.parametrize(
    "control",
    [_control(Verb.TERMINATE), _control(Verb.RESET_NODE, "a")],
    ids=lambda control: str(control.verb),
)
def test_c7_who_closes_an_attempt_says_whether_a_worker_had_taken_it(control: Control) -> None:
    """Its effect may exist then."""
    manifest = _manifest(A)
    run = _after(manifest)
    for started in (frozenset[str](), frozenset({"a"})):
        decision = _decided(manifest, run, controls=(control,), started=started)
        assert _ended(decision)["a"].started is ("a" in started)


def test_c7_what_a_report_says_of_an_attempt_tells_whether_a_worker_had_taken_it() -> None:
    manifest = _manifest({**A, "retry_max_attempts": 2})
    for start_time in (None, START):
        report = AttemptReport(
            step_ref="a", attempt=1, outcome=Outcome.REVOKED, report_time=START, start_time=start_time
        )
        decision = _decided(manifest, _after(manifest), reports=(report,))
        assert _ended(decision)["a"].started is (start_time is not None)


def test_c7_a_success_that_meets_the_end_of_its_time_is_registered() -> None:
    """The total time-out was due before the success was reported, in one tick: the node fails, and its effect is there to be undone."""
    manifest = _manifest({**A, "total_timeout_ms": 500, "compensation": _UNDO}, B)
    run = _after(manifest)
    timer = TimerDue(kind=TimerKind.TOTAL_TIMEOUT, step_ref="a", due_time=run.start_time or START)
    output = OutputRef(attempt=1, size=2, hash="h")
    report = AttemptReport(
        step_ref="a",
        attempt=1,
        outcome=Outcome.SUCCEEDED,
        report_time=START + timedelta(seconds=2),
        start_time=START,
        output=output,
    )
    later = START + timedelta(seconds=2)
    inbox = Inbox(start=start_of(), timers=(timer,), reports=(report,), outputs={"a": {}}, started=frozenset({"a"}))
    decision = decide(manifest, programs_for(manifest), run, inbox, later)
    assert isinstance(decision, Decision)
    assert _ended(decision)["a"].outcome is Outcome.TIMED_OUT
    registered = [event for event in decision.events if isinstance(event, InverseRegistered)]
    assert [(event.step_ref, event.attempt, event.logical) for event in registered] == [("a", 1, 1)]
    again = decide(manifest, programs_for(manifest), decision.run, inbox, later)
    assert isinstance(again, Decision)
    assert not any(isinstance(event, InverseRegistered) for event in again.events)


def test_c6_a_successor_gets_the_overlaid_context_and_the_inverses() -> None:
    manifest = _manifest({**A, "compensation": _UNDO}, B, edges=(("a", "b"),))
    output = OutputRef(attempt=1, size=2, hash="h")
    report = AttemptReport(
        step_ref="a", attempt=1, outcome=Outcome.SUCCEEDED, report_time=START, start_time=START, output=output
    )
    control = _control(Verb.CONTINUE_AS_NEW, seed={"n": 2, "m": {"x": 1}})
    start = start_of(context={"n": 1, "k": 0})
    decision = _decided(
        manifest, _after(manifest), start=start, reports=(report,), outputs={"a": {}}, controls=(control,)
    )
    assert decision.run is not None
    successor = decision.run.continued_to_run_id
    born = [effect for effect in decision.effects if isinstance(effect, StartRun)]
    assert [effect.run_id for effect in born] == [successor]
    assert json.loads(born[0].context_json) == {"n": 2, "k": 0, "m": {"x": 1}}
    assert born[0].inverses == (Registered(step_ref="a", attempt=1, logical=1, run_id="r"),)
    settled = [effect for effect in decision.effects if isinstance(effect, SettleControl)]
    assert [(effect.status, effect.result) for effect in settled] == [
        (OperationStatus.APPLIED, {"new_run_id": successor})
    ]
    assert successor_of(decision.run, "another") == successor, "field case RR-03"
    assert successor_of(_after(manifest), control.request_id) == successor
    on_its_way = _after(_manifest(A), control)
    assert not on_its_way.status.terminal
    assert successor_of(on_its_way, "another") == successor


def test_l7_a_run_context_that_would_grow_too_large_is_refused() -> None:
    manifest = _manifest(A)
    control = _control(Verb.CONTINUE_AS_NEW, seed={"n": "x" * 100})
    decision = _decided(
        manifest,
        _after(manifest),
        start=start_of(context={"m": "y" * 100}),
        limits=Limits(aggregate_max_bytes=150),
        controls=(control,),
    )
    assert not decision.events
    settled = [effect for effect in decision.effects if isinstance(effect, SettleControl)]
    assert [(effect.status, effect.code) for effect in settled] == [(OperationStatus.REJECTED, "PAYLOAD_TOO_LARGE")]
    assert settled[0].result == {"field": "seed_run_context", "limit_bytes": "150"}


def test_c9_a_close_without_the_control_that_it_settles_cannot_be() -> None:
    manifest = _manifest(A)
    run = _after(manifest, _control(Verb.CONTINUE_AS_NEW))
    report = AttemptReport(step_ref="a", attempt=1, outcome=Outcome.REVOKED, report_time=START)
    with pytest.raises(EngineError, match="CONTROL_MISSING"):
        _decided(manifest, run, reports=(report,))


def test_c6_the_tiers_are_noted_once_each() -> None:
    chain = [f"s{i}" for i in range(5)]
    manifest = _manifest(*({"ref": ref} for ref in chain), edges=tuple(pairwise(chain)))
    limits = Limits(history_soft=2, history_hard=4, history_terminate=7)
    notes: list[list[str]] = []
    decision = _decided(manifest, None, limits=limits)
    for i in range(4):
        assert decision.run is not None
        report = AttemptReport(step_ref=f"s{i}", attempt=1, outcome=Outcome.SUCCEEDED, report_time=START)
        decision = _decided(manifest, decision.run, limits=limits, reports=(report,))
        notes.append([effect.action for effect in decision.effects if isinstance(effect, RecordAudit)])
    assert notes == [["history_soft"], ["history_hard"], [], ["history_terminate"]]


def test_g8_the_end_of_a_stopped_run_leaves_no_timer() -> None:
    """The grace of an earlier stop must not outlive a terminate, which has none."""
    manifest = _manifest(A)
    run = _after(manifest, _control(Verb.CANCEL))
    assert ClearTimers() in _decided(manifest, run, controls=(_control(Verb.TERMINATE),)).effects


def test_a_control_that_is_settled_changes_nothing_else() -> None:
    """A refusal in the tick is an effect without an event: neither history nor record version grows."""
    manifest = _manifest(A)
    decision = _decided(manifest, _after(manifest), controls=(RESUME,))
    assert not decision.events
    assert decision.run is None
    assert [effect.code for effect in decision.effects if isinstance(effect, SettleControl)] == ["RUN_STATUS_UNSUITED"]
