"""The laws of compensation on random graphs, with random ends, silent workers and late words (ruling C7; SA-01, SA-02, SA-04).

An outside ledger keeps count of effects: whatever happens, an effect is undone once at most; and when everybody has said what he did and inverses
succeed, every effect of a run that failed or was cancelled is undone, or is shown to a person.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ductord.engine.decide import decide
from ductord.engine.ledger import actions_of
from ductord.model.control import ControlBody
from ductord.model.decision import Decision
from ductord.model.enums import InverseStatus, Resolution, TaskKind, Verb
from ductord.model.events import InverseEnded
from ductord.model.ids import idempotency_key
from ductord.model.inbox import Inbox
from ductord.model.manifest import Manifest
from tests.engine.saga_life import BLOCKS, SUCCESS, Life
from tests.engine.sagas import sagas, words

_FACTOR = int(os.environ.get("DUCTOR_LAWS", "1"))


def _search(examples: int) -> settings:
    return settings(
        max_examples=examples * _FACTOR,
        derandomize=_FACTOR == 1,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


def _live(life: Life, data: st.DataObject, verbs: tuple[Verb, ...]) -> None:
    """Workers, time and operators do as they like, until the run has ended."""
    life.settle()
    for _ in range(50):
        if life.run.status.terminal:
            return
        free = life.rows.leasable(life.now)
        choice = data.draw(st.integers(0, 9), label="what")
        if choice == 0 and verbs:
            _operate(life, data, data.draw(st.sampled_from(verbs), label="verb"))
        elif choice == 1 and life.late_words():
            life.say_late(data.draw(st.sampled_from(life.late_words()), label="late"))
        elif choice < 4 and free:
            life.take(data.draw(st.sampled_from(free), label="row"), acts=data.draw(st.booleans(), label="acts"))
        elif choice < 8 and life.workable():
            life.work(data.draw(st.sampled_from(life.workable()), label="row"), data.draw(words, label="word"))
        else:
            life.wait()
        if data.draw(st.integers(0, 3), label="tick"):
            life.settle()
    if data.draw(st.booleans(), label="cancel"):
        life.ask(Verb.CANCEL)
    _finish(life, lambda: life.run.status.terminal)


def _operate(life: Life, data: st.DataObject, verb: Verb) -> None:
    match verb:
        case Verb.RESET_NODE:
            life.ask(verb, data.draw(st.sampled_from(life.resettable()), label="ref"))
        case Verb.TERMINATE:
            life.ask(verb, body=ControlBody(skip_finally=data.draw(st.booleans(), label="skip")))
        case _:
            life.ask(verb)


def _finish(life: Life, over: Callable[[], bool] | None = None) -> None:
    """Everything goes well from here on, so run and compensation must end."""
    for _ in range(300):
        life.settle()
        if over() if over is not None else life.over:
            return
        ready = life.workable()
        for row in ready:
            life.work(row, SUCCESS)
        if not ready:
            life.wait()
    pytest.fail("the run does not end")


@_search(200)
@given(manifest=sagas(), data=st.data())
def test_every_effect_that_is_known_is_undone_once(manifest: Manifest, data: st.DataObject) -> None:
    """SA-01, SA-02: an outside ledger of effects balances when all have been heard and inverses succeed."""
    life = Life(manifest)
    _live(life, data, (Verb.CANCEL, Verb.TERMINATE, Verb.RESET_NODE))
    while not life.over or life.silent:
        late = life.late_words()
        early: bool = data.draw(st.booleans(), label="late first") if late else False
        if early:
            life.say_late(late[0])
        elif life.workable():
            life.work(life.workable()[0], SUCCESS)
        elif late:
            life.say_late(late[0])
        else:
            life.wait()
        life.settle()
    life.check_end()
    life.check_balance()


@_search(200)
@given(manifest=sagas(), data=st.data())
def test_what_nobody_heard_of_is_shown_to_a_person(manifest: Manifest, data: st.DataObject) -> None:
    """SA-02: an effect of which nobody says a word is never left alone silently."""
    life = Life(manifest)
    _live(life, data, (Verb.CANCEL, Verb.RESET_NODE))
    _finish(life)
    life.check_end()
    block = BLOCKS.get(life.run.status)
    steps = {step.ref: step for step in manifest.steps}
    for effect, ref in life.outside.acted.items():
        if effect in life.outside.told or block is None or not actions_of(steps[ref], block):
            continue
        entries = [e for e in life.run.saga.plan if e.step_ref == ref and e.kind is TaskKind.COMPENSATION]
        known = [idempotency_key("r", ref, -1, e.source_logical) for e in entries if not e.source_attempt]
        assert effect in known, "an unknown effect has an entry"
    for entry in life.run.saga.plan:
        if entry.kind is TaskKind.COMPENSATION and not entry.source_attempt:
            assert entry.status is InverseStatus.MANUAL_REPAIR
            assert entry.fault is not None
            assert entry.fault.code == "outcome_unknown"


@_search(250)
@given(manifest=sagas(), data=st.data())
def test_nothing_is_undone_twice_whatever_inverses_and_people_do(manifest: Manifest, data: st.DataObject) -> None:
    """SA-04: failing, silent and late inverses, repairs, and redrives with force; every entry is settled and the end says so."""
    life = Life(manifest)
    _live(life, data, (Verb.CANCEL, Verb.TERMINATE, Verb.RESET_NODE))
    for _ in range(40):
        free = life.rows.leasable(life.now)
        choice = data.draw(st.integers(0, 9), label="what")
        if choice == 0:
            _repair(life, data)
        elif choice == 1 and life.over and life.run.status in BLOCKS:
            life.ask(Verb.REDRIVE, body=ControlBody(force=True))
        elif choice in (2, 3) and life.late_words():
            life.say_late(data.draw(st.sampled_from(life.late_words()), label="late"))
        elif choice in (4, 5) and free:
            life.take(data.draw(st.sampled_from(free), label="row"), acts=data.draw(st.booleans(), label="acts"))
        elif life.workable():
            life.work(data.draw(st.sampled_from(life.workable()), label="row"), data.draw(words, label="word"))
        elif life.over:
            break
        else:
            life.wait()
        life.settle()
    _finish(life)
    life.check_end()
    _settled_by_policy(life)


def _repair(life: Life, data: st.DataObject) -> None:
    needy = [n for n, entry in enumerate(life.run.saga.plan) if entry.status is InverseStatus.MANUAL_REPAIR]
    if needy:
        position = data.draw(st.sampled_from(needy), label="repair")
        resolution = data.draw(
            st.sampled_from([Resolution.RETRY, Resolution.RETRY, Resolution.NOT_NEEDED]), label="how"
        )
        body = ControlBody(resolution=resolution, position=position)
        life.ask(Verb.RESOLVE_REPAIR, life.run.saga.plan[position].step_ref, body)


def _settled_by_policy(life: Life) -> None:
    """An entry that failed stands as its step's policy says."""
    steps = {step.ref: step for step in life.manifest.steps}
    words: dict[str, InverseStatus] = {
        "manual_repair": InverseStatus.MANUAL_REPAIR,
        "fail_compensation": InverseStatus.FAILED,
        "ignore_with_audit": InverseStatus.IGNORED,
    }
    for transition in life.rows.history:
        for event in transition.events:
            if isinstance(event, InverseEnded) and event.fault is not None and event.fault.code != "effect_turned_up":
                compensation = steps[event.step_ref].compensation
                assert compensation is not None
                assert event.status is words[compensation.failure_policy.value]


@_search(80)
@given(manifest=sagas(), data=st.data())
def test_facts_that_were_applied_change_nothing_during_an_unwinding(manifest: Manifest, data: st.DataObject) -> None:
    """A report and a late success that are shown again, because a commit's outcome was not known, decide nothing new."""
    life = Life(manifest)
    _live(life, data, (Verb.CANCEL,))
    shown: list[Any] = []
    for _ in range(30):
        if life.over and not life.silent:
            break
        if life.workable():
            life.work(life.workable()[0], data.draw(words, label="word"))
        elif life.late_words():
            life.say_late(life.late_words()[0])
        else:
            life.wait()
        reports, lates = tuple(life.rows._reports()), tuple(life.rows._lates())
        life.settle()
        shown += [*reports, *lates]
        sources = {
            ("r", e.step_ref, e.item_index, e.source_attempt): {"effect": "e"}
            for e in life.run.saga.plan
            if e.source_attempt
        }
        inbox = Inbox(start=life.rows.start, reports=reports, lates=lates, source_outputs=sources)
        again = decide(manifest, life.rows.programs, life.run, inbox, life.now)
        assert isinstance(again, Decision)
        assert not again.events
