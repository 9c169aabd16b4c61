"""What a transition was told of children, read off what came of it and of the transitions before: which reports and ends it judged, and what it asked for
beside its inbox (`model.needs`).

For replay. Events name the children that they are about, decisions made before say which items there were and what had been given to an attempt, rows hold
outputs; so a recording has lines for nothing else but the ends of child runs and the versions that they ran.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from ductord.engine import faults
from ductord.engine.attempts_told import AttemptKey
from ductord.engine.children_told import Children, indexes
from ductord.engine.graph import graph_of
from ductord.model import ids
from ductord.model.effects import Effect, QueueTask
from ductord.model.enums import RunStatus, TaskKind
from ductord.model.events import Event, NodeEnded, RunForked
from ductord.model.fan import Gathered, GatheredChild, Item, ItemRow, Kin, Workflow
from ductord.model.fan_effects import RecordItems
from ductord.model.fan_events import (
    ChildFailed,
    ChildrenBegun,
    ChildrenCancelled,
    ChildrenSucceeded,
    FanEvent,
    FanExpanded,
    FanResumed,
)
from ductord.model.inbox import ChildFact
from ductord.model.manifest import Manifest
from ductord.model.needs import APART, GatheredNeed, ItemsNeed, KinNeed, Need, PageNeed, WorkflowNeed
from ductord.model.recording import AttemptLine, ChildLine, Recording, TransitionLine
from ductord.model.run import Run

_PROBLEMS: Final = {
    "child_workflow_unknown": "unknown_family",
    "child_version_unknown": "unknown_version",
    "child_version_archived": "archived",
}


class Fans:
    """The fan-outs of a run that is being replayed."""

    def __init__(self, recording: Recording) -> None:
        self._manifest: Manifest = recording.run.manifest
        self._index = graph_of(self._manifest).index
        self._attempts: dict[AttemptKey, AttemptLine] = {
            (a.step_ref, a.kind, a.item_index, a.attempt): a for a in recording.attempts
        }
        self._run_id = recording.run.start.run_id
        self._rows_of: dict[tuple[str, int, int], ChildLine] = {
            (c.step_ref, c.attempt, c.item_index): c for c in recording.children
        }
        self._ends_of: dict[tuple[str, int], list[ChildLine]] = {}
        for end in recording.children:
            self._ends_of.setdefault((end.step_ref, end.item_index), []).append(end)
        self._workflows = recording.workflows
        self._steps: dict[str, Children] = {}
        self._items: dict[AttemptKey, Item] = {}
        self._pages: dict[tuple[str, int], tuple[str, ...]] = {}

    def follow(self, events: Sequence[Event], effects: Sequence[Effect] = ()) -> None:
        """Take over what a transition did. Without `effects` it is one that another run has decided (C5)."""
        for event in events:
            if isinstance(event, FanExpanded):
                self._steps[event.step_ref] = Children()
            self._of(event).follow(event)
        for effect in effects:
            if isinstance(effect, RecordItems):
                self._pages[effect.step_ref, effect.attempt] = effect.pages
            elif isinstance(effect, QueueTask) and effect.item is not None:
                self._items[effect.step_ref, effect.kind, effect.item_index, effect.attempt] = effect.item

    def _of(self, event: Event) -> Children:
        return self._steps.get(getattr(event, "step_ref", "")) or Children()

    def ends(self, line: TransitionLine, run: Run) -> Iterator[ChildFact]:
        """What the transition was told of child runs: of those that its events name. `run`: before it."""
        for event in line.events:
            ended: list[int] = []
            match event:
                case ChildrenSucceeded(children=children) | ChildrenCancelled(children=children):
                    ended = [index for index, attempt in children if not attempt]
                case ChildFailed(attempt=0, item_index=index):
                    ended = [index]
                case _:
                    continue
            attempt = run.nodes[self._index[event.step_ref]].attempt
            for index in ended:
                end = self._rows_of.get((event.step_ref, attempt, index))
                if end is not None and end.time is not None and end.time <= line.at:
                    yield self._fact(end, end.time, event, line)

    def _fact(self, end: ChildLine, time: datetime, event: FanEvent, line: TransitionLine) -> ChildFact:
        """The row may have gone on: a child that had reached what was waited for has ended since. What the node made of it says what it was then."""
        status = end.status
        if isinstance(event, ChildFailed):
            status = event.status
        elif end.checkpoint is not None:
            made = next(
                (e.output for e in line.events if isinstance(e, NodeEnded) and e.step_ref == end.step_ref), None
            )
            if made is not None:
                output = self._attempts[end.step_ref, TaskKind.STEP, -1, made.attempt].output
                status = end.status if output["status"] == end.status else None
        return ChildFact(
            step_ref=end.step_ref,
            attempt=end.attempt,
            item_index=end.item_index,
            run_id=end.run_id,
            time=time,
            status=status,
            checkpoint=end.checkpoint,
            fault=end.fault,
        )

    def give(self, need: Need, line: TransitionLine, run: Run | None) -> Any:
        """The value of a need, as it was in this transition. Raises `KeyError` for what the recording does not tell. `run`: before the transition."""
        match need:
            case WorkflowNeed():
                return self._workflow(need, line)
            case PageNeed():
                return msgspec.json.decode(self._pages[need.step_ref, need.attempt][need.number])
            case ItemsNeed():
                return tuple(self._rows(need, line.at))
            case KinNeed():
                return tuple(self._kin(need, line, run))
            case GatheredNeed():
                return self._gathered(need, line)
            case _:
                assert need == APART
                return True

    def _rows(self, need: ItemsNeed, at: datetime) -> Iterator[ItemRow]:
        children = self._steps[need.step_ref]
        for index, attempt in sorted(children.begun.items()):
            if isinstance(children.ended.get(index), int) or index >= need.expected:
                continue
            key = (need.step_ref, TaskKind.ITEM, index, attempt)
            row = self._attempts.get(key)
            taken = row.start_time if row is not None else None
            behind = row.item if row is not None else self._items.get(key)
            yield ItemRow(
                item_index=index,
                attempt=attempt,
                item=behind or Item(logical=attempt),
                open=index not in children.ended,
                started=taken is not None and taken <= at,
            )

    def _kin(self, need: KinNeed, line: TransitionLine, run: Run | None) -> Iterator[Kin]:
        """A child that the node did not begin anew had completed; one that it took up was open, as far as that goes. Whether there was another that it did not
        take up makes no difference."""
        node = run.nodes[self._index[need.step_ref]] if run is not None else None
        if node is None or node.fan is None:
            return
        fan, attempt, again, resumed, last = node.fan, node.attempt, set(indexes(node.fan.again)), False, ""
        for event in line.events:
            match event:
                case RunForked(attached=attached) if need.run_id:
                    if need.step_ref in attached:
                        yield _taken_up(fan.next - 1, fan.child_run_id, fan.child_run_id)
                    return
                case FanResumed(step_ref=ref) if ref == need.step_ref:
                    attempt, again, resumed = event.attempt, set(indexes(event.again)), True
                case ChildrenBegun(step_ref=ref) if ref == need.step_ref:
                    last = event.run_id
                case _:
                    pass
        children = self._steps[need.step_ref]
        for index in range(fan.next):
            if index in again:
                row = self._rows_of.get((need.step_ref, attempt, index))
                born = ids.derived("child", self._run_id, need.step_ref, attempt, index)
                if row is not None and row.first_run_id != born:
                    yield _taken_up(index, last or row.run_id, row.first_run_id)
            elif resumed or isinstance(children.ended.get(index), int):
                end = self._end(need.step_ref, index, line.at)
                if end is not None:
                    yield replace(_taken_up(index, end.run_id, end.first_run_id), status=RunStatus.COMPLETED)

    def _end(self, ref: str, index: int, at: datetime) -> ChildLine | None:
        """What a child came to by then, as the child of the latest attempt of its node that has it."""
        known = [end for end in self._ends_of.get((ref, index), ()) if end.time is not None and end.time <= at]
        return max(known, key=lambda end: end.attempt, default=None)

    def _gathered(self, need: GatheredNeed, line: TransitionLine) -> Gathered:
        children = self._steps[need.step_ref].copy()
        for event in line.events:
            if getattr(event, "step_ref", "") == need.step_ref:
                children.follow(event)
        told = self._runs_told(need, children, line.at) if need.runs else self._items_told(need, children)
        sizes = list(told)
        size = sum(bytes_ for bytes_, _ in sizes)
        return Gathered(size=size, children=tuple(child for _, child in sizes) if size <= need.max_bytes else ())

    def _items_told(self, need: GatheredNeed, children: Children) -> Iterator[tuple[int, GatheredChild]]:
        for index, end in sorted(children.ended.items()):
            if isinstance(end, ChildFailed):
                yield 0, GatheredChild(item_index=index, fault=end.fault)
            elif end is not None:
                row = self._attempts[need.step_ref, TaskKind.ITEM, index, end]
                size = row.reference.size if row.reference is not None else 0
                yield size, GatheredChild(item_index=index, output=row.output)

    def _runs_told(self, need: GatheredNeed, children: Children, at: datetime) -> Iterator[tuple[int, GatheredChild]]:
        """As the rows have it: also of children that were called off. One that was to be a run and never was one has failed without."""
        for index in range(need.expected):
            failed, end = children.ended.get(index), self._end(need.step_ref, index, at)
            if isinstance(failed, ChildFailed) and not failed.run_id:
                yield 0, GatheredChild(item_index=index, fault=failed.fault)
            elif end is not None and end.status is not None:
                fault = None
                if end.status is not RunStatus.COMPLETED:
                    fault = faults.of_child(end.status, end.fault, end.run_id)
                child = GatheredChild(
                    item_index=index, output=end.output, fault=fault, run_id=end.run_id, status=end.status.value
                )
                yield end.size, child

    def _workflow(self, need: WorkflowNeed, line: TransitionLine) -> Workflow:
        """The version that the children got, where the transition says so; else the one that there was then."""
        known = [w for w in self._workflows if w.family_slug == need.family_slug]
        for event in line.events:
            if isinstance(event, FanExpanded) and self._runs(event.step_ref, need):
                same = (w.workflow for w in known if w.workflow.version_id == event.version_id)
                return next(same, None) or Workflow(
                    definition_id=event.definition_id,
                    version_id=event.version_id,
                    version=event.version,
                    tier=event.tier,
                )
        for event in line.events:
            if isinstance(event, NodeEnded | ChildFailed) and event.fault is not None:
                problem = _PROBLEMS.get(event.fault.code)
                if problem is not None and self._runs(event.step_ref, need):
                    return Workflow(problem=problem)
        there = [w for w in known if w.create_time <= line.at and need.version in (0, w.workflow.version)]
        if not there:
            return Workflow(problem="unknown_version" if known else "unknown_family")
        newest = max(there, key=lambda w: w.workflow.version)
        archived = newest.archive_time is not None and newest.archive_time <= line.at
        return replace(newest.workflow, problem="archived") if archived else newest.workflow

    def _runs(self, step_ref: str, need: WorkflowNeed) -> bool:
        step = self._manifest.steps[self._index[step_ref]]
        specs = (step.scatter, step.for_each, step.subworkflow)
        workflow = next((spec.workflow for spec in specs if spec is not None), None)
        return workflow is not None and (workflow.family_slug, workflow.version) == (need.family_slug, need.version)


def _taken_up(index: int, run_id: str, first_run_id: str) -> Kin:
    return Kin(item_index=index, run_id=run_id, first_run_id=first_run_id, status=RunStatus.RUNNING)
