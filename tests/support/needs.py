"""What a decision turns out to need (`model.needs`), answered from the rows in memory."""

from typing import TYPE_CHECKING, Any, assert_never

import orjson

from ductord.engine import faults
from ductord.engine.controls.redriving import refusal
from ductord.model.control import Control
from ductord.model.enums import AttemptStatus, CheckpointStatus, Outcome, RunStatus, TaskKind, Verb
from ductord.model.fan import Gathered, GatheredChild, Item, ItemRow, Kin
from ductord.model.fault import Fault
from ductord.model.inbox import Origin
from ductord.model.needs import Apart, GatheredNeed, ItemsNeed, KinNeed, Need, PageNeed, WorkflowNeed
from tests.support.fan_law import Came, is_counted
from tests.support.tasks import Attempt

if TYPE_CHECKING:
    from tests.support.rows import Rows


def given(rows: "Rows", need: Need) -> Any:
    """The value of a need of this run. Before its first tick is committed a reset run has no rows of its own: what it keeps is its source's (C5)."""
    home, origin = rows, rows._origin() if rows.run is None else None
    if origin is not None:
        home = rows.family[rows.start.reset_from_run_id]
    match need:
        case WorkflowNeed():
            return rows.kinship.catalogue.workflow(need.family_slug, need.version)
        case PageNeed():
            return home.pages[need.step_ref, need.attempt][need.number]
        case ItemsNeed():
            latest = _items(home, need.step_ref, need.expected, _top(home, need, origin))
            return tuple(_item_row(row) for row in latest if row.status is not AttemptStatus.SUCCEEDED)
        case KinNeed():
            return _kin(rows, need)
        case GatheredNeed():
            top = _top(home, need, origin)
            items = _gathered_items(home, need, top)
            children = _with_runs(home, need, top, items) if need.runs else [child for _, child in items.values()]
            size = sum(size_of(child.output) for child in children if child.fault is None)
            return Gathered(size=size, children=tuple(children) if size <= need.max_bytes else ())
        case Apart():
            return True
        case _:
            assert_never(need)


def status_of(rows: "Rows") -> RunStatus:
    """A run's status; `pending` before its first tick."""
    return rows.run.status if rows.run is not None else RunStatus.PENDING


def result_of(rows: "Rows") -> Any:
    """A run's output, with its references followed; None without one."""
    if rows.result is None or rows.result.refs is None:
        return orjson.loads(rows.result.output_json) if rows.result else None
    return {ref: rows.attempts[ref, attempt].output for ref, attempt in rows.result.refs.items()}


def fans_are_counted(rows: "Rows") -> None:
    """The counters of fan-outs are those of their rows (law)."""
    assert rows.run is not None
    for step, node in zip(rows.manifest.steps, rows.run.nodes, strict=True):
        if node.fan is None:
            continue
        latest: dict[int, tuple[int, Came]] = {}
        for row in _items(rows, step.ref, node.fan.next, 2**31 - 1):
            latest[row.task.item_index] = row.task.attempt, _CAME.get(row.status, Came.ENDED)
        for child in rows.kinship.latest(rows.start.run_id, step.ref):
            of = latest.get(child.item_index, (0, Came.OPEN))
            if of[0] < child.attempt and child.item_index < node.fan.next:
                done = child.status is RunStatus.COMPLETED or child.checkpoint_status is CheckpointStatus.REACHED
                ended = Came.SUCCEEDED if done else Came.ENDED
                # What was behind a redrive it has seen for itself, and was never told.
                known = child.applied_time is not None or child.attempt < node.attempt
                latest[child.item_index] = child.attempt, ended if known else Came.OPEN
        is_counted(step.ref, node, {index: came for index, (_, came) in latest.items()})


_CAME = {AttemptStatus.OPEN: Came.OPEN, AttemptStatus.SUCCEEDED: Came.SUCCEEDED}


