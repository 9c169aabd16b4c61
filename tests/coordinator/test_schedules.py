"""Schedules on real rows: each time of a timetable is dealt with once, whoever comes to it and when (ruling T2)."""

import asyncio
from datetime import timedelta

import pytest

from ductord.model.control import ControlBody
from ductord.model.enums import Verb
from ductord.model.starting import fired_run_id
from tests.coordinator.conftest import Ticker
from tests.coordinator.timetables import Timetables, at, drained, fires, firing, timetables
from tests.support.books import Books

__all__ = ["timetables"]

TWELVE_MINUTES = 12 * 60_000


@pytest.mark.parametrize(("policy", "later"), [("allow_all", "started"), ("skip", "skipped")])
async def test_tc_06_catching_up_has_a_window_and_enabling_again_has_none(
    timetables: Timetables, ticker: Ticker, policy: str, later: str
) -> None:
    """TC-06: every 5 minutes, window 12 minutes; down from 10:01 to 10:31, then paused from 11:01 to 11:31: 10:20, 10:25 and 10:30 fire in this order, under
    `skip` the first alone; enabling again makes up for nothing."""
    manifest = firing("*/5 * * * *", catchup_window_ms=TWELVE_MINUTES, overlap_policy=policy)
    schedule = await timetables.publish(manifest)
    await timetables.at(ticker.connection, at("10:01"))
    assert await timetables.fired(schedule) == []
    turned = await timetables.at(ticker.connection, at("10:31"))
    assert await timetables.fired(schedule) == [("10:20", "started"), ("10:25", later), ("10:30", later)]
    assert await timetables.gaps(schedule) == [("10:05", "10:15", 3, "missed")]
    assert [(s.schedule_id, count) for s, count in turned.missed] == [(schedule, 3)]
    assert [fired.outcome for _, fired in turned.fired] == ["started", later, later]
    row = await timetables.row(schedule)
    assert (row["next_time"], row["last_time"], row["missed_count"]) == (at("10:35"), at("10:30"), 3)
    assert (row["started_count"], row["skipped_count"]) == ((3, 0) if policy == "allow_all" else (1, 2))
    assert turned.next_s == 240
    for minute in range(35, 61, 5):
        await timetables.at(ticker.connection, at("10:31") + timedelta(minutes=minute - 31))
    await timetables.set(at("11:01"))
    before = await timetables.fired(schedule)
    assert len(before) == 9
    pause = "update eec_workflow_schedule set next_time = null, pause_time = eec_now(), paused_by = 'ann'"
    await timetables.owner.execute(pause)
    for time in ("11:10", "11:31"):
        await timetables.at(ticker.connection, at(time))
    resume = "update eec_workflow_schedule set next_time = $1, pause_time = null, paused_by = ''"
    await timetables.owner.execute(resume, at("11:35"))
    await timetables.at(ticker.connection, at("11:34:59"))
    assert await timetables.fired(schedule) == before
    await timetables.at(ticker.connection, at("11:35"))
    assert (await timetables.fired(schedule))[9:] == [("11:35", later)]
    await timetables.whole()


async def test_tc_06_a_time_at_the_very_edge_of_the_window_fires(timetables: Timetables, ticker: Ticker) -> None:
    """TC-06: due is what is no older than the window, its last instant included."""
    inside = await timetables.publish(firing("*/5 * * * *", catchup_window_ms=TWELVE_MINUTES))
    await timetables.at(ticker.connection, at("10:17"))
    assert (await timetables.fired(inside))[0] == ("10:05", "started")
    assert await timetables.gaps(inside) == []
    beyond = await timetables.publish(firing("*/5 * * * *", catchup_window_ms=TWELVE_MINUTES))
    await timetables.at(ticker.connection, at("10:32:00.000001"))
    assert (await timetables.fired(beyond))[0] == ("10:25", "started")
    assert await timetables.gaps(beyond) == [("10:20", "10:20", 1, "missed")]


