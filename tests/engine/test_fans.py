"""What the shell must be able to rely on of fan-outs: a collection frozen with its expansion, few large events, a run that does not grow with its children."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from ductord.engine.decide import decide
from ductord.engine.expressions import programs_for
from ductord.engine.fans import counting
from ductord.engine.fans.merging import merged
from ductord.engine.fans.resuming import ranges
from ductord.engine.steps.gather import collapsed
from ductord.model import events as history
from ductord.model.decision import Decision, Missing
from ductord.model.effects import CloseAttempt, QueueTask, RecordOutput
from ductord.model.enums import EdgeType, NodeStatus, Outcome, RunStatus, StepType, TaskKind
from ductord.model.events import Event, InverseRegistered, NodeEnded
from ductord.model.fan import Gathered, GatheredChild, Item
from ductord.model.fan_effects import RecordItems, TickAgain
from ductord.model.fan_events import ChildFailed, ChildrenBegun, ChildrenSucceeded, FanExpanded
from ductord.model.fanout import MAX_CHILDREN, PAGE, GatherSpec, ScatterSpec, StreamError
from ductord.model.fault import Fault, OutputRef
from ductord.model.ids import idempotency_key
from ductord.model.inbox import AttemptReport, Inbox
from ductord.model.manifest import Edge, Manifest, Step
from ductord.model.needs import GatheredNeed, PageNeed
from ductord.model.run import Run
from ductord.model.specs import ActionSpec, Expression, RetryPolicy, Template
from tests.support.starts import start_of
from tests.support.world import START

_ARGS = Template(tree={"x": "${{ ITEM }}"}, static=False, names=("ITEM",))
_ECHO = ActionSpec(action="core:echo", args=_ARGS)


_ONCE = RetryPolicy()


def _manifest(retry: RetryPolicy = _ONCE, **spec: Any) -> Manifest:
    items = Expression(source="TRIGGER.payload.xs", names=("TRIGGER",))
    scatter = ScatterSpec(items=items, action=_ECHO, max_inline_children=MAX_CHILDREN, **spec)
    return Manifest(
        format_version=1,
        engine_level=4,
        family_slug="f",
        steps=(
            Step(ref="s", type=StepType.SCATTER, scatter=scatter, outgoing=(0,), retry=retry),
            Step(ref="g", type=StepType.GATHER, gather=GatherSpec(scatter_ref="s"), incoming=(0,)),
        ),
        edges=(Edge(source=0, target=1, type=EdgeType.DONE),),
        entrypoints=(0,),
    )


class _Shell:
    """A run of one scatter, its pages and its reports, as a coordinator has them."""

    def __init__(self, manifest: Manifest, items: list[Any]) -> None:
        self.manifest = manifest
        self.start = start_of(payload={"xs": items})
        self.run: Run | None = None
        self.pages: dict[PageNeed, Any] = {}
        self.gathered = Gathered(size=0)
        self.asked: list[PageNeed] = []

    def tick(self, *reports: AttemptReport) -> Decision:
        inbox = Inbox(start=self.start, reports=reports)
        programs = programs_for(self.manifest)
        while isinstance(decision := decide(self.manifest, programs, self.run, inbox, START), Missing):
            assert decision.needs
            self.asked += [need for need in decision.needs if isinstance(need, PageNeed)]
            met = {
                need: self.gathered if isinstance(need, GatheredNeed) else self.pages[need]  # type: ignore[index]
                for need in decision.needs
            }
            inbox = replace(inbox, given={**inbox.given, **met})
        for effect in decision.effects:
            if isinstance(effect, RecordItems):
                pages = enumerate(effect.pages)
                self.pages |= {PageNeed("s", effect.attempt, n): msgspec.json.decode(page) for n, page in pages}
        self.run = decision.run or self.run
        return decision


def _success(index: int, attempt: int = 1, item: Item | None = None) -> AttemptReport:
    return AttemptReport(
        step_ref="s",
        attempt=attempt,
        kind=TaskKind.ITEM,
        item_index=index,
        outcome=Outcome.SUCCEEDED,
        report_time=START,
        output=OutputRef(attempt=attempt, size=2, hash="h"),
        item=item,
    )


def _failure(index: int, attempt: int = 1, outcome: Outcome = Outcome.FAILED, item: Item | None = None) -> Any:
    fault = Fault(code="UNAVAILABLE") if outcome is Outcome.FAILED else None
    success = _success(index, attempt, item)
    return replace(success, outcome=outcome, output=None, fault=fault, start_time=START)


def _of(decision: Decision, kind: type[Any]) -> list[Any]:
    return [one for one in (*decision.events, *decision.effects) if isinstance(one, kind)]


def test_sg02_expected_is_frozen_with_the_expansion_and_the_gather_waits_for_all() -> None:
    """Field case SG-02: the commit of the first children says how many there will be, a later tick begins the others from the frozen pages."""
    shell = _Shell(_manifest(), list(range(1_200)))
    first = shell.tick()
    assert [e.expected for e in _of(first, FanExpanded)] == [1_200]
    (recorded,) = _of(first, RecordItems)
    assert len(recorded.pages) == 1_200 // PAGE
    assert len(_of(first, QueueTask)) == 500
    assert _of(first, TickAgain)
    assert not shell.asked, "the tick that expands has its own items at hand"
    # The coordinator dies here: whoever takes the run up knows all of it, also that what has ended so far is not all.
    second = shell.tick(*(_success(index) for index in range(500)))
    assert sorted(need.number for need in set(shell.asked)) == [5, 6, 7, 8, 9], "the pages of those that begin"
    assert [(e.first, e.count, e.attempt) for e in _of(second, ChildrenBegun)] == [(500, 500, 2)]
    assert not _of(second, NodeEnded)
    third = shell.tick(*(_success(index, 2) for index in range(500, 1_000)))
    assert not _of(third, TickAgain), "nothing is left to begin"
    last = shell.tick(*(_success(index, 3) for index in range(1_000, 1_200)))
    assert [e.step_ref for e in _of(last, NodeEnded)] == ["s", "g"]
    assert msgspec.json.decode(_of(last, RecordOutput)[0].output_json) == {
        "count": 1_200,
        "succeeded": 1_200,
        "failed": 0,
    }
    assert shell.run is not None
    assert shell.run.status is RunStatus.COMPLETED


def test_sg06_neither_the_run_nor_its_history_grows_with_a_child_by_more_than_its_number() -> None:
    """Field case SG-06: the row of the run is as long at any width, and a transition tells of many children at once."""
    lengths, bytes_told = [], []
    for width in (1_000, 10_000):
        shell = _Shell(_manifest(), [0] * width)
        told = 0
        decision = shell.tick()
        while any(isinstance(effect, TickAgain) for effect in decision.effects):
            told += len(history.encode(decision.events))
            decision = shell.tick()
        lengths.append(len(msgspec.json.encode(shell.run)))
        for begin in range(0, width - 500, 500):
            decision = shell.tick(*(_success(index, begin // 500 + 1) for index in range(begin, begin + 500)))
            assert len(decision.events) == 1
            told += len(history.encode(decision.events))
        bytes_told.append(told / (width - 500))  # the last ones are left at work
    assert lengths[1] - lengths[0] <= 20, "some counters have a digit more"
    assert bytes_told[1] <= 16
    assert bytes_told[1] / bytes_told[0] <= 1.3


def test_a_retry_keeps_what_the_child_has_behind_it_in_its_task() -> None:
    """A1, A6: the counters stand in the task's row; the key is the same until somebody says that the attempt failed."""
    shell = _Shell(_manifest(RetryPolicy(max_attempts=3, backoff_ms=1_000)), [0, 1])
    first = {task.item_index: task for task in _of(shell.tick(), QueueTask)}
    assert first[1].idempotency_key == idempotency_key("r", "s", 1, 1, "item")
    lost = _of(shell.tick(_failure(1, outcome=Outcome.LOST)), QueueTask)[0]
    assert (lost.attempt, lost.retry_of, lost.idempotency_key) == (2, 1, first[1].idempotency_key)
    assert lost.item == Item(logical=1, losses=1, unknown=(1,))
    failed = _of(shell.tick(_failure(1, 2, item=lost.item)), QueueTask)[0]
    assert failed.item == Item(logical=3, losses=1, failures=1, unknown=(1,))
    assert failed.idempotency_key == idempotency_key("r", "s", 1, 3, "item")
    assert failed.due_time == START + timedelta(seconds=1)
    again = _of(shell.tick(_failure(1, 3, item=failed.item)), QueueTask)[0]
    assert again.item == Item(logical=4, losses=1, failures=2, unknown=(1,))
    over = shell.tick(_failure(1, 4, item=again.item))
    assert not _of(over, QueueTask)
    assert [(e.item_index, e.attempt, e.fault.code) for e in _of(over, ChildFailed)] == [(1, 4, "UNAVAILABLE")]


