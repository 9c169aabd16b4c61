"""Rows of schedules, of their fires and of event triggers as the contract's messages. Nothing here asks a database."""

from collections.abc import Mapping
from typing import Any, Final

from ductor.workflow.v1 import definition_pb2
from ductor.workflow.v1 import schedule_service_pb2 as api
from ductor.workflow.v1 import workflow_trigger_service_pb2 as trigger_api
from ductord.rpc.answers import timestamp, timestamp_or_none

Row = Mapping[str, Any]

_POLICIES: Final = {
    "skip": definition_pb2.OVERLAP_POLICY_SKIP,
    "allow_all": definition_pb2.OVERLAP_POLICY_ALLOW_ALL,
}
_OUTCOMES: Final = {
    word: api.FireOutcome.Value(f"FIRE_OUTCOME_{word.upper()}")
    for word in ("started", "skipped", "failed", "missed", "dropped")
}
_SOURCES: Final = {
    word: api.FireSource.Value(f"FIRE_SOURCE_{word.upper()}") for word in ("timetable", "backfill", "manual")
}
_STATUSES: Final = {
    word: api.ScheduleStatus.Value(f"SCHEDULE_STATUS_{word.upper()}")
    for word in ("active", "paused", "retired", "broken")
}
POLICY_WORD: Final = {definition_pb2.OVERLAP_POLICY_UNSPECIFIED: ""} | {n: word for word, n in _POLICIES.items()}
OUTCOME_WORD: Final = {api.FIRE_OUTCOME_UNSPECIFIED: ""} | {n: word for word, n in _OUTCOMES.items()}
STATUS_WORD: Final = {api.SCHEDULE_STATUS_UNSPECIFIED: ""} | {n: word for word, n in _STATUSES.items()}


def schedule(row: Row) -> api.Schedule:
    """A schedule."""
    return api.Schedule(
        schedule_id=row["schedule_id"],
        definition_id=row["definition_id"],
        workflow_type=row["family_slug"],
        version=row["version"],
        version_id=row["version_id"],
        trigger_id=row["trigger_id"],
        spec=definition_pb2.ScheduleDefinition(
            cron_expression=row["cron_expression"],
            timezone=row["timezone"],
            catchup_window_ms=row["catchup_window_ms"],
            overlap_policy=_POLICIES[row["overlap_policy"]],
        ),
        status=_STATUSES[_status(row)],
        next_fire_time=timestamp_or_none(row["next_time"]),
        last_fire_time=timestamp_or_none(row["last_time"]),
        last_run_id=row["last_run_id"] or "",
        started_count=row["started_count"],
        skipped_count=row["skipped_count"],
        failed_count=row["failed_count"],
        missed_count=row["missed_count"],
        dropped_count=row["dropped_count"],
        error=_fault(row),
        paused_by=row["paused_by"],
        pause_reason=row["pause_reason"],
        pause_time=timestamp_or_none(row["pause_time"]),
        create_time=timestamp(row["create_time"]),
    )


def _status(row: Row) -> str:
    if not row["live"]:
        return "retired"
    if row["pause_time"] is not None:
        return "paused"
    return "broken" if row["next_time"] is None else "active"


def fire(row: Row) -> api.ScheduleFire:
    """A fire, or a gap."""
    return api.ScheduleFire(
        nominal_time=timestamp(row["nominal_time"]),
        outcome=_OUTCOMES[row["outcome"]],
        source=_SOURCES[row["source"]],
        run_id=row["run_id"] or "",
        count=row["count"],
        until_time=timestamp_or_none(row["until_time"]),
        error=_fault(row),
        create_time=timestamp(row["create_time"]),
    )


def _fault(row: Row) -> api.ScheduleFault | None:
    return api.ScheduleFault(code=row["error_code"], message=row["error_message"]) if row["error_code"] else None


def event_trigger(row: Row) -> trigger_api.EventTrigger:
    """A pattern of an event trigger."""
    return trigger_api.EventTrigger(
        definition_id=row["definition_id"],
        workflow_type=row["family_slug"],
        version=row["version"],
        trigger_id=row["trigger_id"],
        pattern=row["pattern"],
        filter=row["filter"],
    )
