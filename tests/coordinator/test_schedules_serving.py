"""The schedules' loop as a coordinator runs it: it sleeps until a time comes, wakes when it is told, and does not run where nothing runs."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from ductord.coordinator.service import SERVICE
from tests.conftest import Database
from tests.coordinator.timetables import Timetables, firing
from tests.support.books import Books
from tests.support.edges import serving

SLOW: dict[str, Any] = {"poll_ms": 600_000, "sweep_ms": 600_000, "liveness_ms": 3_600_000}
"""Whatever happens within a test is not a poll's doing."""


async def _tick_in(books: Books, seconds: float) -> datetime:
    """Put the clock so that a minute is over in so many seconds; that moment."""
    now: datetime = await books.owner.fetchval("select statement_timestamp()")
    offset = 60 - seconds - now.second - now.microsecond / 1e6
    await books.owner.execute(
        "create or replace function eec_now() returns timestamptz language sql stable parallel safe as"
        f" $$ select statement_timestamp() + {offset} * interval '1 second' $$"
    )
    return now.replace(second=0, microsecond=0) + timedelta(minutes=1)


async def _fired(books: Books, *, hint: bool) -> float:
    """Wait for the first fire; how late it was, in seconds."""
    told = "select pg_notify('ductor_schedule', '')"
    late = "select extract(epoch from create_time - nominal_time)::float8 from eec_workflow_schedule_fire"
    async with asyncio.timeout(60):
        while (seconds := await books.owner.fetchval(late)) is None:
            if hint:
                await books.owner.execute(told)
            await asyncio.sleep(0.02)
    return float(seconds)


async def test_it_sleeps_until_the_next_time(database: Database, books: Books) -> None:
    """T2: nobody tells it, no poll is due, and the time is fired when it comes, not before."""
    manifest = firing("* * * * *")
    due = await _tick_in(books, 3)
    await Timetables(books).follow(await books.publish(manifest), manifest, next_time=due)
    async with serving(database, [SERVICE], **SLOW):
        assert 0 <= await _fired(books, hint=False) < 20


async def test_a_hint_wakes_it(database: Database, books: Books) -> None:
    """T2, PG-03: a publish or a resume tells `ductor_schedule`; the loop looks at once."""
    due = await _tick_in(books, 0)
    async with serving(database, [SERVICE], **SLOW):
        manifest = firing("* * * * *")
        await Timetables(books).follow(await books.publish(manifest), manifest, next_time=due)
        assert 0 <= await _fired(books, hint=True) < 50


@pytest.mark.parametrize("enabled", [True, False])
async def test_the_net_fires_too_and_nothing_does_where_nothing_runs(
    database: Database, books: Books, enabled: bool
) -> None:
    """T2, PG-02: without any hint the polls come to what is due; with DUCTOR_WORKFLOW_RUNTIME_ENABLED off nothing is fired."""
    manifest = firing("* * * * *")
    schedule = await Timetables(books).follow(
        await books.publish(manifest), manifest, next_time=await _tick_in(books, 0)
    )
    settings = {"poll_ms": 50, "sweep_ms": 100, "notify": False, "workflow_runtime_enabled": enabled}
    async with serving(database, [SERVICE], **settings):
        if enabled:
            await _fired(books, hint=False)
    assert await Timetables(books).fired(schedule) == [] or enabled
