"""Recordings of runs that were played in memory (the other way to one is the export of a real run)."""

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from ductord.model.enums import RunStatus, TaskKind
from ductord.model.recording import (
    FORMAT,
    AttemptLine,
    ChildLine,
    ControlLine,
    ReceiptLine,
    Recording,
    RunLine,
    SignalLine,
    SourceLine,
    TransitionLine,
    WorkflowLine,
)
from tests.support.needs import result_of, size_of
from tests.support.outside import in_order
from tests.support.rows import Rows
from tests.support.tasks import Attempt, reference


def recording_of(rows: Rows) -> Recording:
    """Everything that was known to the decisions about this run."""
    return Recording(
        run=RunLine(format=FORMAT, manifest=rows.manifest, start=rows.start, limits=msgspec.to_builtins(rows.limits)),
        transitions=tuple(TransitionLine(seq=t.seq, at=t.at, events=t.events) for t in rows.history),
        attempts=tuple(_attempt(row) for row in rows.attempts.values()),
        controls=tuple(_controls(rows)),
        signals=tuple(_signals(rows)),
        receipts=tuple(_receipts(rows)),
        children=tuple(_children(rows)),
        workflows=tuple(_workflows(rows)),
        sources=tuple(_sources(rows)),
    )


def _attempt(row: Attempt) -> AttemptLine:
    late_time, late_output = row.late if row.late is not None else (None, None)
    return AttemptLine(
        step_ref=row.task.step_ref,
        attempt=row.task.attempt,
        idempotency_key=row.task.idempotency_key,
        kind=row.task.kind,
        item_index=row.task.item_index,
        start_time=row.start_time,
        outcome=row.outcome,
        report_time=row.report_time,
        output=row.output,
        reference=reference(row.task.attempt, row.output) if row.has_output else None,
        fault=row.fault,
        non_retryable=row.non_retryable,
        retry_after_ms=row.retry_after_ms,
        late_time=late_time,
        late_output=late_output,
        late_reference=reference(row.task.attempt, late_output) if late_time is not None else None,
        item=row.task.item,
    )


def _controls(rows: Rows) -> Iterator[ControlLine]:
    for control in rows.asked:
        name = control.request_id
        effect = rows.settled.get(name)
        if effect is None:
            yield ControlLine(control=control)
        else:
            yield ControlLine(control=control, status=effect.status, settle_time=rows.settle_times[name])


def _signals(rows: Rows) -> Iterator[SignalLine]:
    for number, (name, (signal, payload)) in enumerate(rows.outside.signals.items(), start=1):
        yield SignalLine(signal=signal, number=number, payload=payload, seq=rows.told_in.get(name, 0))


def _receipts(rows: Rows) -> Iterator[ReceiptLine]:
    for receipt in sorted(rows.outside.receipts, key=in_order):
        yield ReceiptLine(receipt=receipt, payload=rows.outside.payload(receipt.key), seq=rows.told_in.get(receipt, 0))


def _children(rows: Rows) -> Iterator[ChildLine]:
    for row in rows.kinship.rows:
        if row.parent_run_id != rows.start.run_id:
            continue
        output = result_of(rows.family[row.run_id]) if row.status is RunStatus.COMPLETED else None
        yield ChildLine(
            step_ref=row.step_ref,
            attempt=row.attempt,
            item_index=row.item_index,
            run_id=row.run_id,
            first_run_id=row.first_run_id,
            time=row.end_time,
            status=row.status,
            checkpoint=row.checkpoint_status,
            fault=row.fault,
            output=output,
            size=size_of(output),
        )


def _workflows(rows: Rows) -> Iterator[WorkflowLine]:
    for step in rows.manifest.steps:
        spec = step.scatter or step.for_each or step.subworkflow
        if spec is not None and spec.workflow is not None:
            slug = spec.workflow.family_slug
            for version in rows.kinship.catalogue.versions(slug):
                # When a version was archived the catalogue does not say; what is refused for it says so itself.
                workflow = replace(rows.kinship.catalogue.workflow(slug, version.number), problem="")
                yield WorkflowLine(family_slug=slug, workflow=workflow, create_time=rows.start.create_time)


def _sources(rows: Rows) -> Iterator[SourceLine]:
    for entry in rows.ledger.values():
        if entry.kind is TaskKind.COMPENSATION and entry.source_attempt and entry.source_run_id:
            key = (entry.source_run_id, entry.step_ref, entry.item_index, entry.source_attempt)
            yield SourceLine(
                run_id=entry.source_run_id,
                step_ref=entry.step_ref,
                item_index=entry.item_index,
                attempt=entry.source_attempt,
                output=rows.source_output(key),
            )
