"""Fires that somebody asked for, beside those of the timetable; and rows that do not fire (rulings T2, D3)."""

import asyncpg

from ductord.coordinator.schedules import Watch
from ductord.rpc.metrics import Metrics
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.timetables import Timetables, at, fires, firing, minutes, timetables

__all__ = ["timetables"]


async def test_a_backfill_starts_what_has_not_started(
    timetables: Timetables, ticker: Ticker, database: Database
) -> None:
    """T2: of a span, times that have started a run stay as they are; skipped ones and those of a gap start; the timetable then comes to none of them again."""
    schedule = await timetables.publish(firing("* * * * *", catchup_window_ms=60_000))
    await timetables.at(ticker.connection, at("10:05"))
    assert await timetables.fired(schedule) == [("10:04", "started"), ("10:05", "skipped")]
    trigger = await asyncpg.connect(database.dsn("trigger"))
    try:
        await timetables.set(at("10:07"))
        span = minutes(at("10:02"), 6)
        became = await timetables.ask(trigger, schedule, span, source="backfill", overlap_policy="allow_all")
        assert [outcome for _, outcome in became] == ["started", "started", "already", "started", "started", "started"]
        became = await timetables.ask(trigger, schedule, span, source="backfill", overlap_policy="allow_all")
        assert {outcome for _, outcome in became} == {"already"}
        became = await timetables.ask(trigger, schedule, [at("10:00")], source="backfill", overlap_policy="skip")
        assert became == [("10:00", "skipped")]
    finally:
        await trigger.close()
    turned = await timetables.at(ticker.connection, at("10:07"))
    assert turned.fired == []
    assert (await timetables.row(schedule))["next_time"] == at("10:08")
    assert len(await timetables.runs(schedule)) == 6
    sources = "select count(*) from eec_workflow_schedule_fire where source = 'backfill' and outcome = 'started'"
    assert await timetables.owner.fetchval(sources) == 5


async def test_what_a_backfill_came_to_is_not_missed(
    timetables: Timetables, ticker: Ticker, database: Database
) -> None:
    """T2: while no coordinator runs, an operator fires a part of what will be past the window."""
    schedule = await timetables.publish(firing("* * * * *", catchup_window_ms=60_000, overlap_policy="allow_all"))
    await timetables.set(at("10:30:30"))
    trigger = await asyncpg.connect(database.dsn("trigger"))
    try:
        await timetables.ask(trigger, schedule, minutes(at("10:01"), 20), source="backfill")
    finally:
        await trigger.close()
    await timetables.at(ticker.connection, at("10:30:30"))
    assert await timetables.gaps(schedule) == [("10:01", "10:29", 9, "missed")]
    assert (await timetables.row(schedule))["missed_count"] == 9
    assert len(await timetables.runs(schedule)) == 21


async def test_a_fire_by_hand_takes_no_time_of_the_timetable(
    timetables: Timetables, ticker: Ticker, database: Database
) -> None:
    """T2: asked for at the very minute, it has a time of its own beside the one that is due, and so has the next one at the same moment."""
    schedule = await timetables.publish(firing("* * * * *", overlap_policy="allow_all"))
    await timetables.set(at("10:01"))
    trigger = await asyncpg.connect(database.dsn("trigger"))
    try:
        for request in ("a", "b"):
            await timetables.ask(trigger, schedule, [at("10:01")], source="manual", request_id=request)
    finally:
        await trigger.close()
    await timetables.at(ticker.connection, at("10:01"))
    rows = await timetables.owner.fetch(
        "select nominal_time, source, request_id from eec_workflow_schedule_fire order by 1"
    )
    assert [(f"{row[0]:%H:%M:%S.%f}", row[1], row[2]) for row in rows] == [
        ("10:01:00.000000", "timetable", ""), ("10:01:00.000001", "manual", "a"), ("10:01:00.000002", "manual", "b"),
    ]  # fmt: skip
    assert len(await timetables.runs(schedule)) == 3
    assert (await timetables.row(schedule))["started_count"] == 3


async def test_rows_that_do_not_fire(timetables: Timetables, ticker: Ticker) -> None:
    """D3: paused and retired ones have no next time, and nobody looks at them."""
    schedules = [await timetables.publish(firing("* * * * *")) for _ in range(3)]
    pause = "update eec_workflow_schedule set next_time = null, pause_time = eec_now() where schedule_id = $1"
    await timetables.owner.execute(pause, schedules[0])
    retire = "update eec_workflow_schedule set next_time = null, live = false where schedule_id = $1"
    await timetables.owner.execute(retire, schedules[1])
    await timetables.at(ticker.connection, at("10:05"))
    assert [len(await timetables.fired(schedule)) for schedule in schedules] == [0, 0, 5]
    watch = Watch(Metrics(), fires())
    await watch.net(ticker.connection)
