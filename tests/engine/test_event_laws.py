"""The laws of waits for external events, on random sets and random publications (rulings E3, E4; SE-01, SE-02, SE-03).

When the run is ticked does not matter, nor in which order a tick is shown its receipts, nor whether it is shown them twice; what a set comes to is what its
policy says, read off the publications by an oracle that is written differently; folding the history rebuilds the run; a wait ends once, and leaves nothing
open; every receipt is applied in the end.
"""

import itertools
import os
from collections import Counter
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ductord.engine.compile import compile_definition
from ductord.engine.decide import decide
from ductord.engine.evolve import fold
from ductord.engine.expressions import programs_for
from ductord.engine.steps import event_set
from ductord.model.control import Control
from ductord.model.decision import Decision
from ductord.model.effects import CloseWait, OpenWait, TakeReceipts
from ductord.model.enums import CompletionPolicy, NodeStatus, SkipReason, TimerKind, Verb
from ductord.model.events import NodeEnded, NodeParked
from ductord.model.inbox import External, Inbox, Receipt, TimerDue
from ductord.model.manifest import Manifest
from ductord.model.run import Node, Run
from tests.support.rows import Rows
from tests.support.starts import start_of
from tests.support.world import START

_FACTOR = int(os.environ.get("DUCTOR_LAWS", "1"))
_TIMEOUT_MS = 1_000


