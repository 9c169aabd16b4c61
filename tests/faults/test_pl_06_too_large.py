"""PL-06: an output that is too large fails its attempt once and for all, whoever notices; worker and dispatcher go on."""

import asyncpg
import grpc
import pytest

from tests.chaos.books import assert_whole
from tests.faults.workers import Hand, single, success, working
from tests.support.api import Api
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300), pytest.mark.usefixtures("untouched")]

MB = 1 << 20


async def _attempts(owner: asyncpg.Connection, tenant: str) -> list[tuple[object, ...]]:
    rows = await owner.fetch(
        "select attempt, status, error_code, non_retryable, output from eec_workflow_step_attempt where tenant_id = $1 order by attempt",
        tenant,
    )
    return [tuple(row) for row in rows]


TOO_LARGE = [(1, "failed", "payload_too_large", True, None)]


@pytest.mark.parametrize("limit", [1, 64], ids=["the worker notices", "the worker's own limit is higher"])
async def test_pl_06_an_action_returns_20_mb(stack: Stack, api: Api, owner: asyncpg.Connection, limit: int) -> None:
    """PL-06: the attempt fails `payload_too_large` with the size, is not tried again, and the same worker does the next task."""
    tenant = dict(api.metadata)["x-tenant-id"]
    tree = single("bulky", "test:bulk", "pl06", args={"bytes": 20 * MB}, retry_max_attempts=3, retry_backoff_ms=1)
    definition_id, other_id = await api.publish(tree), await api.publish(single("small", "noop:noop", "pl06"))
    async with working(stack, "pl06", "bulk", dispatch="dispatch0", DUCTOR_PAYLOAD_MAX_BYTES=str(limit * MB)) as [
        worker
    ]:
        await api.start_many(definition_id, 1)
        await api.until_ended()
        assert await _attempts(owner, tenant) == TOO_LARGE
        message = await owner.fetchval(
            "select error_message from eec_workflow_step_attempt where tenant_id = $1", tenant
        )
        assert "20,971,5" in message or "1,048,576" in message
        assert worker.alive
        await api.start_many(other_id, 1)
        await api.until_ended()
    assert await assert_whole(owner, tenant=tenant) == {"failed": 1, "completed": 1}


async def test_pl_06_a_workers_report_is_too_large(stack: Stack, api: Api, owner: asyncpg.Connection) -> None:
    """PL-06: any worker may send anything. 20 MB are no call at all, and the task is still its; 2 MB fail the attempt; dispatch serves on."""
    tenant = dict(api.metadata)["x-tenant-id"]
    await api.start_many(
        await api.publish(single("hand", "hand:bulk", "pl06h", retry_max_attempts=3, retry_backoff_ms=1)), 1
    )
    async with Hand(stack["dispatch0"], "pl06h", "hand:bulk") as worker:
        task = await worker.poll()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await worker.report(success(task.task_token, '"%s"' % ("x" * 20 * MB)))
        assert refused.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.INVALID_ARGUMENT)
        assert await worker.report(success(task.task_token, '"%s"' % ("x" * 2 * MB))) == ["PAYLOAD_INVALID"]
    await api.until_ended()
    assert await _attempts(owner, tenant) == TOO_LARGE
    assert await assert_whole(owner, tenant=tenant) == {"failed": 1}
