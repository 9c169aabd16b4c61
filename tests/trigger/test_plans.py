"""What looking at schedules and event triggers costs: a page, and not the tenant's whole stock (T2, T3)."""

import json
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from ductord.db.pool import PROBES
from ductord.db.queries import Queries
from tests.conftest import Database
from tests.support.books import TENANT

pytestmark = pytest.mark.pages

STOCK = 5_000
_FIRST = "00000000-0000-0000-0000-000000000000"
_SCHEDULES = (
    "insert into eec_workflow_schedule (tenant_id, schedule_id, definition_id, family_slug, trigger_id, version_id, version, cron_expression, timezone,"
    " catchup_window_ms, overlap_policy, next_time)"
    " select tenant, gen_random_uuid(), gen_random_uuid(), 'f' || lpad(n::text, 5, '0'), 'schedule', gen_random_uuid(), 1, '* * * * *', 'UTC', 600000, 'skip',"
    " now()"
    " from generate_series(1, $1::int) n, (values ($2), ('other')) t(tenant)"
)
_FIRES = (
    "insert into eec_workflow_schedule_fire (tenant_id, schedule_id, nominal_time, kind, outcome, source)"
    " select s.tenant_id, s.schedule_id, now() - n * interval '1 minute', 'fire',"
    "        case n when $1 - 100 then 'failed' else 'skipped' end, 'timetable'"
    " from (select * from eec_workflow_schedule where tenant_id = $2 order by family_slug limit 2) s, generate_series(1, $1::int) n"
)
_TRIGGERS = (
    "insert into eec_workflow_event_trigger (tenant_id, pattern, definition_id, trigger_id, family_slug, version_id, version)"
    " select tenant, 'e' || n, gen_random_uuid(), 't', 'f', gen_random_uuid(), 1 from generate_series(1, $1::int) n, (values ($2), ('other')) t(tenant)"
)


@pytest.mark.parametrize(
    ("name", "types", "arguments", "most"),
    [
        ("schedules", "text, text, text, text, uuid, bigint", "'', 'f02000', 'schedule', '{first}', 11", 12),
        ("schedules_of", "text, text, text, text, uuid, bigint, text, uuid", "'', '', '', '{first}', 11, 'f00100', null", 2),
        ("schedules_of", "text, text, text, text, uuid, bigint, text, uuid", "'', '', '', '{first}', 11, '', '{definition}'", 2),
        ("fires", "text, uuid, text, timestamptz, text, bigint", "'{schedule}', '', '9999-12-31', '~', 11", 12),
        ("fires_passed", "text, uuid, text, timestamptz, text, bigint", "'{schedule}', 'failed', '9999-12-31', '~', 11", 1),
        ("fires_passed", "text, uuid, text, timestamptz, text, bigint", "'{schedule}', 'skipped', '9999-12-31', '~', 11", 12),
        ("event_triggers", "text, text, uuid, text, bigint", "'e3', '{first}', '', 11", 12),
        ("event_triggers_matching", "text, text, uuid, text, bigint, text[], uuid", "'', '{first}', '', 11, '{{e77}}', null", 2),
        ("event_triggers_of", "text, text, uuid, text, bigint, uuid", "'', '{first}', '', 11, '{listener}'", 2),
    ],
)  # fmt: skip
async def test_a_look_reads_its_page(
    name: str, types: str, arguments: str, most: int, database: Database, owner: asyncpg.Connection
) -> None:
    """As the service's own login, with the plan that its connections keep from when the tables were empty."""
    sql = Queries("ductord.trigger", "schedules.sql")[name]
    connection = await asyncpg.connect(database.dsn("trigger"), server_settings=dict(PROBES))
    try:
        await connection.execute(f"prepare look ({types}) as {sql}")
        for statement in (_SCHEDULES, _FIRES, _TRIGGERS):
            await owner.execute(statement, STOCK, TENANT)
        known = await owner.fetchrow(
            "select schedule_id::text as schedule, definition_id::text as definition, (select definition_id::text from eec_workflow_event_trigger"
            "  where tenant_id = $1 and pattern = 'e5') as listener from eec_workflow_schedule where tenant_id = $1 and family_slug = 'f00001'",
            TENANT,
        )
        given = arguments.format(first=_FIRST, **dict(known))
        async with connection.transaction():
            await connection.execute("select set_config('ductor.tenant_id', $1, true)", TENANT)
            text = await connection.fetchval(f"explain (analyze, format json) execute look ('{TENANT}', {given})")
        plan = json.loads(text)[0]["Plan"]
        read = max(_read(node) for node in _nodes(plan) if "Relation Name" in node)
        assert 1 <= read <= most, text
    finally:
        await connection.close()


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", ()):
        yield from _nodes(child)


def _read(node: dict[str, Any]) -> int:
    """Rows that a scan looked at."""
    each = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
    return int(each * node["Actual Loops"])
