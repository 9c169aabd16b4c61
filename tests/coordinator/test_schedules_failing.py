"""Schedules when things go wrong: a coordinator that dies, a schedule that cannot be dealt with, an input that cannot be (ruling T2). The others go on."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, cast

import asyncpg
import pytest
from msgspec.structs import replace

from ductord.coordinator.schedules import Watch, turn
from ductord.rpc.metrics import Metrics
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.timetables import Timetables, at, drained, fires, firing, template, timetables

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
