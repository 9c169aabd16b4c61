"""The times that an operator's call is about: what falls into a pause, the span of a backfill, the times to come. Checked and computed, nothing stored."""

from datetime import datetime, timedelta
from typing import Final

from ductor.workflow.v1 import schedule_service_pb2 as api
from ductord.engine import timetable
from ductord.engine.moments import MomentInvalid
from ductord.engine.timetable import Gap, Tick
from ductord.model.errors import Refusal
from ductord.model.starting import MAX_BACKFILL
from ductord.rpc.answers import time_of, timestamp
from ductord.rpc.errors import field_invalid, field_required, refused
from ductord.trigger.shown import Row

MAX_PREVIEW: Final = 100
DEFAULT_PREVIEW: Final = 10
_MICROSECOND: Final = timedelta(microseconds=1)
_CHANGES: Final = {"": api.CLOCK_CHANGE_UNSPECIFIED} | {
    word: api.ClockChange.Value(f"CLOCK_CHANGE_{word}") for word in ("GAP", "REPEAT_FIRST", "REPEAT_SECOND")
}


def asked_span(request: api.BackfillScheduleRequest) -> tuple[datetime, datetime]:
    """(from, to] of a backfill. Raises FIELD_REQUIRED, FIELD_INVALID."""
    if not request.HasField("from_time"):
        raise field_required("from_time")
    if not request.HasField("to_time"):
        raise field_required("to_time")
    begin, end = time_of(request.from_time, "from_time"), time_of(request.to_time, "to_time")
    if begin >= end:
        raise field_invalid("from_time", "is not before to_time")
    return begin, end


def backfilled(row: Row, span: tuple[datetime, datetime], now: datetime) -> tuple[datetime, ...]:
    """The times of the span, oldest first. Raises FIELD_INVALID, BACKFILL_TOO_LARGE, SCHEDULE_BROKEN."""
    begin, end = span
    if end > now:
        raise field_invalid("to_time", "is in the future")
    try:
        times = timetable.times(row["cron_expression"], row["timezone"], begin, end, MAX_BACKFILL + 1)
    except MomentInvalid as error:
        raise _broken(row, error) from None
    if len(times) > MAX_BACKFILL:
        message = f"the span has more than {MAX_BACKFILL:,} times; ask for it in parts"
        raise refused("BACKFILL_TOO_LARGE", message, field="to_time", limit=MAX_BACKFILL)
    return times


def due_at_pause(row: Row, now: datetime) -> Gap | None:
    """What was due and has not fired when a schedule is paused; None for nothing, and for what cannot be computed."""
    due = row["next_time"]
    return None if due is None or due > now else _gap(row, due - _MICROSECOND, now)


def fallen_in_pause(row: Row, now: datetime) -> Gap | None:
    """What fell due while a schedule was paused; None as above."""
    begin = row["pause_time"]
    return _gap(row, max(begin, row["last_time"] or begin), now)


def first_after(row: Row, now: datetime) -> tuple[datetime | None, str, str]:
    """The next time; or None, and why there is none as code and message."""
    try:
        return timetable.first_after(row["cron_expression"], row["timezone"], now), "", ""
    except MomentInvalid as error:
        return None, "TIMETABLE_INVALID", f"a part of its timetable {error}"


def previewed(request: api.PreviewScheduleRequest, row: Row) -> list[api.SchedulePreview]:
    """The times to come. Raises FIELD_INVALID, SCHEDULE_BROKEN."""
    after = time_of(request.after, "after") if request.HasField("after") else row["now"]
    if not 0 <= request.count <= MAX_PREVIEW:
        raise field_invalid("count", f"is between 1 and {MAX_PREVIEW}; 0 stands for {DEFAULT_PREVIEW}")
    try:
        ticks = timetable.preview(row["cron_expression"], row["timezone"], after, request.count or DEFAULT_PREVIEW)
    except MomentInvalid as error:
        raise _broken(row, error) from None
    return [preview(tick) for tick in ticks]


def preview(tick: Tick) -> api.SchedulePreview:
    """One time to come."""
    return api.SchedulePreview(
        fire_time=timestamp(tick.time), local_time=tick.local, clock_change=_CHANGES[tick.change]
    )


def _gap(row: Row, after: datetime, until: datetime) -> Gap | None:
    try:
        return timetable.gap(row["cron_expression"], row["timezone"], after, until)
    except MomentInvalid:
        return None


def _broken(row: Row, error: MomentInvalid) -> Refusal:
    message = f"the times of the schedule cannot be computed: a part of its timetable {error}"
    return refused("SCHEDULE_BROKEN", message, schedule_id=row["schedule_id"])