def test_g8_the_report_of_a_child_that_comes_too_late_is_put_away() -> None:
    shell = _Shell(_manifest(), [0])
    shell.tick()
    shell.tick(_success(0))
    assert shell.run is not None
    assert shell.run.status is RunStatus.COMPLETED
    late = shell.tick(_success(0))
    assert not late.events
    assert [type(effect) for effect in late.effects] == [CloseAttempt]
    assert not shell.tick(_success(0, 9)).events, "of an attempt that was never made"


def test_a_failed_child_that_is_tolerated_is_an_error_of_the_run() -> None:
    shell = _Shell(_manifest(tolerated=1), [0, 1])
    shell.tick()
    shell.tick(_success(0), _failure(1))
    assert shell.run is not None
    assert (shell.run.status, shell.run.has_errors) == (RunStatus.COMPLETED, True)
    assert shell.run.nodes[0].status is NodeStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("spec", "width", "allowed"),
    [
        ({}, 7, 7),
        ({"tolerated": 2}, 7, 2),
        ({"tolerated": 9}, 7, 7),
        ({"tolerated_percent": 29.0}, 100, 29),
        ({"tolerated_percent": 33.3}, 10, 3),
        ({"tolerated_percent": 0.0}, 10, 0),
        ({"tolerated_percent": 50.0, "tolerated": 1}, 10, 1),
        ({"tolerated": 3, "raises": True}, 10, 0),
    ],
)
def test_f1_how_many_children_may_fail(spec: dict[str, Any], width: int, allowed: int) -> None:
    """A share is rounded down, exactly: 29 % of 100 is 29."""
    assert counting.tolerated(_manifest(**spec).steps[0], width) == allowed


