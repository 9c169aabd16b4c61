"""Schedules when things go wrong: a coordinator that dies, a schedule that cannot be dealt with, an input that cannot be (ruling T2). The others go on."""

import asyncio
import contextlib
import json
from collections.abc import Callable
from typing import Any, cast

import asyncpg
import pytest
from msgspec.structs import replace

from ductord.coordinator import schedules
from ductord.coordinator.schedules import Watch, turn
from ductord.model.manifest import FORMAT_VERSION
from ductord.rpc.metrics import Metrics
from ductord.starting import births
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.timetables import Timetables, at, drained, fires, firing, minutes, template, timetables
from tests.support.books import Books

__all__ = ["timetables"]

_SPOKEN = ("execute", "fetch", "fetchrow", "fetchval")


class Dying:
    """A connection that is cut at the n-th thing it says, before it was said or before the answer came."""

    def __init__(self, connection: asyncpg.Connection, n: int, *, unsaid: bool) -> None:
        self._connection, self._left, self._unsaid = connection, n, unsaid

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._connection, name)
        return self._cut(found) if name in _SPOKEN else found

    def _cut(self, said: Callable[..., Any]) -> Callable[..., Any]:
        async def say(*args: Any) -> Any:
            self._left -= 1
            if self._left == 0 and self._unsaid:
                self._connection.terminate()
            answer = await said(*args)
            if self._left == 0:
                self._connection.terminate()
                raise ConnectionResetError("cut")
            return answer

        return say

    @property
    def survived(self) -> bool:
        """Whether it was never cut."""
        return self._left > 0


@pytest.mark.parametrize("unsaid", [True, False])
async def test_a_coordinator_that_dies_leaves_everything_or_nothing(
    timetables: Timetables, database: Database, ticker: Ticker, unsaid: bool
) -> None:
    """T2: cut before or behind any statement of a turn, nothing is half written, and the next coordinator fires what is left, each time once."""
    schedules = [
        await timetables.publish(firing("* * * * *", overlap_policy="allow_all", catchup_window_ms=120_000)),
        await timetables.publish(firing("* * * * *", catchup_window_ms=120_000)),
        await timetables.publish(firing("* * * * *", overlap_policy="allow_all"), tenant="u"),
    ]
    count = "select count(*), (select count(*) from eec_workflow_run_start) from eec_workflow_schedule_fire"
    n = 0
    while True:
        n += 1
        now = at("10:00:30") + (at("10:05") - at("10:00")) * n
        await timetables.set(now)
        before = tuple(await timetables.owner.fetchrow(count)), [tuple(await timetables.row(s)) for s in schedules]
        connection = await asyncpg.connect(database.dsn("coordinator"))
        pid = connection.get_server_pid()
        dying = Dying(connection, n, unsaid=unsaid)
        with contextlib.suppress(ConnectionResetError, asyncpg.InterfaceError):
            await turn(cast(asyncpg.Connection, dying), fires())
        connection.terminate()
        gone = "select count(*) from pg_stat_activity where pid = $1"
        while await timetables.owner.fetchval(gone, pid):  # noqa: ASYNC110  # a server's process has no event
            await asyncio.sleep(0)
        after = tuple(await timetables.owner.fetchrow(count)), [tuple(await timetables.row(s)) for s in schedules]
        due = "select count(*) from eec_workflow_schedule where next_time <= eec_now()"
        assert after == before or await timetables.owner.fetchval(due) == 0
        await timetables.whole()
        await drained(ticker.connection)
        await timetables.whole()
        assert len(await timetables.fired(schedules[2])) == 5 * n
        if dying.survived:
            break
    assert n > 10, "every statement was cut once"


