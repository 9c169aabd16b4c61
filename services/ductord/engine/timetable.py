"""What a timetable asks for (ruling T2): which times are due and which were missed, what comes next, and what a change of the clocks does to it.

Pure: the caller says what time it is. All times are aware and in UTC; a span `(after, until]` has its end in it. Every function takes the cron expression and
the zone of a published version, and raises `MomentInvalid` where a time zone is gone or no time comes: that concerns its own schedule alone. What was
missed is counted, never listed, so that the cost of an outage is that of its days.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, takewhile
from typing import Final, Literal

import msgspec

from ductord.engine import moments, ticks
from ductord.model.starting import MAX_COUNTED, ScheduleSpec

MAX_FIRES: Final = 100
"""How many times of one schedule are fired in one turn; the others come in the next."""
ClockChange = Literal["", "GAP", "REPEAT_FIRST", "REPEAT_SECOND"]
_BEFORE: Final = timedelta(microseconds=1)
"""The database knows no shorter time."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """Times that nobody makes up for: the first and the last of them, and how many there are. Counted up to `MAX_COUNTED`; `last` is the last all the same."""

    first: datetime
    last: datetime
    count: int


class Due(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule asks for now. `missed`: times beyond the catch-up window, before all of `fires`. `fires`: to be fired in this order. `next_time`: the
    first time that is in neither; it may be due as well, when there are more than one turn takes."""

    missed: Gap | None = None
    fires: tuple[datetime, ...] = ()
    next_time: datetime


class Tick(msgspec.Struct, frozen=True, kw_only=True):
    """A time to come. `local`: the same in the schedule's zone, as RFC 3339 with its offset. `change`: the clocks leave out the time of the timetable, so that
    it comes at the first instant behind (`GAP`), or show it twice."""

    time: datetime
    local: str
    change: ClockChange = ""


def first_after(cron: str, zone: str, after: datetime) -> datetime:
    """The first time after a moment."""
    return moments.next_tick(cron, zone, after)


def times(cron: str, zone: str, after: datetime, until: datetime, limit: int) -> tuple[datetime, ...]:
    """The times of a span, the first first, at most `limit`."""
    return tuple(islice(takewhile(lambda tick: tick <= until, _ticks(cron, zone, after)), limit))


def gap(cron: str, zone: str, after: datetime, until: datetime) -> Gap | None:
    """The times of a span as one; None without any."""
    expression = moments.expression(cron)
    first = last = after
    count = 0
    for day in ticks.days(expression, moments.time_zone(zone), after):
        begin, end = day.upto(last), day.upto(until)
        if begin < end:
            first = first if count else day.at(begin)
            last = day.at(end - 1)
            count += end - begin
        if end < day.size:
            break
    return Gap(first=first, last=last, count=min(count, MAX_COUNTED)) if count else None


def due(spec: ScheduleSpec, next_time: datetime, now: datetime, limit: int = MAX_FIRES) -> Due:
    """What is due of the times from `next_time` on (T2): those that are not older than the catch-up window are fired, the others are missed.

    A time that is exactly as old as the window is fired. Nothing is due before its time: where `next_time` is still to come it stays.
    """
    if next_time > now:
        return Due(next_time=next_time)
    cron, zone = spec.cron_expression, spec.timezone
    begin = next_time - _BEFORE
    edge = now - timedelta(milliseconds=spec.catchup_window_ms) - _BEFORE
    missed = gap(cron, zone, begin, edge) if begin < edge else None
    fires = times(cron, zone, max(begin, edge), now, limit)
    return Due(missed=missed, fires=fires, next_time=first_after(cron, zone, fires[-1] if fires else now))


def preview(cron: str, zone: str, after: datetime, count: int) -> tuple[Tick, ...]:
    """The next times, the first first."""
    found = tuple(_told(cron, zone, tick) for tick in islice(_ticks(cron, zone, after), count))
    if not found and count:
        raise moments.MomentInvalid("never comes")
    return found


def _told(cron: str, zone: str, tick: datetime) -> Tick:
    local = tick.astimezone(moments.time_zone(zone))
    change: ClockChange = ""
    if local.replace(fold=0).utcoffset() != local.replace(fold=1).utcoffset():
        change = "REPEAT_SECOND" if local.fold else "REPEAT_FIRST"
    elif not moments.expression(cron).shows(local):
        change = "GAP"
    return Tick(time=tick, local=local.isoformat(), change=change)


def _ticks(cron: str, zone: str, after: datetime) -> Iterator[datetime]:
    return ticks.after(moments.expression(cron), moments.time_zone(zone), after.astimezone(UTC))
