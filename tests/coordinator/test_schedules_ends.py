"""How the ends of a schedule's runs are noted: by them the next time is judged (ruling T2)."""

import asyncio

from ductord.coordinator.schedules import Watch, turn
from ductord.rpc.metrics import Metrics
from tests.coordinator.conftest import Ticker
from tests.coordinator.timetables import Timetables, at, fires, firing, timetables
from tests.support.books import Books

__all__ = ["timetables"]


async def test_runs_that_ended_are_seen_once_whatever_the_policy(
    timetables: Timetables, ticker: Ticker, books: Books
) -> None:
    """T2: a schedule that allows all never asks who is active; the net marks what has ended, so that a later `skip` does not look back over all of it."""
    schedule = await timetables.publish(firing("* * * * *", overlap_policy="allow_all", catchup_window_ms=86_400_000))
    await timetables.at(ticker.connection, at("14:10"))
    await ticker.drain()
    await books.report()
    await ticker.drain()
    await timetables.at(ticker.connection, at("14:11"))
    active = "select count(*) from eec_workflow_schedule_fire where outcome = 'started' and end_time is null"
    assert await books.owner.fetchval(active) == 251
    watch = Watch(Metrics(), fires())
    await watch.net(ticker.connection)
    assert await books.owner.fetchval(active) == 1
    await ticker.drain()
    await books.report()
    await ticker.drain()
    await books.owner.execute("update eec_workflow_schedule_fire set end_time = null")
    await books.owner.execute("update eec_workflow_schedule set overlap_policy = 'skip'")
    await timetables.at(ticker.connection, at("14:12"))
    assert (await timetables.fired(schedule))[-1] == ("14:12", "started")
    assert await books.owner.fetchval(active) == 1


async def test_an_end_that_a_redrive_takes_back_is_not_noted_over_it(
    timetables: Timetables, ticker: Ticker, other_ticker: Ticker
) -> None:
    """T2: who looked before a redrive and notes after it finds the row written: the run is active again, and stays so."""
    schedule = await timetables.publish(firing("* * * * *"))
    await timetables.at(ticker.connection, at("10:01"))
    await ticker.drain()
    ended = "update eec_workflow_run set status = 'failed', end_time = eec_now()"
    await timetables.owner.execute(ended)
    await timetables.set(at("10:02"))
    reopened = timetables.owner.transaction()
    await reopened.start()
    await timetables.owner.execute("update eec_workflow_schedule_fire set end_time = null")
    await timetables.owner.execute("update eec_workflow_run set status = 'running', end_time = null")
    looking = asyncio.create_task(turn(other_ticker.connection, fires()))
    waits = "select count(*) from pg_locks where not granted and pid = $1"
    async with asyncio.timeout(30):
        while not await ticker.connection.fetchval(waits, other_ticker.connection.get_server_pid()):  # noqa: ASYNC110  # locks have no event
            await asyncio.sleep(0.01)
    await reopened.commit()
    await looking
    noted = "select end_time from eec_workflow_schedule_fire where schedule_id = $1 and nominal_time = $2"
    assert await timetables.owner.fetchval(noted, schedule, at("10:01")) is None
