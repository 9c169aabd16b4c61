"""Schedules under people who mean no good, or do not know how much they ask for (T2, L7)."""

import asyncio
import time
from typing import Any

import grpc
import pytest

from ductord.coordinator import schedules
from ductord.model.enums import Verb
from ductord.starting import births
from ductord.trigger.service import SERVICE
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.timetables import Timetables, at, drained, fires, template
from tests.coordinator.timetables import firing as due
from tests.support.books import Books
from tests.support.edges import serving
from tests.trigger.operated import NOON, Operator, firing

pytestmark = pytest.mark.timeout(120)

_LONG = "x" * 200_000
_NUMBERS = ", ".join(str(n) for n in range(40))
_SLOW = f"${{{{ [{_NUMBERS}].map(a, [{_NUMBERS}].map(b, [{_NUMBERS}].map(c, a + b + c)).size()) }}}}"
"""Takes all the time that one expression has."""


async def test_t2_a_run_that_is_redriven_is_active_again(books: Books, ticker: Ticker) -> None:
    """T2, C4: its end was seen, and the schedule has fired since; taken up again it keeps the next time from starting another."""
    timetables = Timetables(books)
    await timetables.begin(at("10:00:30"))
    schedule = await timetables.publish(due("* * * * *"))
    for minute in ("10:01", "10:02"):
        await timetables.at(ticker.connection, at(minute))
        await ticker.drain()
        run_id = (await timetables.runs(schedule))[-1]["run_id"]
        await books.control(run_id, Verb.CANCEL)
        await ticker.drain()
        if await books.status(run_id) == "running":  # its worker is told, and says so
            await books.report(run_id, outcome="lost", output=None)
            await ticker.drain()
    await timetables.at(ticker.connection, at("10:03"))
    first, _, third = [row["run_id"] for row in await timetables.runs(schedule)]
    await ticker.drain()
    await books.control(third, Verb.CANCEL)
    await books.control(first, Verb.REDRIVE)
    await ticker.drain()
    assert await books.status(first) == "running"
    await timetables.at(ticker.connection, at("10:04"))
    assert [outcome for _, outcome in await timetables.fired(schedule)] == ["started"] * 3 + ["skipped"]
    await timetables.whole()


async def test_l7_a_backfill_of_slow_inputs_has_an_end_and_others_are_served(database: Database, books: Books) -> None:
    """T2: a thousand inputs that each take what an expression may take would have locked the row, and kept every other call waiting, for minutes."""
    owner = books.owner
    async with serving(database, [SERVICE], pool_max_size=2) as edges:
        operator = Operator(owner, edges)
        await operator.clock(NOON)
        schedule = await operator.published(firing("* * * * *", input_=template({"n": _SLOW}, "TRIGGER")))
        asked = asyncio.create_task(operator.backfill(schedule, "00:00", "12:00"))
        slowest = 0.0
        while not asked.done():
            begin = time.monotonic()
            await operator.get(schedule)
            slowest = max(slowest, time.monotonic() - begin)
            await asyncio.sleep(0.05)
        await _is_too_large(asked)
        assert slowest < 5
        assert await owner.fetchval("select count(*) from eec_workflow_schedule_fire") == 0
        answer = await operator.backfill(schedule, "11:58", "12:00")
        assert answer.failed_count == 2


async def test_l7_a_backfill_of_large_inputs_is_refused_or_done(database: Database, books: Books) -> None:
    """L7: what no message to the database can hold was tried again and again, and then called an outage."""
    owner = books.owner
    async with serving(database, [SERVICE], pool_max_size=2) as edges:
        operator = Operator(owner, edges)
        await operator.clock(NOON)
        schedule = await operator.published(firing("* * * * *", input_=template({"text": _LONG})))
        await _is_too_large(asyncio.create_task(operator.backfill(schedule, "00:00", "12:00")))
        assert await owner.fetchval("select count(*) from eec_workflow_run_start") == 0
        answer = await operator.backfill(schedule, "11:00", "12:00")
        assert len(answer.started_run_ids) == 60


async def _is_too_large(asked: "asyncio.Task[Any]") -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await asked
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "in parts" in (refused.value.details() or "")


async def test_l7_a_turn_takes_so_many_bytes(books: Books, ticker: Ticker) -> None:
    """L7, L8: values of VARS are written with every run; a turn that catches up with large ones leaves the rest to the next, and no time is lost."""
    timetables = Timetables(books)
    await timetables.begin(at("10:00:30"))
    manifest = due("* * * * *", catchup_window_ms=86_400_000, overlap_policy="allow_all")
    schedule = await timetables.publish(manifest)
    await books.owner.execute(
        "insert into eec_workflow_env_override (tenant_id, definition_id, environment, variables)"
        " select tenant_id, definition_id, 'prod', json_build_object('a', $1::text) from eec_workflow_schedule",
        "y" * 1_000_000,
    )
    await timetables.set(at("10:40"))
    fires_in_prod = fires(environment="prod")
    turned = await schedules.turn(ticker.connection, fires_in_prod)
    assert 1 <= len(turned.fired) <= 10
    assert turned.left
    await drained(ticker.connection, fires_in_prod)
    assert [outcome for _, outcome in await timetables.fired(schedule)] == ["started"] * 40
    await timetables.whole()


async def test_l7_births_come_in_batches(books: Books, ticker: Ticker, monkeypatch: pytest.MonkeyPatch) -> None:
    """T2: more runs than one statement takes are born in the same transaction by several."""
    monkeypatch.setattr(births, "_BORN", 7)
    timetables = Timetables(books)
    await timetables.begin(at("10:00:30"))
    schedule = await timetables.publish(due("* * * * *", overlap_policy="allow_all", catchup_window_ms=86_400_000))
    await timetables.at(ticker.connection, at("10:40"))
    assert len(await timetables.runs(schedule)) == 40
    await timetables.whole()


async def test_t2_a_fire_by_hand_leaves_what_is_broken_broken(books: Books, ticker: Ticker) -> None:
    """T2: a broken schedule says why, whatever was fired by hand since."""
    timetables = Timetables(books)
    await timetables.begin(at("10:00:30"))
    schedule = await timetables.publish(due("* * * * *"))
    await books.owner.execute(
        "update eec_workflow_schedule set next_time = null, error_code = 'TIMETABLE_INVALID', error_message = 'gone'"
    )
    asked = await timetables.ask(ticker.connection, schedule, [at("10:00:31")], source="manual", request_id="r")
    assert [outcome for _, outcome in asked] == ["started"]
    assert (await timetables.row(schedule))["error_code"] == "TIMETABLE_INVALID"
