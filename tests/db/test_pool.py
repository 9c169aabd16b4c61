"""The pool: plans do not outlive the size of the tables that they were made for; transactions whose first and last statements travel with BEGIN and COMMIT."""

import asyncpg
import pytest

from ductord.coordinator.starts import SQL
from ductord.db.ids import new_id
from ductord.db.pool import literal, open_pool, tenant_transaction, transaction
from tests.conftest import Database

_BATCH = 10


@pytest.mark.pages
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


async def test_what_goes_with_the_commit_is_part_of_the_transaction(database: Database) -> None:
    """PG-01: where the last statement fails, nothing of the transaction is left, and the connection serves the next one."""
    owner = await asyncpg.connect(database.owner)
    wake = "insert into eec_workflow_wakeup (tenant_id, run_id) values ({}, gen_random_uuid())"
    try:
        with pytest.raises(asyncpg.DivisionByZeroError):
            async with transaction(owner, wake.format("'first'")) as last:
                last += [wake.format("'last'"), "select 1 / 0"]
        assert not owner.is_in_transaction()
        with pytest.raises(ZeroDivisionError):
            async with transaction(owner, wake.format("'first'")) as last:
                last.append(wake.format(literal(str(1 // 0))))
        assert not owner.is_in_transaction()
        assert await owner.fetchval("select count(*) from eec_workflow_wakeup") == 0
        async with transaction(owner, wake.format("'first'")) as last:
            last.append(wake.format("'last'"))
        rows = await owner.fetch("select tenant_id from eec_workflow_wakeup order by tenant_id")
        assert [row["tenant_id"] for row in rows] == ["first", "last"]
    finally:
        await owner.close()


@pytest.mark.parametrize("tenant_id", ["a", "a'b", "a''; rollback; --", "a\\'"])
async def test_a_tenant_is_a_constant_whatever_it_is_called(database: Database, tenant_id: str) -> None:
    """N1: what row-level security goes by is the id itself, and it ends with the transaction."""
    pool = await open_pool(database.dsn("trigger"), "trigger", max_size=1)
    current = "select current_setting('ductor.tenant_id', true)"
    try:
        for one_moment in (False, True):
            async with tenant_transaction(pool, tenant_id, one_moment=one_moment) as db:
                assert await db.fetchval(current) == tenant_id
                assert await db.fetchval("show transaction_read_only") == ("on" if one_moment else "off")
            assert not await pool.fetchval(current)
    finally:
        await pool.close()