async def test_tc_08_a_restart_every_hour_loses_no_weekly_time(
    timetables: Timetables, ticker: Ticker, other_ticker: Ticker
) -> None:
    """TC-08: a weekly schedule, a coordinator that is another one every hour, for two weeks, two of them at once: two runs."""
    schedule = await timetables.publish(firing("30 9 * * 1", catchup_window_ms=3_600_000, overlap_policy="allow_all"))
    for hour in range(14 * 24):
        await timetables.set(at("10:01") + timedelta(hours=hour))
        await asyncio.gather(drained(ticker.connection), drained(other_ticker.connection))
    assert [run["nominal_time"] for run in await timetables.runs(schedule)] == [
        "2030-01-07T09:30:00Z", "2030-01-14T09:30:00Z",
    ]  # fmt: skip
    await timetables.whole()


async def test_tc_08_two_coordinators_and_one_due_row(
    timetables: Timetables, ticker: Ticker, other_ticker: Ticker
) -> None:
    """TC-08: both come to every time at once; its run's id says that it is one."""
    schedule = await timetables.publish(firing("* * * * *", overlap_policy="allow_all"))
    for minute in range(30):
        await timetables.set(at("10:01") + timedelta(minutes=minute))
        await asyncio.gather(drained(ticker.connection), drained(other_ticker.connection))
    runs = await timetables.runs(schedule)
    times = [at("10:01") + timedelta(minutes=minute) for minute in range(30)]
    assert [run["run_id"] for run in runs] == [fired_run_id(schedule, time) for time in times]
    assert {run["actor"] for run in runs} == {"schedule:schedule"}
    await timetables.whole()


async def test_a_run_that_goes_on_as_another_is_still_active(
    timetables: Timetables, ticker: Ticker, books: Books
) -> None:
    """T2, C6: under `skip` a run is active until the last of those that continued it has ended; the chain is walked once."""
    schedule = await timetables.publish(firing("* * * * *"))
    await timetables.at(ticker.connection, at("10:01"))
    run_id = fired_run_id(schedule, at("10:01"))
    await timetables.at(ticker.connection, at("10:02"))
    assert (await timetables.fired(schedule))[1:] == [("10:02", "skipped")], "one that has not begun yet is active"
    await ticker.drain()
    for minute in (3, 4):
        await books.control(run_id, Verb.CONTINUE_AS_NEW, request_id=f"c{minute}", body=ControlBody())
        await ticker.drain()
        await books.report(run_id)
        await ticker.drain()
        of = "select continued_to_run_id::text from eec_workflow_run where run_id = $1"
        run_id = await books.owner.fetchval(of, run_id)
        assert run_id is not None
        await timetables.at(ticker.connection, at(f"10:0{minute}"))
        assert (await timetables.fired(schedule))[-1] == (f"10:0{minute}", "skipped")
        tail = "select tail_run_id::text from eec_workflow_schedule_fire where run_id is not null"
        assert await books.owner.fetchval(tail) == run_id
    await ticker.drain()
    await books.report(run_id)
    await ticker.drain()
    assert await books.status(run_id) == "completed"
    await timetables.at(ticker.connection, at("10:05"))
    assert (await timetables.fired(schedule))[-1] == ("10:05", "started")
    ended = "select count(*) from eec_workflow_schedule_fire where end_time is not null"
    assert await books.owner.fetchval(ended) == 1
    runs = await timetables.runs(schedule)
    assert len(runs) == 4, "successors say what started the first"


async def test_a_clock_that_jumps_fires_nothing_twice(timetables: Timetables, ticker: Ticker) -> None:
    """T2: a day ahead, an hour back, and on again: what was dealt with stays so, and what comes next comes once."""
    schedule = await timetables.publish(firing("*/30 * * * *", overlap_policy="allow_all", catchup_window_ms=3_600_000))
    await timetables.at(ticker.connection, at("11:00"))
    await timetables.at(ticker.connection, at("10:10"))
    await timetables.at(ticker.connection, at("11:10"))
    assert await timetables.fired(schedule) == [("10:30", "started"), ("11:00", "started")]
    await timetables.at(ticker.connection, at("2030-01-03T11:10"))
    assert (await timetables.fired(schedule))[2:] == [("10:30", "started"), ("11:00", "started")]
    assert await timetables.gaps(schedule) == [("11:30", "10:00", 46, "missed")]
    await timetables.at(ticker.connection, at("11:40"))
    await timetables.at(ticker.connection, at("2030-01-03T11:31"))
    assert (await timetables.fired(schedule))[4:] == [("11:30", "started")]
    await timetables.whole()