def test_f2_what_a_failed_child_is_to_a_gather() -> None:
    """Also one that never came to an end of its own, as behind the `done` edge of a scatter that was stopped."""
    children = (
        GatheredChild(item_index=0, output="a"),
        GatheredChild(item_index=1, fault=Fault(code="NO", message="why")),
        GatheredChild(item_index=3, output=None),
    )
    gathered, error = Gathered(size=1, children=children), {"code": "NO", "message": "why"}
    assert collapsed(gathered, 4, StreamError.PARTITION) == {
        "result": ["a", None],
        "error": {"1": error},
        "result_indexes": [0, 3],
    }
    assert collapsed(gathered, 4, StreamError.DROP) == {"result": ["a", None], "error": {}, "result_indexes": [0, 3]}
    included = collapsed(gathered, 4, StreamError.INCLUDE)
    assert included["result"][:2] == ["a", error]
    assert included["result"][2]["code"] == "child_cancelled"
    assert included["result"][3] is None
    assert included["error"] == {"1": error}


def test_numbers_as_ranges() -> None:
    assert ranges([]) == ()
    assert ranges([0, 1, 2, 5, 7, 8]) == ((0, 3), (5, 1), (7, 2))


def test_children_are_told_at_once_unless_something_of_their_node_lies_between() -> None:
    def succeeded(ref: str, *pairs: tuple[int, int]) -> Event:
        return ChildrenSucceeded(step_ref=ref, children=pairs)

    def events() -> Iterator[Event]:
        yield succeeded("s", (0, 1))
        yield InverseRegistered(step_ref="s", attempt=1, logical=1, item_index=0)
        yield succeeded("t", (0, 1))
        yield succeeded("s", (4, 1))
        yield ChildrenBegun(step_ref="s", first=5, count=1, attempt=2)
        yield succeeded("s", (5, 2))
        yield succeeded("t", (1, 1), (2, 1))

    assert [e for e in merged(tuple(events())) if isinstance(e, ChildrenSucceeded)] == [
        succeeded("s", (0, 1), (4, 1)),
        succeeded("t", (0, 1), (1, 1), (2, 1)),
        succeeded("s", (5, 2)),
    ]
