"""Schedules that ask for much: tenants take turns, inputs and values have their limits, and what has passed costs nobody (ruling T2, PG-05)."""

import json

import asyncpg
import pytest
from msgspec.structs import replace

from ductord.coordinator import schedules
from ductord.coordinator.schedules import Watch, turn
from ductord.rpc.metrics import Metrics
from ductord.starting import births
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.timetables import Timetables, at, drained, fires, firing, template, timetables

__all__ = ["timetables"]


async def test_inputs_without_end_hold_up_their_own_tenant_alone(
    timetables: Timetables, ticker: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2: a turn gives each tenant its share of the time for inputs, and one fire at least; whose inputs take all of it comes again in the next turn."""
    monkeypatch.setattr(schedules, "_INPUTS_S", 0.0)
    input_ = template({"at": "${{ TRIGGER.scheduled_time }}"}, "TRIGGER")
    dear = [await timetables.publish(firing("* * * * *", input_=input_), tenant="a-dear") for _ in range(3)]
    other = await timetables.publish(firing("* * * * *", input_=input_), tenant="z-other")
    await timetables.set(at("10:01"))
    turned = await turn(ticker.connection, fires())
    assert [fired.schedule_id for fired, _ in turned.fired] == [dear[0], other]
    assert turned.left
    await drained(ticker.connection)
    assert [await timetables.fired(one) for one in dear] == [[("10:01", "started")]] * 3


async def test_who_is_always_late_takes_a_share_of_the_places(
    timetables: Timetables, ticker: Ticker, other_ticker: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T2: tenants take turns where more is due than a turn takes; one with many that are long due keeps nobody else from firing, also beside another turn."""
    monkeypatch.setattr(schedules, "SCHEDULES", 2)
    daily = firing("0 9 * * *", catchup_window_ms=2_000_000_000)
    late = [await timetables.publish(daily, tenant="a-late") for _ in range(9)]
    other = await timetables.publish(firing("* * * * *"), tenant="z-other")
    await timetables.set(at("2030-01-03T09:00:30"))
    turned = await turn(ticker.connection, fires())
    assert {fired.tenant_id for fired, _ in turned.fired} == {"a-late", "z-other"}
    left = [one for one in late if one not in {fired.schedule_id for fired, _ in turned.fired}]
    assert len(left) == 8
    async with ticker.connection.transaction():
        held = "select from eec_workflow_schedule where schedule_id = any($1::uuid[]) for update"
        await ticker.connection.fetch(held, left[1:])
        turned = await turn(other_ticker.connection, fires())
        assert {fired.schedule_id for fired, _ in turned.fired} - {other} == {left[0]}
    await drained(ticker.connection)
    assert [await timetables.fired(one) for one in late] == [[("09:00", "started")]] * 9


async def test_what_starts_with_large_values_is_born_in_parts(
    timetables: Timetables, ticker: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L8: the values of an environment are frozen with each run, so they count for what one statement may carry, as inputs do; all are one transaction."""
    monkeypatch.setattr(births, "BORN_BYTES", 1_000)
    schedule = await timetables.publish(
        replace(firing("* * * * *", overlap_policy="allow_all"), variables={"text": ""})
    )
    values = json.dumps({"text": "x" * 600})
    await timetables.owner.execute(
        "insert into eec_workflow_env_override (tenant_id, definition_id, environment, variables)"
        " select tenant_id, definition_id, 'prod', $2 from eec_workflow_schedule where schedule_id = $1",
        schedule,
        values,
    )
    await timetables.set(at("10:03"))
    sent: list[str] = []
    ticker.connection.add_query_logger(lambda query: sent.append(query.query))
    await turn(ticker.connection, fires(environment="prod"))
    assert len([query for query in sent if "insert into eec_workflow_run_start" in query]) == 3
    assert [run["variables"] for run in await timetables.runs(schedule)] == [values] * 3
    await timetables.whole()


@pytest.mark.pages
async def test_pg_05_dead_times_do_not_slow_the_look(
    database: Database, timetables: Timetables, ticker: Ticker
) -> None:
    """PG-05: 2,000 times pass while a snapshot is open elsewhere: a look reads no more entries than one did before; what was left behind the mark is found by
    the net."""
    snapshot = await asyncpg.connect(database.owner)
    try:
        schedule = await timetables.publish(firing("0 12 * * *"))
        await snapshot.execute("begin isolation level repeatable read")
        await snapshot.fetchval("select count(*) from eec_workflow_schedule")
        move = "update eec_workflow_schedule set next_time = $1"
        await timetables.owner.execute(
            "do $$ begin for n in 1 .. 2000 loop update eec_workflow_schedule"
            " set next_time = '2030-01-02T09:00:00Z'::timestamptz + n * interval '1 second'; end loop; end $$"
        )
        await timetables.owner.execute(move, at("12:00"))
        since = (await turn(ticker.connection, fires())).since
        before = await _entries(ticker.connection)
        for _ in range(10):
            assert (await turn(ticker.connection, fires(), since)).fired == []
        assert await _entries(ticker.connection) - before < 50
        await timetables.owner.execute(move, at("10:00"))
        assert (await turn(ticker.connection, fires(), since)).fired == []
        watch = Watch(Metrics(), fires())
        await watch.net(ticker.connection)
        assert (await timetables.row(schedule))["next_time"] == at("12:00")
    finally:
        await snapshot.close()


async def _entries(connection: asyncpg.Connection) -> int:
    await connection.execute("select pg_stat_force_next_flush()")
    read: int = await connection.fetchval(
        "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'eec_workflow_schedule_due'"
    )
    return read