def _top(home: "Rows", need: ItemsNeed | GatheredNeed, origin: Origin | None) -> int:
    """The highest attempt that counts: of a source what there was when its history was cut."""
    if origin is None:
        return 2**31 - 1
    node = origin.run.nodes[next(i for i, step in enumerate(home.manifest.steps) if step.ref == need.step_ref)]
    return node.attempt if isinstance(need, GatheredNeed) and need.runs else max(node.top, node.attempt)


def _kin(rows: "Rows", need: KinNeed) -> tuple[Kin, ...]:
    parent = rows.family[need.run_id or rows.start.run_id]
    if parent is not rows and not status_of(parent).terminal:
        return ()
    return tuple(
        Kin(
            item_index=row.item_index,
            run_id=row.run_id,
            first_run_id=row.first_run_id,
            status=status_of(child),
            redrivable=refusal(child.run, _redrive(child)) is None,
            told=status_of(child) is not RunStatus.COMPLETED or row.status is RunStatus.COMPLETED,
        )
        for row in rows.kinship.latest(parent.start.run_id, need.step_ref)
        if row.attempt >= need.since and (child := rows.family[row.run_id])
    )


def _items(rows: "Rows", step_ref: str, expected: int, top: int) -> list[Attempt]:
    """The latest attempt of every inline child that has one, in order of index: one that has succeeded is not tried again."""
    of = [
        row
        for row in rows.attempts.values()
        if (row.task.step_ref, row.task.kind) == (step_ref, TaskKind.ITEM) and row.task.attempt <= top
    ]
    latest = {row.task.item_index: row for row in sorted(of, key=lambda row: row.task.attempt)}
    return [latest[index] for index in sorted(latest) if index < expected]


def _item_row(row: Attempt) -> ItemRow:
    return ItemRow(
        item_index=row.task.item_index,
        attempt=row.task.attempt,
        item=row.task.item or Item(logical=row.task.attempt),
        open=row.status is AttemptStatus.OPEN,
        started=row.start_time is not None,
    )


def _gathered_items(rows: "Rows", need: GatheredNeed, top: int) -> dict[int, tuple[int, GatheredChild]]:
    """By index, with the attempt's number; of one that is open only a success that nobody has judged, of one that was cancelled nothing."""
    told: dict[int, tuple[int, GatheredChild]] = {}
    for row in _items(rows, need.step_ref, need.expected, top):
        index, number = row.task.item_index, row.task.attempt
        unjudged = row.status is AttemptStatus.OPEN and row.outcome is Outcome.SUCCEEDED
        if row.status is AttemptStatus.SUCCEEDED or unjudged:
            told[index] = number, GatheredChild(item_index=index, output=row.output, open=unjudged)
        elif row.status not in (AttemptStatus.OPEN, AttemptStatus.CANCELLED):
            assert row.outcome is not None
            fault = row.fault or faults.of_outcome(row.outcome) or Fault(code=row.status)
            told[index] = number, GatheredChild(item_index=index, fault=fault)
    return told


def _with_runs(
    rows: "Rows", need: GatheredNeed, top: int, failed: dict[int, tuple[int, GatheredChild]]
) -> list[GatheredChild]:
    """Child runs that have ended, and those that were to be runs and never were."""
    told = dict(failed)
    for row in rows.kinship.latest(rows.start.run_id, need.step_ref, top):
        if row.status is None or row.item_index >= need.expected:
            continue
        if row.item_index in told and told[row.item_index][0] >= row.attempt:
            continue
        completed = row.status is RunStatus.COMPLETED
        child = GatheredChild(
            item_index=row.item_index,
            output=result_of(rows.family[row.run_id]) if completed else None,
            fault=None if completed else faults.of_child(row.status, row.fault, row.run_id),
            run_id=row.run_id,
            status=row.status,
        )
        told[row.item_index] = row.attempt, child
    return [child for _, (_, child) in sorted(told.items())]


def _redrive(child: "Rows") -> Control:
    return Control(request_id="", verb=Verb.REDRIVE, create_time=child.start.create_time)


def size_of(value: Any) -> int:
    """How large a value is as it is stored."""
    return len(orjson.dumps(value))
