"""What people say to a run, beyond what the stories tell: what a tick asks for, what is bounded, and what becomes of a word that comes too late for every door
(rulings E1, E2, E6, C6)."""

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ductord.engine.compile import compile_definition
from ductord.engine.decide import decide
from ductord.engine.expressions import programs_for
from ductord.engine.limits import LIMITS
from ductord.engine.steps import human_loop
from ductord.model.control import Control, ControlBody
from ductord.model.decision import Decision, Missing
from ductord.model.effects import ClearTimers, MoveSignals, RecordAudit, RecordOutput, SettleSignal
from ductord.model.enums import NodeStatus, Outcome, SignalStatus, SignalVerb, TimerKind, Verb
from ductord.model.inbox import Inbox, Signal, TimerDue
from ductord.model.run import Run
from tests.support.rows import Rows
from tests.support.starts import start_of
from tests.support.story import parse_definition
from tests.support.world import RUN_ID, START

APPROVAL = ('step ap type=approval approval={"timeout_ms": 10000, "on_timeout": "skip"}', "step a", "ap -approved-> a")
CASE = ('step case type=human_loop human_loop={"case_type": "fraud"}',)


def _rows(*lines: str) -> Rows:
    compiled = compile_definition(parse_definition(lines, "signals"))
    assert compiled.manifest is not None, compiled.errors
    start = start_of(run_id=RUN_ID, family_slug="signals")
    rows = Rows(compiled.manifest, programs_for(compiled.manifest), start)
    rows.tick(START)
    return rows


def _word(name: str, verb: SignalVerb, ref: str, *, after_ms: int = 0, **fields: Any) -> Signal:
    at = START + timedelta(milliseconds=after_ms)
    return Signal(request_id=name, verb=verb, step_ref=ref, create_time=at, approver_id=name, **fields)


def _decide(rows: Rows, *said: Signal, after_ms: int = 0, **more: Any) -> Decision | Missing:
    inbox = Inbox(start=rows.start, signals=said, **more)
    return decide(rows.manifest, rows.programs, rows.run, inbox, START + timedelta(milliseconds=after_ms), rows.limits)


def _run(rows: Rows) -> Run:
    assert rows.run is not None
    return rows.run


def _settled(decision: Decision | Missing) -> dict[str, SignalStatus]:
    assert isinstance(decision, Decision)
    return {e.request_id: e.status for e in decision.effects if isinstance(e, SettleSignal)}


def test_a_decision_asks_for_its_payload_and_an_approval_among_several_does_not() -> None:
    """E2: payloads stay where they are until they are needed."""
    word = _word("ann", SignalVerb.APPROVE, "ap")
    assert _decide(_rows(*APPROVAL), word) == Missing(payloads=frozenset({word.key}))
    of_two = _rows('step ap type=approval approval={"required": 2}')
    decision = _decide(of_two, word)
    assert _settled(decision) == {"ann": SignalStatus.APPLIED}


def test_a_case_asks_for_everything_that_was_said_at_once() -> None:
    """E6."""
    rows = _rows(*CASE)
    for name in ("w1", "w2"):
        rows.outside.tell(_word(name, SignalVerb.RESOLVE_INTERACTION, "case", status="seen"), {"n": name})
        rows.tick(START)
    last = _word("w3", SignalVerb.RESOLVE_INTERACTION, "case", status="resolved")
    assert _decide(rows, last) == Missing(payloads=frozenset({"signal:w1", "signal:w2", "signal:w3"}))


def test_everything_about_a_decision_is_in_one_commit() -> None:
    """SE-05: the output, the word's end, its line in the trail and the death of the timer."""
    word = _word("ann", SignalVerb.APPROVE, "ap", comment="fine")
    decision = _decide(_rows(*APPROVAL), word, payloads={word.key: {"n": 1}})
    assert isinstance(decision, Decision)
    assert ClearTimers(step_ref="ap", kind=TimerKind.WAIT_TIMEOUT) in decision.effects
    assert SettleSignal(request_id="ann", status=SignalStatus.APPLIED, decided=True) in decision.effects
    assert [e.step_ref for e in decision.effects if isinstance(e, RecordOutput)] == ["ap"]


def test_a_time_out_that_decides_is_in_the_trail() -> None:
    """E2, C8."""
    timer = TimerDue(kind=TimerKind.WAIT_TIMEOUT, step_ref="ap", due_time=START + timedelta(seconds=10))
    decision = _decide(_rows(*APPROVAL), after_ms=10_000, timers=(timer,))
    assert isinstance(decision, Decision)
    notes = [e for e in decision.effects if isinstance(e, RecordAudit)]
    assert [note.action for note in notes] == ["approval_timeout"]
    assert notes[0].message == "step ap: nobody decided within timeout_ms 10000, so on_timeout skip acts"


def test_a_case_hears_so_many_words_and_then_only_the_last() -> None:
    """E6: what is said about a case does not make a run grow for ever."""
    rows = _rows(*CASE)
    for number in range(human_loop.MOST + 5):
        name = f"w{number}"
        rows.outside.tell(_word(name, SignalVerb.RESOLVE_INTERACTION, "case", status=name), {name: number})
        rows.tick(START)
    wait = _run(rows).nodes[0].waiting
    assert wait is not None
    assert (len(wait.heard), wait.case_status) == (human_loop.MOST, f"w{human_loop.MOST - 1}")
    ignored = [name for name, effect in rows.outside.settled.items() if effect.status is SignalStatus.IGNORED]
    assert ignored == [f"w{human_loop.MOST + n}" for n in range(5)]
    rows.outside.tell(_word("end", SignalVerb.RESOLVE_INTERACTION, "case", status="resolved"), {"end": True})
    rows.tick(START)
    assert _run(rows).nodes[0].status is NodeStatus.SUCCEEDED
    assert len(rows.output_of("case")["result"]) == human_loop.MOST + 1