async def test_an_input_that_cannot_be_fails_its_time_alone(timetables: Timetables, ticker: Ticker) -> None:
    """T2, decision of the schema: what the template makes is judged as every input is; the time says why, the next one starts."""
    schema = {"type": "object", "properties": {"at": {"type": "string", "pattern": "T10:0[35]"}}}
    input_ = template({"at": "${{ TRIGGER.scheduled_time }}"}, "TRIGGER")
    manifest = replace(firing("* * * * *", input_=input_, overlap_policy="allow_all"), input_schema=schema)
    schedule = await timetables.publish(manifest)
    divided = template({"n": "${{ 1 / (TRIGGER.scheduled_time.contains('T10:04') ? 0 : 1) }}"}, "TRIGGER")
    other = await timetables.publish(firing("* * * * *", input_=divided, overlap_policy="allow_all"))
    turned = await timetables.at(ticker.connection, at("10:05"))
    assert await timetables.fired(schedule) == [
        ("10:01", "failed"), ("10:02", "failed"), ("10:03", "started"), ("10:04", "failed"), ("10:05", "started"),
    ]  # fmt: skip
    assert [outcome for _, outcome in await timetables.fired(other)] == ["started"] * 3 + ["failed", "started"]
    assert {f.code for _, f in turned.fired if f.outcome == "failed"} == {"INPUT_SCHEMA_MISMATCH", "EXPRESSION_ERROR"}
    row = await timetables.row(schedule)
    assert (row["failed_count"], row["started_count"], row["error_code"]) == (3, 2, "")
    await timetables.at(ticker.connection, at("10:06"))
    row = await timetables.row(schedule)
    assert (row["error_code"], row["next_time"]) == ("INPUT_SCHEMA_MISMATCH", at("10:07"))
    stored = "select error_code, run_id from eec_workflow_schedule_fire where schedule_id = $1 and nominal_time = $2"
    assert tuple(await timetables.owner.fetchrow(stored, schedule, at("10:01"))) == ("INPUT_SCHEMA_MISMATCH", None)
    await timetables.whole()


async def test_a_failed_time_makes_no_run_active(timetables: Timetables, ticker: Ticker) -> None:
    """T2: under `skip` only a run that was started keeps the next time from starting one."""
    schema = {"type": "object", "properties": {"at": {"type": "string", "pattern": "T10:0[34]"}}}
    input_ = template({"at": "${{ TRIGGER.scheduled_time }}"}, "TRIGGER")
    schedule = await timetables.publish(replace(firing("* * * * *", input_=input_), input_schema=schema))
    await timetables.at(ticker.connection, at("10:04"))
    outcomes = [outcome for _, outcome in await timetables.fired(schedule)]
    assert outcomes == ["failed", "failed", "started", "skipped"]


async def test_an_input_larger_than_a_payload_may_be_fails(timetables: Timetables, ticker: Ticker) -> None:
    """L7: the limit of this deployment."""
    schedule = await timetables.publish(firing("* * * * *", input_=template({"text": "x" * 200})))
    await timetables.set(at("10:01"))
    turned = await turn(ticker.connection, fires(payload_max_bytes=100))
    assert [fired.code for _, fired in turned.fired] == ["PAYLOAD_TOO_LARGE"]
    assert await timetables.runs(schedule) == []


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


async def test_l8_the_environment_of_who_fires_is_frozen_with_the_run(timetables: Timetables, ticker: Ticker) -> None:
    """L8: the template reads VARS as the environment has them, and the run keeps what the override said."""
    input_ = template({"to": "${{ VARS.to }}"}, "VARS")
    manifest = replace(firing("* * * * *", input_=input_, overlap_policy="allow_all"), variables={"to": "nobody"})
    schedule = await timetables.publish(manifest)
    override = (
        "insert into eec_workflow_env_override (tenant_id, definition_id, environment, variables)"
        " select tenant_id, definition_id, 'prod', '{\"to\": \"ann\"}' from eec_workflow_schedule"
    )
    await timetables.owner.execute(override)
    await timetables.set(at("10:01"))
    await turn(ticker.connection, fires())
    await timetables.set(at("10:02"))
    await turn(ticker.connection, fires(environment="prod"))
    runs = [(run["input"], run["environment"], run["variables"]) for run in await timetables.runs(schedule)]
    assert runs == [('{"to":"nobody"}', "", "{}"), ('{"to":"ann"}', "prod", '{"to": "ann"}')]


