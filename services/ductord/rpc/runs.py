"""What more than one service shows of a run: rows of runs, attempts and quarantine, and recorded faults, as the contract's messages.

A row is whatever a service's own statement gave, read by column name. Nothing here asks a database, and what a word means is no business of it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from ductor.workflow.v1 import common_pb2, run_pb2
from ductord.model.errors import Refusal
from ductord.model.fault import Fault
from ductord.model.ids import canonical
from ductord.model.manifest import Manifest, Step
from ductord.model.run import CheckpointState
from ductord.model.starting import Origin
from ductord.rpc.answers import timestamp, timestamp_or_none
from ductord.rpc.errors import field_required, refused
from ductord.rpc.words import (
    ATTEMPT_STATUS,
    CHECKPOINT_STATUS,
    COMPENSATION_BLOCK,
    COMPENSATION_STATUS,
    INVERSE_STATUS,
    OUTCOME,
    RUN_STATUS,
    TASK_KIND,
    TIER,
)

Row = Mapping[str, Any]

_labels: Final = msgspec.json.Decoder(dict[str, str])
_origins: Final = msgspec.json.Decoder(Origin)
_ORIGIN_TYPE: Final = {
    "manual": run_pb2.ORIGIN_TYPE_MANUAL,
    "schedule": run_pb2.ORIGIN_TYPE_SCHEDULE,
    "event": run_pb2.ORIGIN_TYPE_EVENT,
}


def run_not_found() -> Refusal:
    """The one answer for every id that names no run of this tenant's (N1, TN-01)."""
    return refused("RUN_NOT_FOUND", "there is no such run")


def step_of(manifest: Manifest, ref: str) -> tuple[int, Step]:
    """A step and its index. Raises STEP_NOT_FOUND."""
    for index, step in enumerate(manifest.steps):
        if step.ref == ref:
            return index, step
    raise refused("STEP_NOT_FOUND", f"the run has no step {ref}")


def run_id_of(text: str, field: str = "run_id") -> str:
    """The run id of a request as ids are written. Raises FIELD_REQUIRED, and RUN_NOT_FOUND for a text that is no id."""
    if not text:
        raise field_required(field)
    run_id = canonical(text)
    if run_id is None:
        raise run_not_found()
    return run_id


def summary(row: Row) -> run_pb2.RunSummary:
    """What a list shows of a run."""
    return run_pb2.RunSummary(
        run_id=row["run_id"],
        status=RUN_STATUS[row["status"]],
        workflow_type=row["family_slug"],
        definition_id=row["definition_id"],
        version=row["version"],
        version_id=row["version_id"],
        subject_type=row["subject_type"],
        subject_id=row["subject_id"],
        create_time=timestamp(row["create_time"]),
        start_time=timestamp_or_none(row["start_time"]),
        end_time=timestamp_or_none(row["end_time"]),
        has_errors=row["has_errors"],
        current_step=row["current_step"],
        root_run_id=row["root_run_id"],
        parent_run_id=row["parent_run_id"] or "",
        nesting_depth=row["nesting_depth"],
        journey_id=row["journey_id"],
        correlation_labels=[
            common_pb2.CorrelationLabel(key=key, id=value)
            for key, value in sorted(_labels.decode(row["labels"]).items())
        ],
        tier=TIER[row["tier"]],
        compensation_status=COMPENSATION_STATUS[row["compensation_status"]],
        close_reason=row["close_reason"],
        continued_from_run_id=row["continued_from_run_id"] or "",
        continued_to_run_id=row["continued_to_run_id"] or "",
        merged_into_run_id=row["merged_into_run_id"] or "",
        reset_from_run_id=row["reset_from_run_id"] or "",
        reset_from_transition_seq=row["reset_from_seq"],
        origin=_origin(row),
        environment=row["environment"],
    )


def _origin(row: Row) -> run_pb2.RunOrigin:
    text, parent = row["origin"], row["parent_run_id"]
    if text == "{}":
        return run_pb2.RunOrigin(type=run_pb2.ORIGIN_TYPE_PARENT if parent else run_pb2.ORIGIN_TYPE_MANUAL)
    origin = _origins.decode(text)
    event = origin.event
    return run_pb2.RunOrigin(
        type=_ORIGIN_TYPE[origin.type],
        trigger_id=origin.trigger_id,
        schedule_id=origin.schedule_id,
        nominal_time=timestamp_or_none(origin.nominal_time),
        event_name="" if event is None else event.name,
        event_id="" if event is None else event.id,
    )


def quarantine(row: Row) -> run_pb2.Quarantine | None:
    """Why a run was set aside (C9), of a row that was joined with it; None for one that was not."""
    if row["since"] is None:
        return None
    since: datetime = row["since"]
    return run_pb2.Quarantine(
        error=row["error"],
        quarantine_time=timestamp(since),
        attempts=row["ticks"],
        retry_time=timestamp(row["retry_time"]),
    )


def checkpoint(name: str, state: CheckpointState | None, refs: Iterable[str]) -> run_pb2.CheckpointState:
    """A checkpoint over the steps `refs`; None is one of which no tick has said anything."""
    return run_pb2.CheckpointState(
        name=name,
        status=CHECKPOINT_STATUS[state.status if state is not None else "pending"],
        reach_time=timestamp_or_none(state.time if state is not None else None),
        step_refs=refs,
    )


def fault_message(fault: Fault | None) -> common_pb2.Fault | None:
    """A recorded fault; None leaves the field unset."""
    return None if fault is None else common_pb2.Fault(code=fault.code, message=fault.message)


def attempt(row: Row) -> run_pb2.Attempt:
    """One attempt, without its output."""
    return run_pb2.Attempt(
        step_ref=row["step_ref"],
        kind=TASK_KIND[row["kind"]],
        item_index=None if row["item_index"] < 0 else row["item_index"],
        attempt=row["attempt"],
        status=ATTEMPT_STATUS[row["status"]],
        outcome=OUTCOME[row["outcome"]],
        queue_time=timestamp(row["create_time"]),
        start_time=timestamp_or_none(row["start_time"]),
        end_time=timestamp_or_none(row["report_time"]),
        worker_id=row["worker_id"] or "",
        error=_fault(row["error_code"], row["error_message"]),
        stale_report=_stale(row),
        queue=row["queue"],
        idempotency_key=row["idempotency_key"],
    )


def compensation_entry(row: Row) -> run_pb2.CompensationEntry:
    """One entry of the compensation ledger (C7)."""
    return run_pb2.CompensationEntry(
        run_id=row["run_id"],
        position=row["position"],
        step_ref=row["step_ref"],
        item_index=None if row["item_index"] < 0 else row["item_index"],
        block=COMPENSATION_BLOCK[row["block"]],
        number=row["number"],
        action=row["action"],
        status=INVERSE_STATUS[row["status"]],
        attempt=row["attempt"],
        error=_fault(row["error_code"] or None, row["error_message"]),
        update_time=timestamp(row["update_time"]),
        workflow_type=row["family_slug"],
        source_attempt=row["source_attempt"],
        source_run_id=row["source_run_id"] or "",
    )


def _stale(row: Row) -> run_pb2.StaleReport | None:
    if row["stale_time"] is None:
        return None
    return run_pb2.StaleReport(
        report_time=timestamp(row["stale_time"]),
        outcome=OUTCOME[row["stale_outcome"]],
        error=_fault(row["stale_error_code"], row["stale_error_message"]),
    )


def _fault(code: str | None, message: str | None) -> common_pb2.Fault | None:
    return None if code is None else common_pb2.Fault(code=code, message=message or "")
