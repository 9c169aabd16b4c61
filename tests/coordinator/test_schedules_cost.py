"""What a look at schedules costs does not grow with what they have fired (PG-05): the plans are those that were made while the tables were empty."""

from typing import Any

import asyncpg
import orjson
import pytest

from ductord.coordinator.schedules import SCHEDULES
from ductord.coordinator.schedules import SQL as LOOP
from ductord.coordinator.service import PLANS
from ductord.db.queries import Queries
from ductord.model.manifest import ENGINE_LEVEL, FORMAT_VERSION
from tests.conftest import Database
from tests.coordinator.timetables import Timetables, firing
from tests.support.books import TENANT, Books

pytestmark = pytest.mark.pages

FIRES = Queries("ductord.starting", "fires.sql")
_HISTORY = (
    "insert into eec_workflow_schedule_fire (tenant_id, schedule_id, nominal_time, kind, outcome, source, run_id, end_time)"
    " select tenant_id, schedule_id, eec_now() - n * interval '1 minute', 'fire', 'started', 'timetable', gen_random_uuid(), eec_now()"
    " from eec_workflow_schedule, generate_series(2, 20001) n"
)
_OTHERS = (
    "insert into eec_workflow_schedule (tenant_id, schedule_id, definition_id, family_slug, trigger_id, version_id, version, cron_expression, timezone,"
    " catchup_window_ms, overlap_policy, next_time) select tenant_id, gen_random_uuid(), definition_id, family_slug, trigger_id, version_id, version,"
    " cron_expression, timezone, catchup_window_ms, overlap_policy, eec_now() + n * interval '1 minute' from eec_workflow_schedule, generate_series(1, 5000) n"
)


async def test_a_look_reads_what_it_takes(database: Database, books: Books) -> None:
    """20,000 fires of the schedule itself, 5,000 schedules beside it: every statement of a turn reads some blocks, and no table."""
    coordinator = await asyncpg.connect(database.dsn("coordinator"), server_settings={"jit": "off", **PLANS})
    try:
        await coordinator.execute("set plan_cache_mode = force_generic_plan")
        spoken = {
            "look": LOOP,
            "claim": LOOP,
            "next_due": LOOP,
            "started_within": LOOP,
            "active": FIRES,
            "fired": FIRES,
        }
        for name, of in spoken.items():
            await coordinator.execute(f"prepare look_{name} as {of[name]}")
            await coordinator.execute(f"explain execute look_{name}({', '.join(['null'] * _arguments(of[name]))})")
        manifest = firing("* * * * *")
        now = await books.owner.fetchval("select eec_now()")
        schedule = await Timetables(books).follow(await books.publish(manifest), manifest, next_time=now)
        await books.owner.execute(_HISTORY)
        await books.owner.execute(_OTHERS)
        await books.owner.execute("analyze")
        time, ids = f"'{now.isoformat()}'::timestamptz", f"array['{schedule}']::uuid[]"
        said = {
            "look": f"{time} - interval '10 seconds'",
            "claim": f"{SCHEDULES}, null, {FORMAT_VERSION}, {ENGINE_LEVEL}, {time}",
            "next_due": time,
            "started_within": f"array['{TENANT}'], {ids}, array[{time} - interval '5 minutes'], array[{time}]",
            "active": f"'{TENANT}', {ids}, 100",
            "fired": f"'{TENANT}', {ids}, array[{time} - interval '9 minutes']",
        }
        read = {name: await _blocks(coordinator, f"look_{name}({said[name]})") for name in spoken}
        assert all(0 < blocks < 40 for blocks in read.values()), read
    finally:
        await coordinator.close()


def _arguments(sql: str) -> int:
    return max(number for number in range(10) if f"${number}" in sql)


async def _blocks(connection: asyncpg.Connection, call: str) -> int:
    plan: Any = orjson.loads(
        await connection.fetchval(f"explain (analyze, buffers, format json, timing off) execute {call}")
    )
    root = plan[0]["Plan"]
    return int(root["Shared Hit Blocks"] + root["Shared Read Blocks"])