def test_words_that_are_too_much_together_fail_the_step() -> None:
    """E6, L7: each was within the limit of a payload, all together are not an output."""
    rows = _rows(*CASE)
    rows.limits = replace(LIMITS, aggregate_max_bytes=1_000)
    for number in range(3):
        status = "resolved" if number == 2 else "seen"
        word = _word(f"w{number}", SignalVerb.RESOLVE_INTERACTION, "case", status=status)
        rows.outside.tell(word, {f"k{number}": "x" * 500})
        rows.tick(START)
    node = _run(rows).nodes[0]
    assert node.fault is not None
    assert (node.status, node.fault.code, node.output) == (NodeStatus.FAILED, "payload_too_large", None)
    assert all(effect.status is SignalStatus.APPLIED for effect in rows.outside.settled.values())


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.TERMINATE])
def test_a_word_that_slipped_through_the_door_of_a_run_that_ended_is_discarded(verb: Verb) -> None:
    """E1: the service looked before the run ended, the coordinator after."""
    rows = _rows(*APPROVAL)
    rows.controls["c"] = Control(request_id="c", verb=verb, create_time=START)
    rows.tick(START)
    decision = _decide(rows, _word("ann", SignalVerb.APPROVE, "ap"))
    assert isinstance(decision, Decision)
    assert not decision.events
    assert _settled(decision) == {"ann": SignalStatus.DISCARDED}


def test_a_word_that_slipped_through_the_door_of_a_run_that_went_on_goes_after_it() -> None:
    """C6, SE-07: applied in exactly one of the two runs, and never silently dropped; a word for a step that had ended by itself is for nobody."""
    rows = _rows(*APPROVAL, "step done type=approval", "step x", "done -approved-> x")
    rows.outside.tell(_word("dan", SignalVerb.APPROVE, "done"), None)
    rows.tick(START)
    rows.controls["c"] = Control(request_id="c", verb=Verb.CONTINUE_AS_NEW, create_time=START, body=ControlBody())
    rows.tick(START)
    for row in rows.attempts.values():
        if row.waiting:
            rows.lease(row, START)
    rows.tick(START + timedelta(minutes=1))
    run = _run(rows)
    assert run.continued_to_run_id
    decision = _decide(rows, _word("ann", SignalVerb.APPROVE, "ap"), _word("bob", SignalVerb.APPROVE, "done"))
    assert isinstance(decision, Decision)
    assert not decision.events
    moves = [e for e in decision.effects if isinstance(e, MoveSignals)]
    assert moves == [MoveSignals(run_id=run.continued_to_run_id, request_ids=("ann",))]
    assert _settled(decision) == {"bob": SignalStatus.IGNORED}


def test_a_step_that_takes_no_word_keeps_it_until_it_has_ended() -> None:
    """E1: an action has no use for a signal; it is recorded as ignored, not lost and not applied."""
    rows = _rows("step a")
    assert _decide(rows, _word("ann", SignalVerb.APPROVE, "a")) == Decision()
    row = rows.attempts["a", 1]
    rows.lease(row, START)
    rows.outside.tell(_word("ann", SignalVerb.APPROVE, "a"), None)
    row.output, row.has_output = {}, True
    assert rows.report(row, Outcome.SUCCEEDED, START)
    rows.tick(START)
    assert rows.outside.settled["ann"].status is SignalStatus.IGNORED


@settings(max_examples=200, derandomize=True, database=None, deadline=None)
@given(
    said=st.lists(
        st.tuples(st.sampled_from((SignalVerb.APPROVE, SignalVerb.REJECT)), st.integers(0, 12)), min_size=1, max_size=5
    ),
    ticks=st.sets(st.integers(0, 14)),
)
def test_the_first_decision_wins_whenever_it_is_looked_at(said: list[tuple[SignalVerb, int]], ticks: set[int]) -> None:
    """SE-05: approvals, rejections and a time-out at any moments and ticks at any others: the earliest decides, the time-out last of one instant, and what is
    said later is ignored."""
    rows = _rows(*APPROVAL)
    said = sorted(said, key=lambda word: word[1])
    for second in sorted({*ticks, 15}):
        for number, (verb, at) in enumerate(said):
            if at <= second:
                rows.outside.tell(_word(f"w{number}", verb, "ap", after_ms=at * 1_000), None)
        rows.tick(START + timedelta(seconds=second))
    node = _run(rows).nodes[0]
    in_time = [number for number, (_, at) in enumerate(said) if at <= 10]
    if not in_time:
        assert (node.status, node.skip_reason) == (NodeStatus.SKIPPED, "timeout")
    else:
        approved = said[0][0] is SignalVerb.APPROVE
        assert (node.status is NodeStatus.SUCCEEDED) is approved
    applied = [name for name, effect in rows.outside.settled.items() if effect.status is SignalStatus.APPLIED]
    assert applied == ([f"w{in_time[0]}"] if in_time else [])
    assert len(rows.outside.settled) == len(said)
    assert not [timer for timer in rows.timers if timer[1] == "ap"]