async def test_tc_04_a_schedule_that_cannot_be_dealt_with_breaks_alone(
    timetables: Timetables, ticker: Ticker, caplog: pytest.LogCaptureFixture
) -> None:
    """TC-04: a zone that is gone, a manifest that cannot be read, a trigger that it lacks: each is set aside with its reason, told once and counted; the fourth
    fires, and a publish mends the first."""
    good = await timetables.publish(firing("* * * * *"))
    manifest = firing("* * * * *")
    zone = await timetables.publish(manifest)
    await timetables.owner.execute(
        "update eec_workflow_schedule set timezone = 'Mars/Base' where schedule_id = $1", zone
    )
    unreadable = await timetables.publish(manifest, text='{"family_slug": 7}')
    lacking = await timetables.publish(manifest)
    rename = "update eec_workflow_schedule set trigger_id = 'nightly' where schedule_id = $1"
    await timetables.owner.execute(rename, lacking)
    metrics = Metrics()
    watch = Watch(metrics, fires())
    await timetables.set(at("10:01"))
    await watch.turn(ticker.connection)
    assert await timetables.fired(good) == [("10:01", "started")]
    for schedule, code, word in (
        (zone, "TIMETABLE_INVALID", "time zone"),
        (unreadable, "VERSION_UNREADABLE", "family_slug"),
        (lacking, "VERSION_UNREADABLE", "no such trigger"),
    ):
        row = await timetables.row(schedule)
        assert (row["next_time"], row["error_code"]) == (None, code)
        assert word in row["error_message"]
        assert await timetables.fired(schedule) == []
    told = [record.schedule_id for record in caplog.records if "is broken" in record.message]  # type: ignore[attr-defined]
    assert sorted(told) == sorted([zone, unreadable, lacking])
    await timetables.set(at("10:02"))
    await watch.turn(ticker.connection)
    await watch.net(ticker.connection)
    assert len(await timetables.fired(good)) == 2
    text = metrics.exposition().decode()
    assert "ductor_schedules_broken 3.0" in text
    assert 'ductor_schedule_fires_total{outcome="started",source="timetable"} 1.0' in text
    assert 'ductor_schedule_fires_total{outcome="skipped",source="timetable"} 1.0' in text
    assert "ductor_schedule_lateness_seconds_count 2.0" in text
    mend = "update eec_workflow_schedule set timezone = 'UTC', next_time = $2, error_code = '', error_message = '' where schedule_id = $1"
    await timetables.owner.execute(mend, zone, at("10:03"))
    await timetables.set(at("10:03"))
    await watch.turn(ticker.connection)
    assert await timetables.fired(zone) == [("10:03", "started")]


async def test_a_version_of_a_newer_engine_is_left_to_a_newer_coordinator(
    timetables: Timetables, ticker: Ticker
) -> None:
    """In a rolling upgrade an old coordinator neither fires nor breaks what it may not understand, and does not turn round for it."""
    manifest = firing("* * * * *")
    newer = await timetables.publish(manifest, format_version=FORMAT_VERSION + 1)
    schedule = await timetables.publish(manifest)
    turned = await timetables.at(ticker.connection, at("10:01"))
    assert [of.schedule_id for of, _ in turned.fired] == [schedule]
    row = await timetables.row(newer)
    assert (row["next_time"], row["error_code"], turned.left, turned.next_s) == (at("10:01"), "", False, 60)


async def test_a_fire_beside_a_publish_is_of_one_version(
    timetables: Timetables, ticker: Ticker, books: Books, other_books: Books
) -> None:
    """D3: while a publish holds the row nobody fires it; whatever comes first, a run has the version that its input says."""

    def manifest(n: int) -> Any:
        return replace(
            firing("* * * * *", input_=template({"version": n}), overlap_policy="allow_all"), family_slug="published"
        )

    schedule = await timetables.follow(await books.release(manifest(1)), manifest(1))
    follow = "update eec_workflow_schedule set version_id = $2, version = $3 where schedule_id = $1"
    async with other_books.owner.transaction():
        await other_books.owner.execute(follow, schedule, await other_books.release(manifest(2)), 2)
        turned = await timetables.at(ticker.connection, at("10:01"))
        assert (turned.fired, turned.left) == ([], False)
    await timetables.at(ticker.connection, at("10:01"))

    async def publish() -> None:
        for n in range(3, 30):
            async with other_books.owner.transaction():
                await other_books.owner.execute(follow, schedule, await other_books.release(manifest(n)), n)

    async def fire() -> None:
        for minute in range(2, 60):
            await timetables.at(ticker.connection, at(f"10:{minute:02}"))

    await asyncio.gather(publish(), fire())
    await timetables.at(ticker.connection, at("11:00"))
    runs = await timetables.runs(schedule)
    assert len(runs) == 60
    assert all(run["input"] == f'{{"version":{run["version"]}}}' for run in runs)
    assert [runs[0]["version"], runs[-1]["version"]] == [2, 29]
    version_of = "select version from eec_workflow_version where version_id = $1"
    for run in runs:
        assert await books.owner.fetchval(version_of, run["version_id"]) == run["version"]


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