async def test_one_set_back_to_times_that_have_fired_finds_them_done(timetables: Timetables, ticker: Ticker) -> None:
    """T2: whatever sets `next_time` back, a time that has a row keeps it."""
    schedule = await timetables.publish(firing("* * * * *", overlap_policy="allow_all"))
    await timetables.at(ticker.connection, at("10:03"))
    await timetables.owner.execute("update eec_workflow_schedule set next_time = $1", at("10:01"))
    turned = await timetables.at(ticker.connection, at("10:04"))
    assert [fired.nominal_time for _, fired in turned.fired] == [at("10:04")]
    assert len(await timetables.runs(schedule)) == 4
    await timetables.whole()


async def test_five_hundred_that_are_due_at_once(timetables: Timetables, ticker: Ticker, other_ticker: Ticker) -> None:
    """T2: the backlog is shared by who is there, a hundred at a time, each schedule once; what is left of one is not passed over by the next look (PG-05)."""
    manifest = firing("* * * * *", overlap_policy="allow_all", catchup_window_ms=86_400_000)
    version_id = await timetables.books.publish(manifest)
    await timetables.follow(version_id, manifest)
    more = (
        "insert into eec_workflow_schedule (tenant_id, schedule_id, definition_id, family_slug, trigger_id, version_id, version, cron_expression, timezone,"
        " catchup_window_ms, overlap_policy, next_time) select tenant_id, gen_random_uuid(), definition_id, family_slug, trigger_id, version_id, version,"
        " cron_expression, timezone, catchup_window_ms, overlap_policy, next_time from eec_workflow_schedule, generate_series(1, 499)"
    )
    await timetables.owner.execute(more)
    await timetables.set(at("10:12:30"))
    turned = await asyncio.gather(drained(ticker.connection), drained(other_ticker.connection))
    assert sum(len(t.fired) for t in turned) == 500 * 12
    assert all(t.fired for t in turned)
    each = await timetables.owner.fetch("select started_count, next_time from eec_workflow_schedule")
    assert {tuple(row) for row in each} == {(12, at("10:13"))}
    await timetables.whole()


async def test_a_long_backlog_of_one_takes_turns(timetables: Timetables, ticker: Ticker) -> None:
    """T2: at most a hundred times of a schedule per turn, oldest first, and none is left behind."""
    schedule = await timetables.publish(firing("* * * * *", overlap_policy="allow_all", catchup_window_ms=86_400_000))
    turned = await timetables.at(ticker.connection, at("14:10"))
    assert len(turned.fired) == 249 + 1
    assert [fired.nominal_time for _, fired in turned.fired] == sorted(f.nominal_time for _, f in turned.fired)
    assert (await timetables.row(schedule))["next_time"] == at("14:11")


async def test_how_late_and_when_next(timetables: Timetables, ticker: Ticker) -> None:
    """The loop sleeps until the next time of any schedule, and knows how late it was."""
    await timetables.publish(firing("*/5 * * * *"))
    await timetables.publish(firing("7 * * * *"))
    turned = await timetables.at(ticker.connection, at("10:05:03"))
    assert (turned.late_s, turned.next_s) == ([3.0], 117.0)


async def test_many_schedules_take_no_more_statements_than_one(timetables: Timetables, ticker: Ticker) -> None:
    """No statement per fire: a turn of fifty schedules with three times each sends as many as a turn of one."""
    sent: list[str] = []
    warm = fires()
    await timetables.publish(firing("* * * * *", overlap_policy="allow_all"))
    await timetables.set(at("10:03"))
    await drained(ticker.connection, warm)
    ticker.connection.add_query_logger(lambda query: sent.append(query.query))
    await timetables.set(at("10:06"))
    await drained(ticker.connection, warm)
    of_one = list(sent)
    for _ in range(49):
        await timetables.publish(firing("* * * * *", overlap_policy="allow_all"))
    await timetables.set(at("10:09"))
    sent.clear()
    turned = await drained(ticker.connection, warm)
    assert len(turned.fired) == 150
    assert len([query for query in sent if "manifest" not in query]) == len(of_one)
    assert len([query for query in sent if "manifest" in query]) == 1
