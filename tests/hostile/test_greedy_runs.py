"""One run that wants too much does not keep the others waiting: the coordinator is one thread (CE-05, PL-06)."""

import time
from typing import Any

import pytest
from msgspec import structs

from ductord.coordinator import turns
from ductord.engine.decide import decide
from ductord.engine.expressions import meter, programs_for
from ductord.engine.limits import Limits
from ductord.model.decision import Decision
from ductord.model.effects import QueueTask
from ductord.model.enums import FailPolicy
from ductord.model.inbox import Inbox
from ductord.model.manifest import Manifest
from ductord.model.specs import ActionSpec, Expression, Template
from tests.coordinator.conftest import Ticker
from tests.support.books import Books, chain
from tests.support.starts import start_of
from tests.support.world import START

GREEDY = Expression(source="TRIGGER.payload.x.all(a, TRIGGER.payload.x == TRIGGER.payload.y)", names=("TRIGGER",))


def wide(count: int, **settings: Any) -> Manifest:
    """Steps that begin together and hinder each other in nothing."""
    steps = tuple(structs.replace(s, incoming=(), outgoing=(), **settings) for s in chain(count).steps)
    return structs.replace(
        chain(count), steps=steps, edges=(), entrypoints=tuple(range(count)), fail_policy=FailPolicy.RUN_ALL
    )


def first_tick(manifest: Manifest, payload: Any, limits: Limits | None = None) -> Decision:
    start = start_of(payload=payload)
    decision = decide(manifest, programs_for(manifest), None, Inbox(start=start), START, limits or Limits())
    assert isinstance(decision, Decision)
    return decision


def test_ce_05_all_expressions_of_a_decision_share_a_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """60 steps with half a second each made one tick of half a minute, in which no run of any tenant moved."""
    monkeypatch.setattr(meter, "DECISION_BUDGET_S", 0.3)
    items = list(range(9_000))
    begin = time.process_time()
    decision = first_tick(wide(60, run_if=GREEDY), {"x": items, "y": list(items)})
    assert time.process_time() - begin < 10
    assert decision.run is not None
    assert {node.fault.code for node in decision.run.nodes if node.fault} == {"expression_budget_exceeded"}
    assert all(node.fault for node in decision.run.nodes)
    assert programs_for(chain(1)).value(Expression(source="1 + 1"), None) == 2, "the budget is one decision's"  # type: ignore[arg-type]


def test_ce_05_compiling_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step may hold thousands of templates; a process that sees them for the first time compiles each."""
    monkeypatch.setattr(meter, "DECISION_BUDGET_S", 0.1)
    tree = [f"${{{{ TRIGGER.payload.x{n} }}}}" for n in range(4_000)]
    action = ActionSpec(action="core:echo", args=Template(tree=tree, static=False, names=("TRIGGER",)))
    begin = time.process_time()
    decision = first_tick(wide(1, action=action), {f"x{n}": n for n in range(4_000)})
    assert time.process_time() - begin < 3
    assert decision.run is not None
    assert [node.fault.code for node in decision.run.nodes if node.fault] == ["expression_budget_exceeded"]


def test_pl_06_inputs_that_begin_together_are_bounded() -> None:
    """L7: 500 steps that each take a payload of 1 MiB were half a gigabyte in one statement. Those beyond the bound fail, and say why."""
    manifest = wide(
        10,
        action=ActionSpec(
            action="core:echo", args=Template(tree="${{ TRIGGER.payload }}", static=False, names=("TRIGGER",))
        ),
    )
    decision = first_tick(manifest, {"x": "y" * 1_000}, Limits(inputs_max_bytes=5_500))
    assert sum(isinstance(effect, QueueTask) for effect in decision.effects) == 5
    assert decision.run is not None
    faults = [node.fault for node in decision.run.nodes if node.fault]
    assert [fault.code for fault in faults] == ["payload_too_large"] * 5
    assert "pass references" in faults[0].message


async def test_ce_05_dear_runs_let_the_others_pass(
    books: Books, ticker: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a tick has cost enough the rest of its batch waits for the next one, and each tenant's first run comes before another's second."""
    monkeypatch.setattr(turns, "ENOUGH_BYTES", 0)
    dear = structs.replace(
        chain(1).steps[0], action=ActionSpec(action="core:echo", args=Template(tree={"x": "y"}, static=True))
    )
    version = await books.publish(structs.replace(chain(1), steps=(dear,)))
    greedy = [await books.start(version) for _ in range(3)]
    other = await books.start(await books.publish(chain(1), tenant="other"), tenant="other")
    begun = []
    while (ticked := await ticker.tick()).claimed:
        assert ticked.tasks == 1, "one dear run is enough for a tick"
        rows = await books.owner.fetch("select run_id::text from eec_workflow_run order by start_time")
        begun.append(rows[-1]["run_id"])
    assert sorted(begun) == sorted([*greedy, other])
    assert other in begun[:2], "it was born last"


def test_a4_a_task_that_is_given_back_for_ever_does_not_turn_in_circles() -> None:
    """A worker that released all it got made 240 attempts a second of one task, each a row, until somebody looked."""
    from ductord.engine.retry import pause_ms

    pauses = [pause_ms(n) for n in range(1, 40)]
    assert pauses[:5] == [0] * 5, "a rolling deploy gives back too"
    assert pauses[5:9] == [100, 200, 400, 800]
    assert pauses == sorted(pauses)
    assert pauses[-1] == 10_000
