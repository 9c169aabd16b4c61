"""The times of a cron expression, day by day (ruling T2; field cases TC-01, TC-02, TC-05).

On a day on which the clocks stand still the times are counted and not walked: a gap of years costs its days. On the others every minute is looked at. A
fixed time (neither its minute nor its hour begins with a star) that the clocks leave out comes at the first instant behind the gap, and one that they repeat
comes at its first; a wildcard comes whenever the local clock shows it. Time zones are handed in; nothing here judges a text.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

_HORIZON: Final = 50
"""Years: a time that does not come for so long never comes. The longest wait is for a leap day on one day of the week, forty years."""
_DAY: Final = timedelta(days=1)
_HOUR: Final = timedelta(hours=1)
_MINUTE: Final = timedelta(minutes=1)
_SOME_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)
_FIRST: Final = datetime(1, 1, 3, tzinfo=UTC)
"""Before it the calendar has not begun in every zone."""


class Cron:
    """A cron expression, read. Raises `CronSimError` for what is none."""

    __slots__ = ("_days", "fixed", "hours", "minutes", "months")

    def __init__(self, text: str) -> None:
        if len(text.split()) != 5:  # with six, the first would be seconds
            raise CronSimError("Wrong number of fields")
        self._days = CronSim(text, _SOME_DAY)
        self.minutes = tuple(sorted(self._days.minutes))
        self.hours = tuple(sorted(self._days.hours))
        self.months = frozenset(self._days.months)
        minute, hour = text.split()[:2]
        self.fixed = not minute.startswith("*") and not hour.startswith("*")

    def matches(self, day: date) -> bool:
        """Whether it has times on the day. Day-of-month and day-of-week combine by OR, unless one of them begins with a star."""
        return day.month in self.months and self._days.match_day(day)

    def shows(self, local: datetime) -> bool:
        """Whether a local time is one of its own."""
        return local.minute in self.minutes and local.hour in self.hours and self.matches(local.date())


@lru_cache(maxsize=4_096)
def read(text: str) -> Cron:
    """The expression of a text. Raises `CronSimError`."""
    return Cron(text)


class Steady:
    """The times of a day on which the clocks stand still, which begins at `midnight`, in UTC. They are numbered from 0."""

    __slots__ = ("_hours", "_midnight", "_minutes", "size")

    def __init__(self, cron: Cron, midnight: datetime) -> None:
        self._hours = cron.hours
        self._minutes = cron.minutes
        self._midnight = midnight
        self.size = len(self._hours) * len(self._minutes)

    def upto(self, moment: datetime) -> int:
        """How many of them are not after a moment."""
        hour, minute = divmod((moment - self._midnight) // _MINUTE, 60)
        before = bisect_left(self._hours, hour)
        count = before * len(self._minutes)
        if before < len(self._hours) and self._hours[before] == hour:
            count += bisect_right(self._minutes, minute)
        return count

    def at(self, number: int) -> datetime:
        hour, minute = divmod(number, len(self._minutes))
        return self._midnight + timedelta(hours=self._hours[hour], minutes=self._minutes[minute])


class Changing:
    """The times of days on which the clocks change."""

    __slots__ = ("_times", "size")

    def __init__(self, times: Sequence[datetime]) -> None:
        self._times = times
        self.size = len(times)

    def upto(self, moment: datetime) -> int:
        """How many of them are not after a moment."""
        return bisect_right(self._times, moment)

    def at(self, number: int) -> datetime:
        return self._times[number]


def days(cron: Cron, zone: ZoneInfo, after: datetime) -> Iterator[Steady | Changing]:
    """The days with times, from the one on which `after` falls, or shortly before it. Ends where none comes for long, and where the calendar ends."""
    try:
        yield from _days(cron, zone, max(after, _FIRST).astimezone(zone).date() - _DAY)
    except OverflowError:
        return


def after(cron: Cron, zone: ZoneInfo, moment: datetime) -> Iterator[datetime]:
    """The times after a moment, in UTC, each later than the one before."""
    for day in days(cron, zone, moment):
        for number in range(day.upto(moment), day.size):
            moment = day.at(number)
            yield moment


def _days(cron: Cron, zone: ZoneInfo, day: date) -> Iterator[Steady | Changing]:
    end = day.year + _HORIZON
    while day.year <= end:
        if day.month not in cron.months:  # to its last day, at whose end the clocks may change
            day = (day.replace(day=1) + 32 * _DAY).replace(day=1) - _DAY
        offset = _offset(zone, day)
        if offset is None:
            times: set[datetime] = set()
            while offset is None:  # days that follow each other may be told apart by no midnight
                if cron.matches(day):
                    times.update(_times(cron, zone, day))
                day += _DAY
                offset = _offset(zone, day)
            if times:
                yield Changing(sorted(times))
                end = day.year + _HORIZON
        if cron.matches(day):
            end = day.year + _HORIZON
            yield Steady(cron, datetime.combine(day, time(), UTC) - offset)
        day += _DAY


def _offset(zone: ZoneInfo, day: date) -> timedelta | None:
    """The offset of a local day; None where the clocks change on it or at one of its midnights."""
    begin = datetime.combine(day, time(), zone)
    return _steady(begin, begin + _DAY)


def _steady(begin: datetime, end: datetime) -> timedelta | None:
    """The offset between two local times; None where the clocks change between them or at one of them."""
    offset = begin.utcoffset()
    steady = offset == begin.replace(fold=1).utcoffset() == end.utcoffset() == end.replace(fold=1).utcoffset()
    return offset if steady else None


@lru_cache(maxsize=1_024)
def _times(cron: Cron, zone: ZoneInfo, day: date) -> tuple[datetime, ...]:
    """The times of a day on which the clocks change. Kept: on such a day every schedule asks for it at every turn."""
    return tuple(_sought(cron, zone, day))


def _sought(cron: Cron, zone: ZoneInfo, day: date) -> Iterator[datetime]:
    for hour in cron.hours:
        begin = datetime.combine(day, time(hour), zone)
        steady = _steady(begin, begin + _HOUR)
        for minute in cron.minutes:
            local = begin.replace(minute=minute)
            if steady is not None:
                yield local.replace(tzinfo=UTC) - steady
            elif cron.fixed:
                while not _is_real(local):
                    local += _MINUTE
                yield local.astimezone(UTC)
            elif _is_real(local):
                yield local.astimezone(UTC)
                yield local.replace(fold=1).astimezone(UTC)


def _is_real(local: datetime) -> bool:
    """Whether the clocks show a local time at all on its day."""
    seen = local.astimezone(UTC).astimezone(local.tzinfo)
    return seen.replace(tzinfo=None) == local.replace(tzinfo=None)
