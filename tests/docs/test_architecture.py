"""docs/architecture.md: its queries run, as the roles it names, and show what it says they show."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from ductord.model.enums import SignalVerb
from ductord.model.specs import RetryPolicy
from ductord.model.starting import ScheduleSpec, TriggerSpec
from tests.conftest import Database
from tests.coordinator.conftest import Ticker, books, ticker
from tests.coordinator.waiters import say, waiting
from tests.db.test_roles import DELETE, INSERT
from tests.support.books import TENANT, Books, chain
from tests.support.edges import Catalogue

__all__ = ["books", "ticker"]

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "architecture.md").read_text("utf-8")
QUERIES = re.findall(r"^```sql\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture(params=["reads", "superuser"])
async def psql(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[asyncpg.Connection]:
    """The person at three in the morning."""
    connection = await asyncpg.connect(database.dsn("reads") if request.param == "reads" else database.owner)
    yield connection
    await connection.close()


async def test_the_queries_tell_of_a_run(psql: asyncpg.Connection, books: Books, ticker: Ticker) -> None:
    """A run whose first step failed once and waits for a worker again."""
    run_id = await books.start(await books.publish(chain(2, retry=RetryPolicy(max_attempts=2))))
    await ticker.drain()
    await books.report(run_id, outcome="failed", code="UNAVAILABLE")
    await ticker.drain()
    naming, run, steps, waits, fans, tree, attempts, events, queues, _ = QUERIES
    if await psql.fetchval("select current_user") == "ductor_reads":
        assert await _rows(psql, run, run_id) == [], "without a tenant there are no rows"
    await psql.execute(naming.replace("acme", TENANT))
    [row] = await _rows(psql, run, run_id)
    assert (row["status"], row["record_version"], row["current_step"]) == ("running", 2, "s0")
    [row] = await _rows(psql, steps, run_id)
    assert (row["step"], row["status"], row["attempt"], row["error"]) == ("s0", "running", "2", "UNAVAILABLE")
    [row] = await _rows(psql, waits, run_id)
    assert (row["waits_for"], row["step"]) == ("a worker of queue default", "s0 #2")
    assert await _rows(psql, fans, run_id) == []
    assert [(row["depth"], row["status"]) for row in await _rows(psql, tree, run_id)] == [(0, "running")]
    assert [(row["attempt"], row["status"], row["error_code"]) for row in await _rows(psql, attempts, run_id)] == [
        (1, "failed", "UNAVAILABLE"), (2, "open", None),
    ]  # fmt: skip
    assert [(row["seq"], row["event"], row["what"]) for row in await _rows(psql, events, run_id)] == [
        (1, "run_started", None), (1, "attempt_created", None), (2, "attempt_ended", "failed"), (2, "attempt_created", None),
    ]  # fmt: skip
    [row] = await psql.fetch(queues)
    assert (row["tenant_id"], row["queue"], row["ready"]) == (TENANT, "default", 1)


async def test_the_queries_tell_of_schedules(psql: asyncpg.Connection, books: Books) -> None:
    """One that fires and has skipped a time, one that is paused."""
    daily = ScheduleSpec(cron_expression="0 3 * * *")
    for slug in ("fires", "rests"):
        manifest = replace(chain(1), triggers=(TriggerSpec(id="schedule", schedule=daily),))
        await Catalogue(books.owner).published(manifest, slug=slug)
    await books.owner.execute(
        "update eec_workflow_schedule set next_time = null, pause_time = now() where family_slug = 'rests'"
    )
    await books.owner.execute(
        "insert into eec_workflow_schedule_fire (tenant_id, schedule_id, nominal_time, kind, outcome, source)"
        " select tenant_id, schedule_id, now(), 'fire', 'skipped', 'timetable' from eec_workflow_schedule where family_slug = 'fires'"
    )
    await psql.execute(QUERIES[0].replace("acme", TENANT))
    rows = await psql.fetch(QUERIES[-1])
    assert [(row["family_slug"], row["next_time"] is None, row["outcome"]) for row in rows] == [
        ("rests", True, None),
        ("fires", False, "skipped"),
    ]


async def test_the_queries_tell_of_a_run_that_waits_for_somebody_outside(
    psql: asyncpg.Connection, books: Books, ticker: Ticker
) -> None:
    """What it listens to, whom it waits for, and word that is kept for a step to come."""
    manifest = waiting(
        'step w type=wait wait={"event": {"event_name": "paid", "correlation_key": "\\"o1\\""}}',
        "step ap type=approval",
        "step later type=approval",
        "w -success-> later",
    )
    run_id = await books.start(await books.publish(manifest))
    await ticker.drain()
    await say(books, run_id, SignalVerb.APPROVE, "later", request_id="early")
    await ticker.drain()
    await psql.execute(QUERIES[0].replace("acme", TENANT))
    assert sorted((row["waits_for"], row["step"]) for row in await _rows(psql, QUERIES[3], run_id)) == [
        ("event paid o1", "w"),
        ("its step, a signal: approve", "later"),
        ("somebody: approval", "ap"),
    ]


def test_the_table_of_writers_is_the_matrix() -> None:
    """What a service inserts and deletes, by the document, is what tests/db/test_roles.py lets it."""
    section = TEXT[TEXT.index("## Who writes what") :]
    rows = re.findall(r"^\| (\w+) \| (.*?) \| .*? \| (.*?) \|$", section, re.MULTILINE)
    told = {service: (inserts, deletes) for service, inserts, deletes in rows if service != "service"}
    assert set(told) == {"definition", "trigger", "run_control", "signals", "coordinator", "dispatch", "reads", "admin"}
    for service, (inserts, deletes) in told.items():
        assert set(re.findall(r"`(\w+)`", inserts)) == INSERT[service], service
        assert set(re.findall(r"`(\w+)`", deletes)) == DELETE[service], service


async def _rows(psql: asyncpg.Connection, query: str, run_id: str) -> list[Any]:
    rows: list[Any] = await psql.fetch(query.replace(":'run'", "$1"), run_id)
    return rows
