"""Durations, times and cron expressions as people write them (TC-01, TC-02, TC-04, TC-05)."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ductord.engine import moments
from ductord.engine.moments import MomentInvalid
from tests.language.documents import law

NEW_YORK = "America/New_York"


def ticks(cron: str, zone: str, after: datetime, count: int) -> list[str]:
    found = []
    for _ in range(count):
        after = moments.next_tick(cron, zone, after)
        found.append(after.strftime("%Y-%m-%d %H:%M"))
    return found


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("0s", 0),
        ("90s", 90_000),
        ("1.5h", 5_400_000),
        ("1h30m", 5_400_000),
        ("5m5ms", 300_005),
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        ("PT0S", 0),
        ("PT1H30M", 5_400_000),
        ("P1DT0.5S", 86_400_500),
        ("P2W", 1_209_600_000),
        ("3653d", 3_653 * 86_400_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert moments.duration(text) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "-5s",
        "P-1D",
        "PT",
        "P",
        "P1M",
        "P1Y2M",
        "1y",
        "NaN",
        "null",
        "1e3s",
        "10 s",
        "5s5m",
        "PT5S5M",
        "٥s",
        "3654d",
        "9" * 80,
    ],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(MomentInvalid):
        moments.duration(text)


@law
@given(st.integers(0, 10**9), st.sampled_from(["ms", "s", "m", "h", "d"]))
def test_a_duration_is_never_shorter_than_it_says(number: int, unit: str) -> None:
    """Beyond ten years it is refused, and nothing else happens."""
    of_unit = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[unit]
    if number * of_unit > moments.LONGEST / timedelta(milliseconds=1):
        with pytest.raises(MomentInvalid, match="ten years"):
            moments.duration(f"{number}{unit}")
    else:
        assert moments.duration(f"{number}{unit}") == timedelta(milliseconds=number * of_unit)


@pytest.mark.parametrize("text", ["0.0000001s", "PT0.0000001S", "0.0001ms"])
def test_parts_of_a_microsecond_are_not_rounded_down(text: str) -> None:
    assert moments.duration(text) == timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2030-01-31T12:00:00Z", utc(2030, 1, 31, 12)),
        ("2030-01-31t12:00:00z", utc(2030, 1, 31, 12)),
        ("2030-01-31 12:00:00-05:00", utc(2030, 1, 31, 17)),
        ("2030-01-31T12:00:00.123456789+05:30", utc(2030, 1, 31, 6, 30, 0, 123_457)),
    ],
)
def test_times(text: str, moment: datetime) -> None:
    assert moments.instant(text) == moment


@pytest.mark.parametrize(
    "text",
    [
        "2030-01-31T12:00:00",
        "2030-01-31",
        "2030-02-30T00:00:00Z",
        "2030-01-31T25:00:00Z",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "2030-01-31T12:00:00 Europe/Berlin",
        "1893456000",
        "now",
        "",
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(MomentInvalid):
        moments.instant(text)


def test_tc_01_a_time_that_the_clock_change_leaves_out_comes_at_the_first_instant_behind_it() -> None:
    assert ticks("30 2 * * *", NEW_YORK, utc(2024, 3, 10), 2) == ["2024-03-10 07:00", "2024-03-11 06:30"]


def test_tc_02_a_fixed_time_that_the_clock_repeats_comes_once() -> None:
    assert ticks("30 1 * * *", NEW_YORK, utc(2024, 11, 3), 2) == ["2024-11-03 05:30", "2024-11-04 06:30"]
    assert ticks("30 1 * * *", NEW_YORK, utc(2024, 11, 3, 6, 10), 1) == ["2024-11-04 06:30"], "not in the past"


def test_tc_02_a_wildcard_comes_in_both_hours() -> None:
    found = ticks("*/30 * * * *", NEW_YORK, utc(2024, 11, 3, 4, 30), 5)
    assert [text[-5:] for text in found] == ["05:00", "05:30", "06:00", "06:30", "07:00"]


@pytest.mark.parametrize(
    "zone", [NEW_YORK, "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo", "Africa/Cairo", "UTC"]
)
@pytest.mark.parametrize("cron", ["*/5 * * * *", "0 0 * * *", "30 2 * * *", "*/7 1-3 * * *"])
def test_tc_02_ticks_only_go_forward(zone: str, cron: str) -> None:
    for after in (utc(2024, 3, 10), utc(2024, 10, 6), utc(2024, 11, 3), utc(2018, 11, 4), utc(2024, 4, 26)):
        chain = [after]
        for _ in range(60):
            chain.append(moments.next_tick(cron, zone, chain[-1]))
        assert all(one < other for one, other in pairwise(chain))


@pytest.mark.parametrize(
    "text",
    [
        "0 0 31 2 *",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "5-1 * * * *",
        "* * * * *\n",
        " * * * * *",
        "* * * * * *",
        "* * * *",
        "R R * * *",
        "",
        "@reboot",
        "@daily",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "-1 * * * *",
        "1.5 * * * *",
        "? * * * *",
        "٣ * * * *",
        "a * * * *",
        ", * * * *",
    ],
)
def test_tc_04_cron_text_that_means_nothing(text: str) -> None:
    with pytest.raises(MomentInvalid):
        moments.cron(text)


@law
@given(st.text(alphabet="0123456789*,/-LW#RASUNMONJAN \n", max_size=40))
def test_tc_04_no_text_hangs_or_breaks_the_judge(text: str) -> None:
    try:
        moments.cron(text)
    except MomentInvalid:
        return
    assert moments.next_tick(text, "UTC", utc(2030, 1, 1)) > utc(2030, 1, 1)


def test_tc_04_the_leap_day_is_real() -> None:
    moments.cron("0 0 29 2 *")
    assert ticks("0 0 29 2 *", "UTC", utc(2096, 3, 1), 1) == ["2104-02-29 00:00"]


def test_tc_05_day_of_month_and_day_of_week_combine_by_or() -> None:
    found = ticks("0 0 13 * 5", "UTC", utc(2024, 1, 1), 5)
    assert [text[5:10] for text in found] == ["01-05", "01-12", "01-13", "01-19", "01-26"]


def test_zones_are_those_of_the_release() -> None:
    assert {"UTC", NEW_YORK, "Asia/Kolkata"} <= moments.zones()
    for name in ("Mars/Olympus", "../etc/passwd", "", "america/new_york"):
        with pytest.raises(MomentInvalid):
            moments.time_zone(name)
