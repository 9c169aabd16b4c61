"""Timetables against a model that knows nothing but clocks: it walks the minutes and looks at what the local clock shows (T2, TC-01, TC-02, TC-06)."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductord.engine import timetable
from ductord.engine.moments import MomentInvalid, time_zone
from ductord.engine.timetable import Gap, Tick
from ductord.model.starting import MAX_COUNTED, ScheduleSpec
from tests.language.documents import law

MINUTE = timedelta(minutes=1)
CHANGES = {
    "America/New_York": ["2024-03-10", "2024-11-03"],
    "Europe/Berlin": ["2024-03-31", "2024-10-27"],
    "Australia/Lord_Howe": ["2024-04-07", "2024-10-06"],
    "America/Santiago": ["2024-04-07", "2024-09-08"],
    "America/Havana": ["2024-03-10", "2024-11-03"],
    "Africa/Cairo": ["2024-04-26", "2024-11-01"],
    "America/St_Johns": ["2010-03-14", "2010-11-07"],
    "Africa/Casablanca": ["2024-03-10", "2024-04-14"],
    "Antarctica/Troll": ["2024-03-31", "2024-10-27"],
    "Pacific/Apia": ["2011-12-30"],
    "Asia/Kolkata": ["2024-06-01"],
    "UTC": ["2024-02-28"],
}
Fields = tuple[str, frozenset[int], frozenset[int], frozenset[int], frozenset[int]]


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


@st.composite
def field(draw: st.DrawFn, least: int, most: int) -> tuple[str, frozenset[int]]:
    every = frozenset(range(least, most + 1))
    kind = draw(st.sampled_from(["*", "*/", "list", "list"]))
    if kind == "*":
        return "*", every
    if kind == "*/":
        step = draw(st.integers(1, most))
        return f"*/{step}", frozenset(range(least, most + 1, step))
    some = draw(st.sets(st.integers(least, most), min_size=1, max_size=4))
    return ",".join(map(str, sorted(some))), frozenset(some)


@st.composite
def crons(draw: st.DrawFn) -> Fields:
    minute, minutes = draw(field(0, 59))
    hour, hours = draw(
        st.one_of(field(0, 23), st.sampled_from([("0-4", frozenset(range(5))), ("23,0,1", frozenset({23, 0, 1}))]))
    )
    day, dates = draw(st.one_of(st.just(("*", frozenset(range(1, 32)))), field(1, 31)))
    week, weekdays = draw(st.one_of(st.just(("*", frozenset(range(7)))), field(0, 6)))
    return f"{minute} {hour} {day} * {week}", minutes, hours, dates, weekdays


def days_match(fields: Fields, local: datetime) -> bool:
    text, _, _, dates, weekdays = fields
    of_month, of_week = local.day in dates, local.isoweekday() % 7 in weekdays
    parts = text.split()
    either = not parts[2].startswith("*") and not parts[4].startswith("*")
    return of_month or of_week if either else of_month and of_week


def modelled(fields: Fields, zone: str, after: datetime, until: datetime) -> list[datetime]:
    """The times of (after, until], by walking the minutes of three days around them."""
    text, minutes, hours, _, _ = fields
    clock = time_zone(zone)
    shown: list[tuple[datetime, datetime]] = []
    moment = (after - timedelta(days=2)).replace(second=0, microsecond=0)
    while moment <= until + timedelta(days=1):
        shown.append((moment, moment.astimezone(clock).replace(tzinfo=None)))
        moment += MINUTE

    def matches(local: datetime) -> bool:
        return local.minute in minutes and local.hour in hours and days_match(fields, local)

    minute, hour = text.split()[:2]
    if minute.startswith("*") or hour.startswith("*"):
        found = {moment for moment, local in shown if matches(local)}
    else:
        found = set()
        seen: set[datetime] = set()
        for (_, before), (moment, local) in pairwise(shown):
            left_out = _between(before, local) if local > before else ()
            if any(matches(skipped) for skipped in left_out) or (matches(local) and local not in seen):
                found.add(moment)
            seen.add(local)
    return sorted(moment for moment in found if after < moment <= until)


def _between(before: datetime, local: datetime) -> Iterator[datetime]:
    before += MINUTE
    while before < local:
        yield before
        before += MINUTE


@st.composite
def spans(draw: st.DrawFn) -> tuple[str, datetime, datetime]:
    zone = draw(st.sampled_from(sorted(CHANGES)))
    day = datetime.fromisoformat(draw(st.sampled_from(CHANGES[zone]))).replace(tzinfo=UTC)
    after = day + timedelta(seconds=draw(st.integers(-86_400, 86_400)))
    return zone, after, after + timedelta(minutes=draw(st.integers(0, 2_880)))


@law
@given(crons(), spans())
def test_times_gaps_and_previews_are_those_of_the_clock_t2(
    fields: Fields, span: tuple[str, datetime, datetime]
) -> None:
    zone, after, until = span
    cron = fields[0]
    expected = modelled(fields, zone, after, until)
    assert list(timetable.times(cron, zone, after, until, 10_000)) == expected
    gap = timetable.gap(cron, zone, after, until)
    assert gap == (Gap(first=expected[0], last=expected[-1], count=len(expected)) if expected else None)
    if expected:
        assert timetable.first_after(cron, zone, after) == expected[0]
        previewed = timetable.preview(cron, zone, after, len(expected))
        assert [tick.time for tick in previewed] == expected
        assert all(datetime.fromisoformat(tick.local) == tick.time for tick in previewed)


@law
@given(
    crons(),
    spans(),
    st.integers(1, 7_200),
    st.lists(st.integers(0, 36_000), min_size=1, max_size=6),
    st.integers(1, 5),
)
def test_each_time_is_fired_or_missed_once_and_never_early_t2_tc_06(
    fields: Fields, span: tuple[str, datetime, datetime], window: int, steps: list[int], limit: int
) -> None:
    """A watch that comes when it likes: what it fires and what it misses are all times, in order, each once; what is older than the window is missed."""
    zone, now, _ = span
    spec = ScheduleSpec(cron_expression=fields[0], timezone=zone, catchup_window_ms=window * 1_000)
    start = now
    next_time = timetable.first_after(spec.cron_expression, zone, now)
    fired: list[datetime] = []
    missed = 0
    for step in steps:
        now += timedelta(seconds=step)
        while next_time <= now:
            due = timetable.due(spec, next_time, now, limit)
            edge = now - timedelta(seconds=window)
            if due.missed is not None:
                assert due.missed.last < edge
                assert not fired or fired[-1] < due.missed.first
                missed += due.missed.count
            assert all(edge <= time <= now for time in due.fires)
            assert len(due.fires) <= limit
            fired += due.fires
            assert due.next_time > next_time, "next is always later"
            assert due.next_time > now or len(due.fires) == limit
            next_time = due.next_time
        assert timetable.due(spec, next_time, now).fires == (), "nothing is due before its time"
    assert fired == sorted(set(fired))
    expected = modelled(fields, zone, start, now)
    assert set(fired) <= set(expected)
    assert len(fired) + missed == len(expected)


def test_tc_06_a_catch_up_at_its_boundary() -> None:
    spec = ScheduleSpec(cron_expression="*/5 * * * *", catchup_window_ms=12 * 60_000)
    due = timetable.due(spec, utc(2024, 1, 1, 10, 5), utc(2024, 1, 1, 10, 31))
    assert [time.minute for time in due.fires] == [20, 25, 30]
    assert due.missed == Gap(first=utc(2024, 1, 1, 10, 5), last=utc(2024, 1, 1, 10, 15), count=3)
    assert due.next_time == utc(2024, 1, 1, 10, 35)
    exact = timetable.due(spec, utc(2024, 1, 1, 10, 5), utc(2024, 1, 1, 10, 32))
    assert exact.fires[0] == utc(2024, 1, 1, 10, 20), "as old as the window is in it"
    later = timetable.due(spec, utc(2024, 1, 1, 10, 5), utc(2024, 1, 1, 10, 32, 0, 1))
    assert later.fires[0] == utc(2024, 1, 1, 10, 25)


def test_more_than_a_turn_takes_goes_on_in_the_next() -> None:
    spec = ScheduleSpec(cron_expression="* * * * *", catchup_window_ms=86_400_000)
    now = utc(2024, 1, 2)
    due = timetable.due(spec, utc(2024, 1, 1, 12), now)
    assert len(due.fires) == timetable.MAX_FIRES
    assert due.next_time == due.fires[-1] + MINUTE <= now
    assert due.missed is None


def test_a_clock_that_was_set_back_fires_nothing() -> None:
    spec = ScheduleSpec(cron_expression="* * * * *")
    due = timetable.due(spec, utc(2024, 1, 1, 12), utc(2024, 1, 1, 11))
    assert (due.missed, due.fires, due.next_time) == (None, (), utc(2024, 1, 1, 12))


def test_tc_04_an_outage_of_years_is_counted_by_its_days() -> None:
    gap = timetable.gap("* * * * *", "America/New_York", utc(2014, 1, 1), utc(2024, 1, 1))
    assert gap == Gap(first=utc(2014, 1, 1, 0, 1), last=utc(2024, 1, 1), count=MAX_COUNTED)
    assert timetable.first_after("0 0 29 2 *", "UTC", utc(2096, 3, 1)) == utc(2104, 2, 29)
    leap_days = timetable.times("0 0 29 2 *", "UTC", utc(1970, 1, 1), utc(2024, 3, 1), 100)
    assert [time.year for time in leap_days] == [*range(1972, 2025, 4)], "however long the span is"
    assert timetable.gap("0 0 29 2 *", "UTC", utc(1990, 1, 1), utc(2024, 2, 28)) == Gap(
        first=utc(1992, 2, 29), last=utc(2020, 2, 29), count=8
    )


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        ("30 2 * * *", "America/New_York", utc(2024, 3, 10), [("2024-03-10T03:00:00-04:00", "GAP"), ("2024-03-11T02:30:00-04:00", "")]),
        ("0,30 2,3 * * *", "America/New_York", utc(2024, 3, 10), [("2024-03-10T03:00:00-04:00", ""), ("2024-03-10T03:30:00-04:00", "")]),
        ("*/30 2 * * *", "America/New_York", utc(2024, 3, 10), [("2024-03-11T02:00:00-04:00", "")]),
        ("30 1 * * *", "America/New_York", utc(2024, 11, 3), [("2024-11-03T01:30:00-04:00", "REPEAT_FIRST"), ("2024-11-04T01:30:00-05:00", "")]),
        ("*/30 1 * * *", "America/New_York", utc(2024, 11, 3, 5),
            [("2024-11-03T01:30:00-04:00", "REPEAT_FIRST"), ("2024-11-03T01:00:00-05:00", "REPEAT_SECOND")]),
        ("15 2 * * *", "Australia/Lord_Howe", utc(2024, 10, 5, 14), [("2024-10-06T02:30:00+11:00", "GAP"), ("2024-10-07T02:15:00+11:00", "")]),
        ("*/20 3 * * *", "Australia/Lord_Howe", utc(2024, 10, 5, 14), [("2024-10-06T03:00:00+11:00", ""), ("2024-10-06T03:20:00+11:00", "")]),
        ("40 * * * *", "Australia/Lord_Howe", utc(2024, 4, 6, 14, 39),
            [("2024-04-07T01:40:00+11:00", "REPEAT_FIRST"), ("2024-04-07T01:40:00+10:30", "REPEAT_SECOND")]),
        ("0 0 * * *", "America/Santiago", utc(2024, 9, 8), [("2024-09-08T01:00:00-03:00", "GAP"), ("2024-09-09T00:00:00-03:00", "")]),
        ("*/15 1-5 * * 0", "America/Santiago", utc(2024, 9, 8), [("2024-09-08T01:00:00-03:00", ""), ("2024-09-08T01:15:00-03:00", "")]),
    ],
)  # fmt: skip
def test_tc_01_tc_02_a_preview_marks_what_the_clocks_do(
    cron: str, zone: str, after: datetime, expected: list[tuple[str, str]]
) -> None:
    found: tuple[Tick, ...] = timetable.preview(cron, zone, after, len(expected))
    assert [(tick.local, tick.change) for tick in found] == expected


@pytest.mark.parametrize(
    ("cron", "zone"), [("* * * * *", "Mars/Olympus"), ("61 * * * *", "UTC"), ("0 0 29 2 1#5,2#5 x", "UTC")]
)
def test_a_schedule_that_cannot_be_computed_says_so(cron: str, zone: str) -> None:
    for ask in (
        lambda: timetable.first_after(cron, zone, utc(2024, 1, 1)),
        lambda: timetable.times(cron, zone, utc(2024, 1, 1), utc(2024, 1, 2), 1),
        lambda: timetable.gap(cron, zone, utc(2024, 1, 1), utc(2024, 1, 2)),
        lambda: timetable.preview(cron, zone, utc(2024, 1, 1), 1),
        lambda: timetable.due(ScheduleSpec(cron_expression=cron, timezone=zone), utc(2024, 1, 1), utc(2024, 1, 2)),
    ):
        with pytest.raises(MomentInvalid):
            ask()


def test_the_end_of_the_calendar_is_no_accident() -> None:
    with pytest.raises(MomentInvalid, match="never comes"):
        timetable.first_after("0 0 29 2 *", "UTC", utc(9999, 12, 31))
    assert (
        timetable.times("* * * * *", "America/New_York", utc(9999, 12, 31, 23, 59), utc(9999, 12, 31, 23, 59), 9) == ()
    )
