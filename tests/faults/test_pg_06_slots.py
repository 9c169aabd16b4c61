"""PG-06: what a dead worker held comes free by itself, and what is not due yet stands in nobody's way."""

import asyncpg
import pytest

from tests.chaos.books import assert_whole
from tests.faults.load import probed, until
from tests.faults.workers import single, working
from tests.support.api import Api
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]


async def test_pg_06_leaked_slots_heal(stack: Stack, api: Api, owner: asyncpg.Connection) -> None:
    """PG-06: a worker is killed with all its slots taken and more tasks behind them. Its successor has all of them; the gauges count live leases only."""
    tenant = dict(api.metadata)["x-tenant-id"]
    definition_id = await api.publish(single("slots", "test:hold", "pg06", args={"ms": 60_000}))
    async with (
        working(stack, "pg06", "leaking", DUCTOR_WORKER_SLOTS="5") as [leaking],
        working(stack, "pg06", "healing", wait=False, FAULTS_HOLD_MS="50", DUCTOR_WORKER_SLOTS="5") as [healing],
    ):
        healing.kill()
        await api.start_many(definition_id, 8)
        await until(lambda: _leased(owner, tenant, 5))
        await until(lambda: _gauge(stack, "leased", 5))
        leaking.kill()
        healing.start()
        await api.until_ended()
    await until(lambda: _gauge(stack, "leased", 0))
    assert await assert_whole(owner, tenant=tenant) == {"completed": 8}
    counts = await owner.fetch(
        "select attempt, status, count(*)::int from eec_workflow_step_attempt where tenant_id = $1 group by 1, 2 order by 1, 2",
        tenant,
    )
    assert [tuple(row) for row in counts] == [(1, "lost", 5), (1, "succeeded", 3), (2, "succeeded", 5)]


async def _leased(owner: asyncpg.Connection, tenant: str, count: int) -> bool:
    leased = await owner.fetchval(
        "select count(*) from eec_workflow_step_attempt where tenant_id = $1 and lease_secret is not null and report_time is null",
        tenant,
    )
    return bool(leased == count)


async def _gauge(stack: Stack, state: str, count: int) -> bool:
    """Whether dispatch's gauge of the queue says so; what has no tasks has no series."""
    _, text = await probed(stack["dispatch1"], "/metrics")
    lines = [line for line in text.splitlines() if line.startswith("ductor_queue_tasks{") and 'queue="pg06"' in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if f'state="{state}"' in line) == count


async def test_pg_06_a_retry_in_an_hour_blocks_nothing(stack: Stack, api: Api, owner: asyncpg.Connection) -> None:
    """PG-06: 20 tasks wait for a retry in an hour, ahead of one that is ready, in the same queue of the same tenant. The one is done at once."""
    tenant = dict(api.metadata)["x-tenant-id"]
    waiting = single(
        "waiting", "core:fail", "default", args={"times": 1}, retry_max_attempts=2, retry_backoff_ms=3_600_000
    )
    ready = single("ready", "noop:noop", "default")
    waiting_id, ready_id = await api.publish(waiting), await api.publish(ready)
    await api.start_many(waiting_id, 20)
    await until(lambda: _delayed(owner, tenant, 20))
    [run_id] = await api.start_many(ready_id, 1)
    await until(lambda: _completed(owner, run_id))
    assert await _delayed(owner, tenant, 20)
    # An hour later.
    await owner.execute(
        "update eec_workflow_step_attempt set due_time = eec_now() where tenant_id = $1 and status = 'open'", tenant
    )
    await api.until_ended()
    assert await assert_whole(owner, tenant=tenant) == {"completed": 21}


async def _delayed(owner: asyncpg.Connection, tenant: str, count: int) -> bool:
    delayed = await owner.fetchval(
        "select count(*) from eec_workflow_step_attempt where tenant_id = $1 and status = 'open' and due_time > eec_now() + interval '50 minutes'",
        tenant,
    )
    return bool(delayed == count)


async def _completed(owner: asyncpg.Connection, run_id: str) -> bool:
    return bool(await owner.fetchval("select status = 'completed' from eec_workflow_run where run_id = $1", run_id))