def _search(examples: int) -> settings:
    return settings(
        max_examples=examples * _FACTOR,
        derandomize=_FACTOR == 1,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


class Publication(msgspec.Struct, frozen=True, kw_only=True):
    """An event, published `gap_ms` after the one before. `ticked`: the run is ticked after it."""

    name: str
    event_id: str
    n: int
    key: str = "k"
    gap_ms: int = 1
    ticked: bool = True

    def meets(self, requirement: dict[str, Any]) -> bool:
        """Whether it matches that pattern: the filters of these laws are all thresholds."""
        least = int(requirement["filter"].rpartition(" ")[2]) if "filter" in requirement else 0
        return self.key == "k" and self.name == requirement["event_name"] and self.n >= least


_publications = st.builds(
    Publication,
    name=st.sampled_from("abc"),
    event_id=st.sampled_from(["e1", "e2", "e3", "e4", "e5"]),
    n=st.integers(0, 3),
    key=st.sampled_from(["k", "k", "k", "k", "other"]),
    gap_ms=st.sampled_from([1, 10, 150, 400]),
    ticked=st.booleans(),
)


@st.composite
def _sets(
    draw: Any, *, timeout: bool = True, policies: tuple[CompletionPolicy, ...] = tuple(CompletionPolicy)
) -> dict[str, Any]:
    """What an `event_set` step says."""
    requirements: list[dict[str, Any]] = []
    for number in range(draw(st.integers(1, 4))):
        requirement: dict[str, Any] = {"name": f"r{number}", "event_name": draw(st.sampled_from("abc"))}
        if draw(st.booleans()):
            requirement["filter"] = f"EVENT.payload.n >= {draw(st.integers(1, 3))}"
        requirements.append(requirement)
    policy = draw(st.sampled_from(policies))
    written: dict[str, Any] = {
        "correlation_key": '"k"',
        "requirements": requirements,
        "completion_policy": policy.value,
    }
    match policy:
        case CompletionPolicy.QUORUM:
            written["quorum"] = draw(st.integers(1, len(requirements)))
        case CompletionPolicy.COUNT:
            written["count"] = draw(st.integers(1, 5))
        case CompletionPolicy.UNTIL_TIMEOUT:
            written["min"] = draw(st.integers(0, 4))
    if policy is CompletionPolicy.UNTIL_TIMEOUT or (timeout and draw(st.booleans())):
        written["timeout_ms"] = _TIMEOUT_MS
        written["on_timeout"] = draw(st.sampled_from(["fail", "skip", "continue"]))
    return written


def _compiled(*steps: dict[str, Any]) -> Manifest:
    compiled = compile_definition({"family_slug": "law", "steps": list(steps), "edges": []})
    assert compiled.manifest is not None, compiled.errors
    return compiled.manifest


def _set(written: dict[str, Any], ref: str = "s") -> dict[str, Any]:
    return {"ref": ref, "type": "event_set", "on_error": "continue", "event_set": written}


class _Life:
    """A run that waits for events, checked after every tick."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        start = start_of(family_slug="law")
        self.rows = Rows(manifest, programs_for(manifest), start)
        self.now = START
        self.tick()

    @property
    def run(self) -> Run:
        assert self.rows.run is not None
        return self.rows.run

    def node(self, ref: str = "s") -> Node:
        return next(n for step, n in zip(self.manifest.steps, self.run.nodes, strict=True) if step.ref == ref)

    def publish(self, of: Publication) -> int:
        event = External(
            event_name=of.name, event_id=of.event_id, correlation_key=of.key, payload={"n": of.n}, time=self.now
        )
        return self.rows.outside.publish(event, None)[0]

    def play(self, publications: list[Publication]) -> None:
        for publication in publications:
            self.now += timedelta(milliseconds=publication.gap_ms)
            self.publish(publication)
            if publication.ticked:
                self.tick()
        self.tick()

    def tick(self) -> None:
        while self.rows.tick(self.now) is not None:
            pass
        self.check()

    def control(self, verb: Verb, ref: str = "") -> None:
        name = f"{verb}-{len(self.rows.controls)}"
        self.rows.controls[name] = Control(request_id=name, verb=verb, create_time=self.now, step_ref=ref)
        self.tick()

    def check(self) -> None:
        history = [event for t in self.rows.history for event in t.events]
        assert fold(self.manifest, "r", ((t.at, t.events) for t in self.rows.history)) == self.run
        listening = set[tuple[str, int]]()
        timed = set[str]()
        for step, node in zip(self.manifest.steps, self.run.nodes, strict=True):
            own = [e for e in history if isinstance(e, NodeParked | NodeEnded) and e.step_ref == step.ref]
            own = [e for e in own if isinstance(e, NodeParked) or e.skip_reason is not SkipReason.RUN_ENDED]
            assert node.attempt == sum(isinstance(e, NodeParked) for e in own), "every wait has a number of its own"
            for first, second in itertools.pairwise(own):
                assert not (isinstance(first, NodeEnded) and isinstance(second, NodeEnded)), "a wait ends once"
            if node.status is NodeStatus.WAITING:
                assert node.waiting is not None
                listening.add((step.ref, node.attempt))
                if node.waiting.timeout_time is not None:
                    timed.add(step.ref)
                met = Counter((r.event_name, r.event_id, r.requirement) for r in node.waiting.received)
                assert set(met.values()) <= {1}, "an event counts once (SE-02)"
        assert set(self.rows.outside.waits) == listening, "who waits listens, and nobody else"
        assert {ref for kind, ref in self.rows.timers if kind is TimerKind.WAIT_TIMEOUT} == timed
        if not self.run.held:
            assert not self.rows.outside.unapplied(), "what was received is applied (SE-03)"

    def result(self, ref: str = "s") -> tuple[Any, ...]:
        """What the set came to, without the instants at which it was looked at."""
        node = self.node(ref)
        output = self.rows.output_of(ref) if node.output is not None else None
        received = node.waiting.received if node.waiting is not None else None
        return node.status, node.skip_reason, node.fault, output, received


def _expected(written: dict[str, Any], publications: list[Publication]) -> tuple[Any, ...]:
    """Ruling E4, read off the publications: (status, satisfied_by, [(requirement, event id, n)])."""
    policy, requirements = written["completion_policy"], written["requirements"]
    deadline = written.get("timeout_ms")
    now = 0
    dealt = set[tuple[str, str]]()
    got: list[tuple[str, str, str, int]] = []
    for publication in publications:
        now += publication.gap_ms
        if deadline is not None and now > deadline:
            break
        met = [r["name"] for r in requirements if publication.meets(r)]
        event = (publication.name, publication.event_id)
        if not met or event in dealt:
            continue
        dealt.add(event)
        if policy in ("all_required", "any", "quorum"):
            met = [name for name in met if name not in {g[0] for g in got}]
        got += [(name, publication.name, publication.event_id, publication.n) for name in sorted(met)]
        names, events = {g[0] for g in got}, {g[1:3] for g in got}
        need: dict[str, int] = {"all_required": len(requirements), "any": 1, "quorum": written.get("quorum", 0)}
        if (policy in need and len(names) >= need[policy]) or (policy == "count" and len(events) >= written["count"]):
            return "succeeded", policy, got
    if deadline is None or now < deadline:
        return "waiting", None, got
    if policy == "until_timeout" and len({g[1:3] for g in got}) >= written["min"]:
        return "succeeded", policy, got
    match written["on_timeout"]:
        case "continue":
            return "succeeded", "timeout", got
        case "skip":
            return "skipped", None, []
        case _:
            return "completed_with_error", None, []


@given(_sets(), st.lists(_publications, max_size=12), st.booleans())
@_search(300)
def test_a_set_comes_to_what_its_policy_says(
    written: dict[str, Any], publications: list[Publication], late: bool
) -> None:
    if late:
        publications = [*publications, Publication(name="a", event_id="late", n=3, gap_ms=_TIMEOUT_MS)]
    life = _Life(_compiled(_set(written)))
    life.play(publications)
    status, skipped, fault, output, received = life.result()
    expected, satisfied_by, got = _expected(written, publications)
    assert status == expected
    assert (skipped == "timeout") == (expected == "skipped")
    assert (fault is not None and fault.code == "wait_timeout") == (expected == "completed_with_error")
    if output is not None:
        assert output["satisfied_by"] == satisfied_by
        shown = [(e["requirement"], e["event_name"], e["event_id"], e["payload"]["n"]) for e in output["events"]]
        assert shown == got
    if received is not None:
        assert [(r.requirement, r.event_name, r.event_id) for r in received] == [g[:3] for g in got]


@given(_sets(), st.lists(_publications, max_size=12), st.randoms(use_true_random=False))
@_search(200)
def test_when_the_run_is_ticked_does_not_matter(
    written: dict[str, Any], publications: list[Publication], random: Any
) -> None:
    """A deadline is judged before later events, however late the tick; what was received in between is the same."""
    manifest = _compiled(_set(written))
    results = []
    for ticked in (lambda: True, lambda: False, lambda: random.random() < 0.3):
        life = _Life(manifest)
        life.play([msgspec.structs.replace(p, ticked=ticked()) for p in publications])
        results.append(life.result())
    assert results[0] == results[1] == results[2]


@given(
    _sets(timeout=False, policies=(CompletionPolicy.ALL_REQUIRED, CompletionPolicy.QUORUM, CompletionPolicy.COUNT)),
    st.lists(_publications, max_size=10, unique_by=lambda p: (p.name, p.event_id)),
    st.randoms(use_true_random=False),
)
@_search(200)
def test_the_order_of_events_does_not_matter(
    written: dict[str, Any], publications: list[Publication], random: Any
) -> None:
    """SE-03: whether a set is complete depends on which events came, not on their order; and a duplicate is never a second event (SE-02)."""
    manifest = _compiled(_set(written))
    ends = []
    for _ in range(3):
        life = _Life(manifest)
        life.play([*publications, *random.sample(publications, len(publications) // 2)])
        output = life.result()[3]
        met = {e["requirement"] for e in output["events"]} if output is not None else set()
        events = {(e["event_name"], e["event_id"]) for e in output["events"]} if output is not None else set()
        whole = met if written["completion_policy"] == "all_required" else set()
        ends.append((life.node().status, whole, len(events) if written["completion_policy"] == "count" else 0))
        random.shuffle(publications)
    assert ends[0] == ends[1] == ends[2]


def _inbox(life: _Life, receipts: list[Receipt], timers: tuple[TimerDue, ...]) -> Inbox:
    payloads = {receipt.key: life.rows.outside.payload(receipt.key) for receipt in receipts}
    return Inbox(start=life.rows.start, receipts=tuple(receipts), timers=timers, payloads=payloads)


@given(_sets(), _sets(), st.lists(_publications, min_size=1, max_size=12), st.randoms(use_true_random=False))
@_search(200)
def test_neither_the_order_of_receipts_nor_a_second_showing_matters(
    one: dict[str, Any], other: dict[str, Any], publications: list[Publication], random: Any
) -> None:
    """A tick judges by time and id, whatever it is shown first; a receipt that was applied changes nothing when it is shown again."""
    wait = {"ref": "w", "type": "wait", "wait": {"event": {"event_name": "a", "correlation_key": '"k"'}}}
    manifest = _compiled(_set(one), _set(other, "t"), wait)
    life = _Life(manifest)
    programs, before = life.rows.programs, life.run
    for publication in publications:
        life.now += timedelta(milliseconds=random.choice([0, 0, publication.gap_ms]))
        life.publish(publication)
    receipts = life.rows.outside.unapplied()
    timers = tuple(
        TimerDue(kind=kind, step_ref=ref, due_time=due)
        for (kind, ref), due in life.rows.timers.items()
        if due <= life.now
    )
    first = decide(manifest, programs, before, _inbox(life, receipts, timers), life.now)
    assert isinstance(first, Decision)
    for _ in range(2):
        random.shuffle(receipts)
        again = decide(manifest, programs, before, _inbox(life, receipts, timers), life.now)
        assert again == first
    after = first.run or before
    repeated = decide(manifest, programs, after, _inbox(life, receipts, ()), life.now)
    assert isinstance(repeated, Decision)
    assert not repeated.events
    assert all(isinstance(effect, TakeReceipts) for effect in repeated.effects)
    taken = {(e.step_ref, event_id) for e in first.effects if isinstance(e, TakeReceipts) for event_id in e.event_ids}
    assert taken == {(r.step_ref, r.event_id) for r in receipts}, "what was shown is put away"


_moves = st.one_of(
    _publications,
    _publications,
    st.sampled_from(
        [Verb.PAUSE, Verb.RESUME, Verb.PAUSE_NODE, Verb.RESUME_NODE, Verb.RESET_NODE, Verb.CANCEL, Verb.REDRIVE]
    ),
)


@given(_sets(), _sets(), st.lists(_moves, max_size=20))
@_search(200)
def test_waits_survive_their_operators(one: dict[str, Any], other: dict[str, Any], moves: list[Any]) -> None:
    """C2, C3, C4, C10: whatever operators do meanwhile, who waits listens and nobody else does, and nothing ends twice."""
    life = _Life(_compiled(_set(one), _set(other, "t")))
    for move in moves:
        if isinstance(move, Publication):
            life.now += timedelta(milliseconds=move.gap_ms)
            life.publish(move)
            if move.ticked:
                life.tick()
        else:
            life.control(move, "s" if move.name.endswith("_NODE") else "")
    for verb, ref in ((Verb.RESUME_NODE, "s"), (Verb.RESUME, "")):
        life.control(verb, ref)
    assert not life.run.held


@given(st.lists(_publications, min_size=1, max_size=12), st.lists(st.booleans(), min_size=12, max_size=12))
@_search(100)
def test_a_pause_changes_nothing_but_when(publications: list[Publication], paused: list[bool]) -> None:
    """TC-10: what was held is applied in order of time, so that the set comes to what it had come to without the pause."""
    requirements = [{"name": "a", "event_name": "a"}, {"name": "b", "event_name": "b"}]
    written = {
        "correlation_key": '"k"',
        "requirements": requirements,
        "timeout_ms": _TIMEOUT_MS,
        "on_timeout": "continue",
    }
    manifest = _compiled(_set(written))
    free, held = _Life(manifest), _Life(manifest)
    free.play(publications)
    for publication, pause in zip(publications, paused, strict=False):
        held.control(Verb.PAUSE if pause else Verb.RESUME)
        held.play([publication])
    held.control(Verb.RESUME)
    assert held.result() == free.result()


def test_a_set_opens_closes_and_takes_in_the_commits_that_park_and_wake() -> None:
    """E3, E4: the subscriptions hang on the wait's number; the one that closes them says what was applied."""
    written = {
        "correlation_key": '"k"',
        "requirements": [{"name": "a", "event_name": "a", "filter": "EVENT.payload.n > 1"}],
        "timeout_ms": _TIMEOUT_MS,
    }
    manifest = _compiled(_set(written))
    life = _Life(manifest)
    programs = life.rows.programs
    born = decide(manifest, programs, None, Inbox(start=life.rows.start), START)
    assert isinstance(born, Decision)
    opened = [effect for effect in born.effects if isinstance(effect, OpenWait)]
    assert [(e.step_ref, e.attempt) for e in opened] == [("s", 1)]
    pattern = opened[0].subscriptions[0]
    assert (pattern.event_name, pattern.correlation_key, pattern.requirement) == ("a", "k", "a")
    assert (pattern.filter, pattern.any_key) == ("EVENT.payload.n > 1", False)
    life.publish(Publication(name="a", event_id="e1", n=2))
    woken = decide(manifest, programs, life.run, _inbox(life, life.rows.outside.unapplied(), ()), START)
    assert isinstance(woken, Decision)
    assert TakeReceipts(step_ref="s", attempt=1, event_ids=("e1",)) in woken.effects
    assert CloseWait(step_ref="s", attempt=1) in woken.effects


def test_a_set_that_collects_more_than_it_holds_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """E4: nothing is left out silently."""
    monkeypatch.setattr(event_set, "MAX_EVENTS", 3)
    written = {
        "correlation_key": '"k"',
        "requirements": [{"name": "a", "event_name": "a"}],
        "completion_policy": "until_timeout",
        "timeout_ms": _TIMEOUT_MS,
    }
    life = _Life(_compiled(_set(written)))
    life.play([Publication(name="a", event_id=f"e{n}", n=n) for n in range(5)])
    status, _, fault, _, _ = life.result()
    assert status is NodeStatus.COMPLETED_WITH_ERROR
    assert fault is not None
    assert fault.code == "event_set_full"


def test_a_thousand_events_in_one_tick_are_one_event_of_the_history() -> None:
    """A backlog of receipts costs what it is long, not its square: they are judged together and told once."""
    written = {
        "correlation_key": '"k"',
        "requirements": [{"name": "a", "event_name": "a"}],
        "completion_policy": "count",
        "count": 2_000,
    }
    life = _Life(_compiled(_set(written)))
    for n in range(1_000):
        life.publish(Publication(name="a", event_id=f"e{n}", n=n))
    life.tick()
    assert len(life.rows.history) == 2
    assert len(life.rows.history[-1].events) == 1
    waiting = life.node().waiting
    assert waiting is not None
    assert len(waiting.received) == 1_000
