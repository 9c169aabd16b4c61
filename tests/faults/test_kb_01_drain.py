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

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]

HOURS = 24 * 3_600_000
LEASE_S = 60
_LEASE_OVER = (
    "update eec_workflow_step_attempt set lease_expire_time = eec_now(), check_time = eec_now()"
    " where run_id = $1 and status = 'open' and report_time is null and lease_secret is not null"
)


async def _taken(worker: Member, count: int) -> bool:
    """Whether a worker has been given so many tasks and knows of it: the lease is in the database before its answer is with the worker."""
    _, text = await probed(worker, "/metrics")
    lines = [line for line in text.splitlines() if line.startswith(("ductor_worker_busy ", "ductor_actions_total{"))]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines) == count


async def _stopped(member: Member, signals: int = 1) -> tuple[int, float]:
    """(exit code, seconds until the end) of a process that is sent SIGTERM so often."""
    clock = asyncio.get_running_loop().time
    begin = clock()
    for _ in range(signals):
        member.signal(signal.SIGTERM)
        if signals > 1:
            await until(lambda: _unready(member))
    code = await asyncio.to_thread(member.wait, 90)  # another SIGTERM would cut the drain short
    return code, clock() - begin


async def _unready(member: Member) -> bool:
    return not member.alive or (await probed(member, "/readyz"))[0] == 503


async def test_kb_01_a_worker_finishes_five_and_gives_back_five(
    stack: Stack, api: Api, owner: asyncpg.Connection
) -> None:
    """KB-01: ten attempts at work, five of which end within the drain. The other five are released (`lost`, no retry spent), and a successor has them at
    once; what is queued meanwhile goes to the successor. The draining worker is alive and not ready.
    """
    tenant = dict(api.metadata)["x-tenant-id"]
    soon = await api.publish(single("soon", "test:hold", "kb01", args={"ms": 1000}, retry_max_attempts=1))
    late = await api.publish(single("late", "test:hold", "kb01", args={"ms": HOURS}, retry_max_attempts=1))
    async with working(stack, "kb01", "old", dispatch="dispatch0", DUCTOR_DRAIN_MS="6000") as [old]:
        await api.start_many(soon, 5)
        late_ids = await api.start_many(late, 5)
        await until(lambda: _taken(old, 10))
        async with working(stack, "kb01", "new", dispatch="dispatch0", FAULTS_HOLD_MS="100"):
            stopping = asyncio.create_task(_stopped(old))
            await until(lambda: _unready(old))
            assert (await probed(old, "/livez"))[0] == 200
            [queued] = await api.start_many(late, 1)
            code, seconds = await stopping
            assert code == 0
            assert seconds < 6 + 30, "it does not wait for what takes hours"
            await api.until_ended()
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
        assert (taken_over[run_id]["start_time"] - row["report_time"]).total_seconds() < LEASE_S / 2, (
            "no lease had to end"
        )
        assert taken_over[run_id]["worker_id"] != row["worker_id"]
        assert taken_over[run_id]["idempotency_key"] == row["idempotency_key"]
    [new] = {row["worker_id"] for row in taken_over.values()}
    assert [row["worker_id"] for row in rows if row["run"] == queued] == [new], "a draining worker takes nothing"


async def test_kb_01_a_second_sigterm_does_not_hang(stack: Stack, api: Api, owner: asyncpg.Connection) -> None:
    """KB-01: with ten minutes to drain and an action that would take them all, the second signal ends the worker at once, and the attempt is given back. A
    worker in a hurry waits half a second for the answer to that: a box that is too slow for it is asked again."""
    definition_id = await api.publish(single("stubborn", "test:hold", "kb01b", args={"ms": HOURS}))
    outcomes: list[str] = []
    while "released" not in outcomes:
        assert len(outcomes) < 3, outcomes
        async with working(stack, "kb01b", "old", dispatch="dispatch0", DUCTOR_DRAIN_MS="600000") as [old]:
            [run_id] = await api.start_many(definition_id, 1)
            await until(lambda: _taken(old, 1))
            code, seconds = await _stopped(old, signals=2)
            assert code == 0
            assert seconds < 60, "it does not drain for ten minutes"
        await owner.execute(_LEASE_OVER, run_id)
        async with working(stack, "kb01b", "new", dispatch="dispatch0", FAULTS_HOLD_MS="100"):
            await api.until_ended()
        rows = await owner.fetch(
            "select outcome from eec_workflow_step_attempt where run_id = $1 order by attempt", run_id
        )
        assert [row["outcome"] for row in rows] in (["released", "succeeded"], ["lost", "succeeded"])
        outcomes.append(rows[0]["outcome"])


async def test_kb_01_coordinator_and_dispatch_under_load(stack: Stack, api: Api, recorder: Recorder) -> None:
    """KB-01: a coordinator and a dispatcher are stopped and followed by another one while runs go: each ends soon with code 0, each effect is there once."""
    definition_id = await api.publish(effects("rolling", recorder))
    started = asyncio.create_task(trickle(api, definition_id, 100, 3))
    await until(lambda: api.active())
    for name in ("coordinator0", "edges", "dispatch0", "coordinator1"):
        code, seconds = await _stopped(stack[name])
        stack[name].start()
        assert code == 0, stack[name].tail()
        assert seconds < 3 + 30, "it does not hang"
    run_ids = await started
    await api.until_ended()
    await asyncio.to_thread(stack.wait_ready)
    await assert_each_effect_once(stack.postgres.dsn(), api, run_ids, recorder)
