"""Moments written by people: durations, RFC 3339 times, cron expressions in a time zone (field cases TC-01, TC-02, TC-04, TC-05).

Data in, data out: the time zone database is the one that comes with the release, not the machine's, so that every replica knows the same
zones. Nothing here is rounded down: what waits for a moment must never be early. It never accepts a number without a unit or a time without a zone.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from math import ceil
from typing import Final
from zoneinfo import ZoneInfo

from cronsim import CronSimError

from ductord.engine import ticks

LONGEST: Final = timedelta(days=3_653)
"""Ten years: a wait beyond it is a mistake, not a plan."""

_MAX_CHARS: Final = 64
_NUMBER: Final = r"([0-9]+(?:\.[0-9]+)?)"
_SHORT: Final = re.compile(
    rf"(?:{_NUMBER}w)?(?:{_NUMBER}d)?(?:{_NUMBER}h)?(?:{_NUMBER}m(?!s))?(?:{_NUMBER}s)?(?:{_NUMBER}ms)?"
)
_ISO: Final = re.compile(
    rf"P(?:{_NUMBER}W)?(?:{_NUMBER}D)?(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_CALENDAR: Final = re.compile(r"P[0-9.]+Y|P(?:[0-9.]+Y)?[0-9.]+M")
_MICROSECONDS: Final = (604_800_000_000, 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000, 1_000)
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?([Zz]|[+-][0-9]{2}:[0-9]{2})?"
)
_CRON: Final = re.compile(r"[0-9A-Za-z*,/#-]+(?:[ \t]+[0-9A-Za-z*,/#-]+){4}")
_SOME_DAY: Final = datetime(2000, 1, 1, tzinfo=UTC)


class MomentInvalid(ValueError):
    """The text names no moment; the message says why, in words that go after the text."""


def duration(text: str) -> timedelta:
    """A duration as ISO 8601 (`PT1H30M`, `P7D`) or in short (`500ms`, `1h30m`). Raises `MomentInvalid`."""
    text = text.strip()
    if len(text) > _MAX_CHARS:
        raise MomentInvalid("is no duration: it is too long a text")
    if text.startswith("-"):
        raise MomentInvalid("is negative: a wait goes forward only")
    if _CALENDAR.match(text):
        raise MomentInvalid("has years or months, which have no fixed length: write days")
    found = _ISO.fullmatch(text) if text.startswith("P") else _SHORT.fullmatch(text)
    if found is None or not any(found.groups()):
        if re.fullmatch(_NUMBER, text):
            raise MomentInvalid("has no unit: write ms, s, m, h or d behind it")
        raise MomentInvalid("is no duration: it is ISO 8601 as in PT1H30M, or short as in 500ms, 90s, 1h30m, 7d")
    microseconds = sum(
        Decimal(number) * unit for number, unit in zip(found.groups(), _MICROSECONDS, strict=False) if number
    )
    if microseconds > LONGEST / timedelta(microseconds=1):
        raise MomentInvalid("is longer than ten years")
    return timedelta(microseconds=ceil(microseconds))


def instant(text: str) -> datetime:
    """An RFC 3339 time, in UTC; parts of a microsecond are rounded up. Raises `MomentInvalid`."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        raise MomentInvalid("is no RFC 3339 time as in 2030-01-31T12:00:00Z")
    day, time, fraction, zone = found.groups()
    if zone is None:
        raise MomentInvalid("has no zone: write Z or an offset as in +01:00 behind it")
    try:
        whole = datetime.fromisoformat(f"{day}T{time}{zone.upper()}").astimezone(UTC)
        nanoseconds = int((fraction or "").ljust(9, "0"))
        return whole + timedelta(microseconds=-(-nanoseconds // 1_000))
    except (ValueError, OverflowError):
        raise MomentInvalid("is no time that the calendar has") from None


def cron(text: str) -> None:
    """Judge a cron expression of five fields. Raises `MomentInvalid` for one that cannot be read and for one that never comes."""
    if text.startswith("@"):
        raise MomentInvalid("is no cron expression: write its five fields")
    if not _CRON.fullmatch(text):
        raise MomentInvalid("is no cron expression: it has five fields, minute hour day-of-month month day-of-week")
    try:
        next(ticks.after(ticks.read(text), time_zone("UTC"), _SOME_DAY))
    except CronSimError as error:
        field = str(error).removeprefix("Bad ")
        raise MomentInvalid(f"is no cron expression: its {field} cannot be") from None
    except StopIteration:
        raise MomentInvalid("never comes") from None


def next_tick(text: str, zone: str, after: datetime) -> datetime:
    """The first moment of a judged cron expression after `after`, in UTC.

    A fixed time that a clock change leaves out comes at the first instant behind the gap; one that it repeats comes once; wildcards come in both
    hours. Day-of-month and day-of-week, if neither begins with a star, combine by OR. Raises `MomentInvalid` when there is none.
    """
    for tick in ticks.after(expression(text), time_zone(zone), after):
        return tick
    raise MomentInvalid("never comes")


def expression(text: str) -> ticks.Cron:
    """A judged cron expression, read. Raises `MomentInvalid` where it was none after all."""
    try:
        return ticks.read(text)
    except CronSimError:
        raise MomentInvalid("is no cron expression") from None


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """The names of all time zones."""
    return frozenset(files("tzdata").joinpath("zones").read_text("utf-8").split())


@lru_cache(maxsize=1_024)
def time_zone(name: str) -> ZoneInfo:
    """The time zone of an IANA name. Raises `MomentInvalid`."""
    if name not in zones():
        raise MomentInvalid("is no time zone")
    with files("tzdata").joinpath("zoneinfo", *name.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def written(moment: datetime) -> str:
    """A moment as outputs and messages spell it: RFC 3339 with microseconds and Z."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
