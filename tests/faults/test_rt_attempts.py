"""RT-02, RT-03, RT-05, RT-06: late results, long actions, dead workers and steps that kill their worker, end to end."""

import asyncio
import os

import asyncpg
import pytest
from google.protobuf import json_format

from ductord.dispatch import token
from ductord.dispatch.token import LeaseKey
from tests.chaos.books import assert_whole
from tests.faults.load import output, until
from tests.faults.workers import SUPERVISED, Hand, single, success, working
from tests.support.api import Api, actions
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]


_TIME_OVER = "update eec_workflow_step_attempt set deadline_time = eec_now(), check_time = eec_now() where run_id = $1 and status = 'open'"


async def _attempts(owner: asyncpg.Connection, run_id: str) -> list[asyncpg.Record]:
    rows: list[asyncpg.Record] = await owner.fetch(
        "select * from eec_workflow_step_attempt where run_id = $1 order by attempt", run_id
    )
    return rows


async def test_rt_02_a_late_result_is_stale(stack: Stack, api: Api, owner: asyncpg.Connection) -> None:
    """RT-02: attempt 1 reports after its time-out, while attempt 2 runs. It stays `timed_out`, its report is kept as stale; attempt 2's is the result."""
    tree = single("late", "hand:late", "rt02", timeout_ms=600_000, retry_max_attempts=2, retry_backoff_ms=1)
    definition_id = await api.publish(tree)
    async with Hand(stack["dispatch0"], "rt02", "hand:late") as worker:
        [run_id] = await api.start_many(definition_id, 1)
        first = await worker.poll()
        await owner.execute(_TIME_OVER, run_id)
        second = await worker.poll()
        assert (first.attempt, second.attempt) == (1, 2)
        assert await worker.report(success(first.task_token, '{"of": 1}')) == ["LEASE_LOST"]
        assert await worker.report(success(second.task_token, '{"of": 2}')) == ["OK"]
        assert await worker.report(success(first.task_token, '{"of": 1}')) == ["LEASE_LOST"]
    await api.until_ended()
    one, two = await _attempts(owner, run_id)
    assert (one["status"], one["output"], one["stale_outcome"], one["stale_output"]) == (
        "timed_out",
        None,
        "succeeded",
        '{"of": 1}',
    )
    assert (two["status"], output(two), two["stale_time"]) == ("succeeded", {"of": 2}, None)
    # Time-outs leave the outcome open: the outside is told the same key (A6).
    assert first.idempotency_key == second.idempotency_key
    assert json_format.MessageToDict((await api.run(run_id)).result) == {"s0": {"of": 2}}
    assert await assert_whole(owner, tenant=dict(api.metadata)["x-tenant-id"]) == {"completed": 1}


async def test_rt_03_a_long_action_that_heartbeats_is_not_rescued(
    stack: Stack, api: Api, owner: asyncpg.Connection
) -> None:
    """RT-03: an action of 8 s under leases of 5 s, which its worker renews: one attempt."""
    definition_id = await api.publish(single("long", "core:sleep", "rt03", args={"ms": 8000}))
    async with working(stack, "rt03", "patient"):
        [run_id] = await api.start_many(definition_id, 1)
        await api.until_ended()
    [attempt] = await _attempts(owner, run_id)
    assert attempt["status"] == "succeeded"
    assert (attempt["report_time"] - attempt["start_time"]).total_seconds() >= 8


