"""Random fan-outs, and what must hold of one at every moment: counters that add up, children that begin once and end once, no more at once than may be."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from ductord.engine.steps.gather import collapsed
from ductord.model.enums import AttemptStatus, EdgeType, FailPolicy, Join, NodeStatus, OnError, StepType, TaskKind
from ductord.model.events import NodeReset, RunForked, RunRedriven
from ductord.model.fan import Fan, Gathered, GatheredChild
from ductord.model.fan_events import (
    ChildFailed,
    ChildrenBegun,
    ChildrenCancelled,
    ChildrenDropped,
    ChildrenSucceeded,
    FanExpanded,
    FanResumed,
)
from ductord.model.fanout import GatherSpec, ScatterSpec, StreamError
from ductord.model.fault import Fault
from ductord.model.manifest import ENGINE_LEVEL, FORMAT_VERSION, Edge, Manifest, Step
from ductord.model.run import Run
from ductord.model.specs import ActionSpec, Expression, RaceSpec, RetryPolicy, Template
from tests.engine.sagas import compensations
from tests.support.naming import task_name
from tests.support.rows import Rows
from tests.support.tasks import Attempt

Draw = Callable[[st.SearchStrategy[Any]], Any]

_WIDTHS = (0, 1, 2, 3, 5, 8)


@st.composite
def fanned(draw: Draw) -> Manifest:
    """Actions before, beside and behind two scatters and their gathers, perhaps with a race over one of them."""
    edges: list[tuple[str, str, EdgeType]] = [("a", "s", draw(st.sampled_from([EdgeType.SUCCESS, EdgeType.DONE])))]
    on_error = {ref: draw(st.sampled_from(OnError)) for ref in ("s", "t")}
    for scatter, gather in (("s", "g"), ("t", "h")):
        kinds = [EdgeType.SUCCESS, EdgeType.DONE]
        kinds += [EdgeType.ERROR] if on_error[scatter] is OnError.CONTINUE else []
        edges += [(scatter, gather, kind) for kind in sorted(draw(st.sets(st.sampled_from(kinds), min_size=1)))]
    if draw(st.booleans()):
        edges.append(("b", "g", EdgeType.SUCCESS))
    edges += [("g", "c", EdgeType.SUCCESS)] if draw(st.booleans()) else []
    race = draw(st.sampled_from([None, None, "t", "h"]))
    refs = ["a", "s", "b", "t", "g", "h", "c"]
    if race is not None:
        edges += [(race, "r", EdgeType.SUCCESS), ("b", "r", EdgeType.SUCCESS)]
        refs.append("r")
    index = {ref: number for number, ref in enumerate(refs)}
    made = tuple(Edge(source=index[s], target=index[t], type=kind) for s, t, kind in edges)
    steps = [_step(draw, ref, on_error.get(ref, OnError.FAIL)) for ref in refs]
    steps = [
        replace(
            step,
            incoming=tuple(e for e, edge in enumerate(made) if edge.target == number),
            outgoing=tuple(e for e, edge in enumerate(made) if edge.source == number),
        )
        for number, step in enumerate(steps)
    ]
    return Manifest(
        format_version=FORMAT_VERSION,
        engine_level=ENGINE_LEVEL,
        family_slug="law",
        steps=tuple(steps),
        edges=made,
        entrypoints=tuple(number for number, step in enumerate(steps) if not step.incoming),
        fail_policy=draw(st.sampled_from(FailPolicy)),
        run_timeout_ms=draw(st.sampled_from([None, None, 20_000])),
    )


def _step(draw: Draw, ref: str, on_error: OnError) -> Step:
    common = Step(ref=ref, type=StepType.ACTION, on_error=on_error)
    if ref == "r":
        return replace(common, type=StepType.RACE, race=RaceSpec())
    if ref in ("g", "h"):
        spec = GatherSpec(scatter_ref={"g": "s", "h": "t"}[ref], stream_error=draw(st.sampled_from(StreamError)))
        return replace(common, type=StepType.GATHER, join=draw(st.sampled_from(Join)), gather=spec)
    worked = replace(
        common,
        retry=RetryPolicy(
            max_attempts=draw(st.integers(1, 3)), backoff_ms=draw(st.sampled_from([0, 0, 3_000])), jitter=True
        ),
        total_timeout_ms=draw(st.sampled_from([None, None, None, 9_000])),
        max_lost=draw(st.integers(0, 2)),
        compensation=draw(st.none() | compensations()),
    )
    if ref not in ("s", "t"):
        return replace(worked, action=ActionSpec(action="core:echo"))
    width = draw(st.sampled_from(_WIDTHS))
    # Some of the children behind the first may have args that do not evaluate.
    numbers = [1, *(draw(st.sampled_from([0, 1, 1, 1])) for _ in range(width - 1))][:width]
    args = Template(tree={"n": "${{ 10 / ITEM }}", "i": "${{ INDEX }}"}, static=False, names=("INDEX", "ITEM"))
    return replace(
        worked,
        type=StepType.SCATTER,
        scatter=ScatterSpec(
            items=Expression(source=str(numbers)),
            action=ActionSpec(action="core:echo", args=args),
            max_concurrency=draw(st.sampled_from([0, 0, 1, 2, 3])),
            interval_ms=draw(st.sampled_from([0, 0, 0, 700])),
            tolerated=draw(st.sampled_from([None, None, 0, 1, 2])),
            tolerated_percent=draw(st.sampled_from([None, None, None, 50.0])),
            raises=draw(st.sampled_from([False, False, True])),
        ),
    )


class _Told:
    """What the history says of the children of one node since it has expanded last."""

    def __init__(self) -> None:
        self.begun: dict[int, int] = {}
        self.ended: dict[int, str] = {}
        self.faults: dict[int, Fault] = {}

    def begin(self, first: int, count: int, attempt: int) -> None:
        for number in range(first, first + count):
            assert number not in self.begun or number in self.ended, f"child {number} begins while it is open"
            assert self.ended.pop(number, "") != "succeeded", f"child {number} has succeeded and begins again (SG-05)"
            self.begun[number] = attempt
            self.faults.pop(number, None)

    def end(self, number: int, how: str) -> None:
        assert number in self.begun, f"child {number} ends and never began"
        assert number not in self.ended, f"child {number} ends twice"
        self.ended[number] = how

    @property
    def open(self) -> set[int]:
        return self.begun.keys() - self.ended.keys()


def check(rows: Rows, run: Run) -> None:
    """Every fan of the run, as its node, its history and its rows have it."""
    told = _told(rows)
    for step, node in zip(rows.manifest.steps, run.nodes, strict=True):
        opened = {
            row.task.item_index
            for (_, _), row in rows.attempts.items()
            if row.status is AttemptStatus.OPEN and (row.task.step_ref, row.task.kind) == (step.ref, TaskKind.ITEM)
        }
        if node.fan is None:
            assert not opened, f"{step.ref} has no children, and tasks of some"
            continue
        assert not opened or not node.status.terminal, f"{step.ref} has ended, and a child is open"
        _counters(node.fan)
        if step.ref in told:
            _agrees(node.fan, told[step.ref], opened)
            _rows_agree(rows, step.ref, told[step.ref])
        most = step.scatter.max_concurrency if step.scatter is not None else 0
        assert not most or node.fan.open <= most, f"{step.ref}: {node.fan.open} children are open, {most} may be"
        if node.status is NodeStatus.SUCCEEDED:
            assert node.fan.done
            assert not node.fan.cancelled
    _gathers(rows, run, told)


def _counters(fan: Fan) -> None:
    anew = sum(count for _, count in fan.again)
    assert fan.ended + fan.open + anew == fan.next <= fan.expected, f"counters do not add up: {fan}"
    assert min(fan.open, fan.succeeded, fan.failed, fan.cancelled) >= 0
    assert (fan.first_fault is not None) == (fan.failed > 0) == (fan.first_failed >= 0)


def _agrees(fan: Fan, told: _Told, opened: set[int]) -> None:
    ended = list(told.ended.values())
    assert opened == told.open, f"open rows {opened}, open children {told.open}"
    assert (fan.open, fan.succeeded) == (len(opened), ended.count("succeeded"))
    anew = sum(count for _, count in fan.again)
    assert fan.failed + fan.cancelled + anew == ended.count("failed") + ended.count("cancelled")
    assert told.begun.keys() == set(range(fan.next))


def _rows_agree(rows: Rows, ref: str, told: _Told) -> None:
    """The last row of every child that has ended says how, since that is what a gather goes by."""
    latest: dict[int, Attempt] = {}
    for row in rows.attempts.values():
        of, known = row.task, latest.get(row.task.item_index)
        if (of.step_ref, of.kind) == (ref, TaskKind.ITEM) and (known is None or known.task.attempt < of.attempt):
            latest[of.item_index] = row
    for number, how in told.ended.items():
        row = latest[number]
        match row.status:
            case AttemptStatus.SUCCEEDED:
                assert how == "succeeded", f"child {number} is {how}"
            case AttemptStatus.CANCELLED:
                assert how == "cancelled", f"child {number} is {how}"
            case status:
                assert (how, status is AttemptStatus.OPEN) == ("failed", False), f"child {number} is {how}"
                assert row.fault == told.faults[number]


def _told(rows: Rows) -> dict[str, _Told]:
    """By step ref, from the history that the run itself has made and adopted."""
    told: dict[str, _Told] = {}
    for transition in rows.history:
        for event in transition.events:
            match event:
                case FanExpanded():
                    told[event.step_ref] = _Told()
                case FanResumed():
                    assert {n for n, how in told[event.step_ref].ended.items() if how != "succeeded"} == {
                        n for first, count in event.again for n in range(first, first + count)
                    }, "a redrive begins anew what had begun and did not succeed (F4)"
                case ChildrenBegun():
                    told[event.step_ref].begin(event.first, event.count, event.attempt)
                case ChildrenSucceeded():
                    for number, attempt in event.children:
                        told[event.step_ref].end(number, "succeeded")
                        row = rows.attempts.get((task_name(event.step_ref, TaskKind.ITEM, number), attempt))
                        assert row is None or row.status in (AttemptStatus.SUCCEEDED, AttemptStatus.OPEN)
                case ChildrenCancelled():
                    for number, _ in event.children:
                        told[event.step_ref].end(number, "cancelled")
                case ChildFailed():
                    told[event.step_ref].end(event.item_index, "failed")
                    told[event.step_ref].faults[event.item_index] = event.fault
                case ChildrenDropped():
                    for number in sorted(told[event.step_ref].open):
                        told[event.step_ref].end(number, "cancelled")
                case NodeReset() if event.step_ref in told:
                    assert not told[event.step_ref].open, "a reset leaves no child open"
                    del told[event.step_ref]
                case RunRedriven():
                    for ref in set(event.steps) - set(event.resumed):
                        told.pop(ref, None)
                case RunForked():
                    told = {ref: fan for ref, fan in told.items() if not fan.open}
                case _:
                    pass
    return told


def _gathers(rows: Rows, run: Run, told: dict[str, _Told]) -> None:
    """A gather that has succeeded shows what its scatter's children came to, in order (SG-03), and was not ready before they all had ended (SG-02)."""
    nodes = {step.ref: node for step, node in zip(rows.manifest.steps, run.nodes, strict=True)}
    for step in rows.manifest.steps:
        if step.gather is None or nodes[step.ref].output is None or step.ref in rows.start.preserved:
            continue
        source = step.gather.scatter_ref
        fan = nodes[source].fan
        assert nodes[source].status.terminal, f"{step.ref} was ready before {source}"
        assert fan is not None
        children: list[GatheredChild] = []
        for number, how in sorted(told[source].ended.items()):
            if how == "succeeded":
                rows_of = [
                    row
                    for row in rows.attempts.values()
                    if (row.task.step_ref, row.task.item_index, row.task.kind) == (source, number, TaskKind.ITEM)
                ]
                latest = max(rows_of, key=lambda row: row.task.attempt)
                children.append(GatheredChild(item_index=number, output=latest.output))
            elif how == "failed":
                children.append(GatheredChild(item_index=number, fault=told[source].faults[number]))
        expected = collapsed(Gathered(size=0, children=tuple(children)), fan.expected, step.gather.stream_error)
        assert rows.output_of(step.ref) == expected
