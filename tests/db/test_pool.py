"""The pool: plans do not outlive the size of the tables that they were made for."""

import asyncpg

from ductord.coordinator.starts import SQL
from ductord.db.ids import new_id
from ductord.db.pool import open_pool
from tests.conftest import Database

_BATCH = 10


async def test_a_plan_made_for_an_empty_table_is_not_kept(database: Database) -> None:
    """A statement planned on an empty, analysed table probes the index per row once the table has grown, and does not read all of it for each."""
    owner = await asyncpg.connect(database.owner)
    await owner.execute("vacuum analyze eec_workflow_timer")
    forgetful, plain = [
        await open_pool(
            database.dsn("coordinator"),
            "coordinator",
            max_size=1,
            settings={"enable_seqscan": "off"},
            replan_s=replan_s,
        )
        for replan_s in (0.0, None)
    ]
    try:
        runs = [new_id() for _ in range(_BATCH)]
        arguments = (["t"] * _BATCH, runs, [""] * _BATCH, ["run_timeout"] * _BATCH)
        for pool in (forgetful, plain):
            for _ in range(10):
                await pool.execute(SQL["clear_timers"], *arguments)
        await owner.execute(
            "insert into eec_workflow_timer (tenant_id, run_id, kind, due_time)"
            " select 't', gen_random_uuid(), 'run_timeout', eec_now() from generate_series(1, 5000)"
        )
        assert await _read(forgetful, owner, arguments) <= _BATCH
        assert await _read(plain, owner, arguments) >= 5000, "else this test shows nothing"
    finally:
        await forgetful.close()
        await plain.close()
        await owner.close()


async def _read(pool: asyncpg.Pool, owner: asyncpg.Connection, arguments: tuple[list[str], ...]) -> int:
    """Index entries that clearing timers reads."""
    entries = "select sum(idx_tup_read)::int from pg_stat_user_indexes where relname = 'eec_workflow_timer'"
    before: int = await owner.fetchval(entries)
    async with pool.acquire() as connection:
        await connection.execute(SQL["clear_timers"], *arguments)
        await connection.execute("select pg_stat_force_next_flush()")
        await connection.execute("select 1")
    after: int = await owner.fetchval(entries)
    return after - before
