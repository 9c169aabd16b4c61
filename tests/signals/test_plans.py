"""What publishing costs: look-ups in indexes, however many wait for something else (E3; acceptance: an index look-up, not a scan)."""

import json
from typing import Any

import asyncpg
import pytest

from ductord.db.pool import PROBES
from ductord.db.queries import Queries
from tests.conftest import Database
from tests.signals.standing import Desk
from tests.support.books import TENANT

pytestmark = pytest.mark.pages

WAITERS = 10_000
TRIGGERS = "eec_workflow_event_trigger"
_PREPARE = f"prepare look (text, text, text, text, text[], text) as {Queries('ductord.signals')['look_event']}"


async def test_an_event_among_ten_thousand_waiters(database: Database, desk: Desk) -> None:
    """As the service's own login, with the plan that its connections keep from when the table was empty: of 10,000 waiters for the event's name, and as many
    for another name and in another tenant, only those are read that match."""
    connection = await asyncpg.connect(database.dsn("signals"), server_settings=dict(PROBES))
    try:
        async with connection.transaction():
            await connection.execute("select set_config('ductor.tenant_id', $1, true)", TENANT)
            await connection.execute(_PREPARE)
            assert _rows(await _plan(connection, "nobody")) == 0
        await _crowd(desk.owner)
        async with connection.transaction():
            await connection.execute("select set_config('ductor.tenant_id', $1, true)", TENANT)
            for key, expected in (("nobody", 1), ("k77", 2)):
                plan = await _plan(connection, key)
                assert _rows(plan) == expected, json.dumps(plan, indent=1)
                scans = {node["Node Type"] for node in _nodes(plan) if "Relation Name" in node}
                assert scans <= {"Index Scan", "Index Only Scan"}, json.dumps(plan, indent=1)
    finally:
        await connection.close()


async def test_an_event_among_ten_thousand_triggers(database: Database, desk: Desk) -> None:
    """T3: with the plan of an empty table again, only the triggers that the name matches are read, each override by its key; an event that matches none costs
    one descent of one index."""
    connection = await asyncpg.connect(database.dsn("signals"), server_settings=dict(PROBES))
    try:
        async with connection.transaction():
            await connection.execute("select set_config('ductor.tenant_id', $1, true)", TENANT)
            await connection.execute(_PREPARE)
            assert _rows(await _plan(connection, "nobody"), TRIGGERS) == 0
        await desk.owner.execute(
            "insert into eec_workflow_event_trigger (tenant_id, pattern, definition_id, trigger_id, family_slug, version_id, version)"
            " select tenant, 'thing' || n, gen_random_uuid(), 'on', 'd', gen_random_uuid(), 1"
            " from generate_series(1, $1::int) n, (values ($2), ('other')) as crowd(tenant)",
            WAITERS,
            TENANT,
        )
        await desk.owner.execute(
            "insert into eec_workflow_env_override (tenant_id, definition_id, environment, variables)"
            " select tenant_id, definition_id, e, '{}' from eec_workflow_event_trigger, (values (''), ('prod')) as environments(e)"
        )
        async with connection.transaction():
            await connection.execute("select set_config('ductor.tenant_id', $1, true)", TENANT)
            for patterns, expected in (("{nothing}", 0), ("{thing77}", 1), ("{thing77,thing.*,thing78}", 2)):
                plan = await _plan(connection, "nobody", patterns)
                assert _rows(plan, TRIGGERS) == _rows(plan, "eec_workflow_env_override") == expected, plan
                scans = {node["Node Type"] for node in _nodes(plan) if "Relation Name" in node}
                assert scans <= {"Index Scan", "Index Only Scan"}, json.dumps(plan, indent=1)
                [looked] = [node for node in _nodes(plan) if node.get("Relation Name") == TRIGGERS]
                assert looked["Actual Loops"] == 1
    finally:
        await connection.close()


async def _crowd(owner: asyncpg.Connection) -> None:
    """Waiters: each key once, and one for any key."""
    await owner.execute(
        "insert into eec_workflow_wait (tenant_id, run_id, step_ref, attempt, event_name, correlation_key, any_key, open_time)"
        " select tenant, gen_random_uuid(), 'ev', 1, name, 'k' || n, false, now()"
        " from generate_series(1, $1::int) n, (values ($2, 'paid'), ($2, 'shipped'), ('other', 'paid')) as crowd(tenant, name)",
        WAITERS,
        TENANT,
    )
    await owner.execute(
        "insert into eec_workflow_wait (tenant_id, run_id, step_ref, attempt, event_name, any_key, open_time)"
        " values ($1, gen_random_uuid(), 'ev', 1, 'paid', true, now())",
        TENANT,
    )


async def _plan(connection: asyncpg.Connection, key: str, patterns: str = "{paid}") -> dict[str, Any]:
    text = await connection.fetchval(
        f"explain (analyze, format json) execute look ('{TENANT}', 'paid', '{key}', 'e', '{patterns}', '')"
    )
    plan: dict[str, Any] = json.loads(text)[0]["Plan"]
    return plan


def _nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", ()) for node in _nodes(child))]


def _rows(plan: dict[str, Any], table: str = "eec_workflow_wait") -> int:
    """Rows of a table that were read at all: returned, and filtered away after reading."""
    return sum(
        node["Actual Rows"] * node["Actual Loops"] + node.get("Rows Removed by Filter", 0)
        for node in _nodes(plan)
        if node.get("Relation Name") == table
    )
