"""Schedules under people who mean no good, or do not know how much they ask for (T2, L7)."""

import asyncio
import time
from typing import Any

import grpc
import pytest

from ductord.model.enums import Verb
from ductord.trigger import schedules
from ductord.trigger.service import SERVICE
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.timetables import Timetables, at, template
from tests.coordinator.timetables import firing as due
from tests.support.books import Books
from tests.support.edges import serving
from tests.trigger.operated import NOON, Operator, firing

pytestmark = pytest.mark.timeout(120)

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


async def test_l7_a_backfill_of_slow_inputs_has_an_end_and_others_are_served(
    database: Database, books: Books, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2: a thousand inputs that each take what an expression may take would have locked the row, and kept every other call waiting, for minutes. (Its end is
    brought near: how long 720 of them take is the machine's affair.)"""
    monkeypatch.setattr(schedules, "_INPUTS_S", 1.0)
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


async def _is_too_large(asked: "asyncio.Task[Any]") -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await asked
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "in parts" in (refused.value.details() or "")


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