async def test_rt_05_a_dead_workers_attempts_are_each_applied_once(
    stack: Stack, api: Api, owner: asyncpg.Connection
) -> None:
    """RT-05: a worker dies with 50 running attempts; while its successor recovers them the dispatcher's backends are terminated, and the dead one's reports
    come late, with its own tokens. All 50 finish, each applied once.
    """
    definition_id = await api.publish(single("fifty", "test:hold", "rt05", args={"ms": 60_000}))
    tenant = dict(api.metadata)["x-tenant-id"]
    async with (
        working(stack, "rt05", "first") as [first],
        working(stack, "rt05", "second", wait=False, FAULTS_HOLD_MS="200") as [second],
    ):
        second.kill()
        await api.start_many(definition_id, 50)
        await until(lambda: _count(owner, tenant, "lease_secret is not null", 50))
        first.kill()
        tokens = [
            token.written(LeaseKey(*row))
            for row in await owner.fetch(
                "select tenant_id, run_id::text, step_ref, item_index, kind, attempt, lease_secret from eec_workflow_step_attempt where tenant_id = $1",
                tenant,
            )
        ]
        second.start()
        await until(lambda: _count(owner, tenant, "attempt = 2", 50))
        ended = asyncio.create_task(api.until_ended())
        answers = []
        async with Hand(stack["dispatch1"], "rt05", "test:hold") as ghost:
            while tokens and not ended.done():
                await owner.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'ductor-dispatch'"
                )
                late, tokens = tokens[:10], tokens[10:]
                answers += await ghost.report(*(success(each, '{"attempt": 1}') for each in late))
            answers += await ghost.report(*(success(each, '{"attempt": 1}') for each in tokens))
        await ended
    assert answers == ["LEASE_LOST"] * 50
    assert await assert_whole(owner, tenant=tenant) == {"completed": 50}
    rows = await owner.fetch(
        "select attempt, status, stale_outcome, output::text, count(distinct run_id)::int as runs, count(distinct worker_id)::int as workers"
        " from eec_workflow_step_attempt where tenant_id = $1 group by 1, 2, 3, 4 order by 1",
        tenant,
    )
    assert [tuple(row) for row in rows] == [
        (1, "lost", "succeeded", None, 50, 1),
        (2, "succeeded", None, '{"attempt":2}', 50, 1),
    ]


async def _count(owner: asyncpg.Connection, tenant: str, where: str, wanted: int) -> bool:
    count = await owner.fetchval(
        f"select count(*) from eec_workflow_step_attempt where tenant_id = $1 and {where}", tenant
    )
    return bool(count == wanted)


def _group(pid: int) -> bool:
    """Whether anything is left of a process group."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_rt_06_a_step_that_kills_its_worker_fails_at_the_sixth_loss(
    stack: Stack, api: Api, owner: asyncpg.Connection
) -> None:
    """RT-06: `os._exit(9)` each time. Losses are not retries, but they are counted: the sixth fails the node `worker_lost`; the supervisor lives on."""
    deadly = single("deadly", "test:exit", "rt06", retry_max_attempts=3)
    harmless = {"family_slug": "harmless", "steps": actions(["s0"], "noop:noop", queue="rt06"), "edges": []}
    definition_id, other_id = await api.publish(deadly), await api.publish(harmless)
    quick = stack.add("quick", ["dispatch"], DUCTOR_LEASE_MS="500", DUCTOR_HEARTBEAT_MS="100")
    try:
        await asyncio.to_thread(quick.wait_ready)
        async with working(stack, "rt06", "supervisor", dispatch="quick", program=SUPERVISED) as [supervisor]:
            [run_id] = await api.start_many(definition_id, 1)
            await api.until_ended()
            assert supervisor.alive
            await api.start_many(other_id, 1)
            await api.until_ended()
        await until(lambda: not _group(supervisor.pid))
    finally:
        stack.members.pop("quick").terminate()
    rows = await _attempts(owner, run_id)
    assert [(row["attempt"], row["status"], row["outcome"]) for row in rows] == [
        (n, "lost", "lost") for n in range(1, 7)
    ]
    assert len({row["worker_id"] for row in rows}) == 6, "a new identity at every start"
    detail = await api.run(run_id)
    assert (detail.error.code, detail.error_step_ref) == ("worker_lost", "s0")
    statuses = await assert_whole(owner, tenant=dict(api.metadata)["x-tenant-id"])
    assert statuses == {"failed": 1, "completed": 1}
