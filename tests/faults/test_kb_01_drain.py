"""KB-01: SIGTERM to a worker at work, to a coordinator and a dispatcher under load: they end in time with code 0, nothing is lost and no retry is spent."""

import asyncio
import signal
from collections import Counter

import asyncpg
import pytest

from tests.chaos.books import assert_whole
from tests.faults.load import assert_each_effect_once, effects, probed, trickle, until
from tests.faults.workers import single, working
from tests.support.api import Api
from tests.support.recorder import Recorder
from tests.support.stack import Member, Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(120)]


async def _held(owner: asyncpg.Connection, tenant: str, count: int) -> bool:
    held = await owner.fetchval(
        "select count(*) from eec_workflow_step_attempt where tenant_id = $1 and lease_secret is not null and report_time is null",
        tenant,
    )
    return bool(held == count)


async def _stopped(member: Member, signals: int = 1) -> tuple[int, float]:
    """(exit code, seconds until the end) of a process that is sent SIGTERM so often."""
    clock = asyncio.get_running_loop().time
    begin = clock()
    for _ in range(signals):
        member.signal(signal.SIGTERM)
        if signals > 1:
            await until(lambda: _unready(member))
    code = await asyncio.to_thread(member.wait, 30)  # another SIGTERM would cut the drain short
    return code, clock() - begin


async def _unready(member: Member) -> bool:
    return not member.alive or (await probed(member, "/readyz"))[0] != 200


async def test_kb_01_a_worker_finishes_five_and_gives_back_five(
    stack: Stack, api: Api, owner: asyncpg.Connection
) -> None:
    """KB-01: ten attempts at work, five of which end within the drain. The other five are released (`lost`, no retry spent), and a successor has them at
    once; what is queued meanwhile goes to the successor. The draining worker is alive and not ready.
    """
    tenant = dict(api.metadata)["x-tenant-id"]
    soon = await api.publish(single("soon", "test:hold", "kb01", args={"ms": 1000}, retry_max_attempts=1))
    late = await api.publish(single("late", "test:hold", "kb01", args={"ms": 60_000}, retry_max_attempts=1))
    async with working(stack, "kb01", "old") as [old]:
        await api.start_many(soon, 5)
        late_ids = await api.start_many(late, 5)
        await until(lambda: _held(owner, tenant, 10))
        async with working(stack, "kb01", "new", FAULTS_HOLD_MS="100"):
            stopping = asyncio.create_task(_stopped(old))
            await until(lambda: _unready(old))
            assert (await probed(old, "/livez"))[0] == 200
            [queued] = await api.start_many(late, 1)
            code, seconds = await stopping
            assert code == 0
            assert seconds < 3 + 5
            await api.until_ended(10)
    assert await assert_whole(owner, tenant=tenant) == {"completed": 11}
    rows = await owner.fetch(
        "select a.*, a.run_id::text as run from eec_workflow_step_attempt a where tenant_id = $1 order by run_id, attempt",
        tenant,
    )
    assert Counter((row["attempt"], row["status"], row["outcome"]) for row in rows) == {
        (1, "succeeded", "succeeded"): 6,
        (1, "lost", "released"): 5,
        (2, "succeeded", "succeeded"): 5,
    }
    given_back = {row["run"]: row for row in rows if row["outcome"] == "released"}
    taken_over = {row["run"]: row for row in rows if row["attempt"] == 2}
    assert set(given_back) == set(taken_over) == set(late_ids)
    for run_id, row in given_back.items():
        assert (taken_over[run_id]["start_time"] - row["report_time"]).total_seconds() < 5
        assert taken_over[run_id]["worker_id"] != row["worker_id"]
        assert taken_over[run_id]["idempotency_key"] == row["idempotency_key"]
    [new] = {row["worker_id"] for row in taken_over.values()}
    assert [row["worker_id"] for row in rows if row["run"] == queued] == [new], "a draining worker takes nothing"


async def test_kb_01_a_second_sigterm_does_not_hang(stack: Stack, api: Api, owner: asyncpg.Connection) -> None:
    """KB-01: with half a minute to drain and an action that would take it all, the second signal ends the worker at once; the attempt is given back."""
    tenant = dict(api.metadata)["x-tenant-id"]
    definition_id = await api.publish(single("stubborn", "test:hold", "kb01b", args={"ms": 60_000}))
    async with (
        working(stack, "kb01b", "old", DUCTOR_DRAIN_MS="30000") as [old],
        working(stack, "kb01b", "new", wait=False, FAULTS_HOLD_MS="100") as [new],
    ):
        new.kill()
        await api.start_many(definition_id, 1)
        await until(lambda: _held(owner, tenant, 1))
        code, seconds = await _stopped(old, signals=2)
        assert code == 0
        assert seconds < 12
        new.start()
        await api.until_ended(15)
    rows = await owner.fetch(
        "select outcome from eec_workflow_step_attempt where tenant_id = $1 order by attempt", tenant
    )
    assert [row["outcome"] for row in rows] == ["released", "succeeded"]


async def test_kb_01_coordinator_and_dispatch_under_load(stack: Stack, api: Api, recorder: Recorder) -> None:
    """KB-01: a coordinator and a dispatcher are stopped and followed by another one while runs go: each ends quickly with code 0, each effect is there once."""
    definition_id = await api.publish(effects("rolling", recorder))
    started = asyncio.create_task(trickle(api, definition_id, 100, 3))
    await until(lambda: api.active())
    for name in ("coordinator0", "edges", "dispatch0", "coordinator1"):
        code, seconds = await _stopped(stack[name])
        stack[name].start()
        assert code == 0, stack[name].tail()
        assert seconds < 10
    run_ids = await started
    await api.until_ended(20)
    await asyncio.to_thread(stack.wait_ready)
    await assert_each_effect_once(stack.postgres.dsn(), api, run_ids, recorder)
