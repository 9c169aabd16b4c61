"""What a decision turns out to need (`model.needs`), answered from the rows in memory."""

from typing import TYPE_CHECKING, Any, assert_never

import orjson

from ductord.engine.controls.redriving import refusal
from ductord.model.control import Control
from ductord.model.enums import AttemptStatus, Outcome, RunStatus, TaskKind, Verb
from ductord.model.fan import Gathered, GatheredChild, Item, ItemRow, Kin
from ductord.model.fault import Fault
from ductord.model.needs import Apart, GatheredNeed, ItemsNeed, KinNeed, Need, PageNeed, WorkflowNeed
from tests.support.tasks import Attempt

if TYPE_CHECKING:
    from tests.support.rows import Rows


def given(rows: "Rows", need: Need) -> Any:
    """The value of a need of this run."""
    match need:
        case WorkflowNeed():
            return rows.kinship.catalogue.workflow(need.family_slug, need.version)
        case PageNeed():
            return rows.pages[need.step_ref, need.attempt][need.number]
        case ItemsNeed():
            latest = _items(rows, need.step_ref, need.expected)
            return tuple(_item_row(row) for row in latest if row.status is not AttemptStatus.SUCCEEDED)
        case KinNeed():
            return tuple(
                Kin(
                    item_index=row.item_index,
                    run_id=row.run_id,
                    status=status_of(child),
                    redrivable=refusal(child.run, _redrive(child)) is None,
                )
                for row in rows.kinship.latest(rows.start.run_id, need.step_ref)
                if (child := rows.family[row.run_id])
            )
        case GatheredNeed():
            children = list(_gathered_runs(rows, need) if need.runs else _gathered_items(rows, need))
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


def _items(rows: "Rows", step_ref: str, expected: int) -> list[Attempt]:
    """The latest attempt of every inline child that has one, in order of index: one that has succeeded is not tried again."""
    of = [row for row in rows.attempts.values() if (row.task.step_ref, row.task.kind) == (step_ref, TaskKind.ITEM)]
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


def _gathered_items(rows: "Rows", need: GatheredNeed) -> list[GatheredChild]:
    told = []
    for row in _items(rows, need.step_ref, need.expected):
        if row.status is AttemptStatus.SUCCEEDED:
            told.append(GatheredChild(item_index=row.task.item_index, output=row.output))
        elif row.status is AttemptStatus.OPEN and row.outcome is Outcome.SUCCEEDED:
            told.append(GatheredChild(item_index=row.task.item_index, output=row.output, open=True))
        elif row.status not in (AttemptStatus.OPEN, AttemptStatus.CANCELLED):
            assert row.fault is not None, f"{row.name}#{row.task.attempt} failed for no reason"
            told.append(GatheredChild(item_index=row.task.item_index, fault=row.fault))
    return told


def _gathered_runs(rows: "Rows", need: GatheredNeed) -> list[GatheredChild]:
    told = []
    for row in rows.kinship.latest(rows.start.run_id, need.step_ref):
        if row.status is None or row.item_index >= need.expected:
            continue
        completed = row.status is RunStatus.COMPLETED
        told.append(
            GatheredChild(
                item_index=row.item_index,
                output=result_of(rows.family[row.run_id]) if completed else None,
                fault=None if completed else row.fault or Fault(code=f"child_{row.status}"),
                run_id=row.run_id,
                status=row.status,
            )
        )
    return told


def _redrive(child: "Rows") -> Control:
    return Control(request_id="", verb=Verb.REDRIVE, create_time=child.start.create_time)


def size_of(value: Any) -> int:
    """How large a value is as it is stored."""
    return len(orjson.dumps(value))
