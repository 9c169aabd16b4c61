"""The fair queue: weights among tiers, tenants in turn, and nobody held up by what is not theirs (PG-06)."""

import asyncio
from collections import Counter

import pytest

from ductord.db.pool import PROBES, open_pool
from ductord.dispatch.fairness import TIERS, Filter, Rotation, Rotations
from ductord.dispatch.leases import Leases, Poll
from tests.conftest import Database
from tests.dispatch.client import Client
from tests.support.queue import Queue


def _serve(rotation: Rotation, tiers: dict[str, int]) -> str:
    """Serve one task of the tier that is next, as the claim statement orders them."""
    weights = {"critical": 8, "standard": 3, "bulk": 1}
    backlogged = [tier for tier, count in tiers.items() if count]
    chosen = min(backlogged, key=lambda t: (rotation.passes[TIERS.index(t)] + 1 / weights[t], -weights[t]))
    tiers[chosen] -= 1
    served = [int(tier == chosen) for tier in TIERS]
    rotation.advance(served=served, backlogged=backlogged, last_served=["a"] * 3, horizons=[None] * 3)
    return chosen


def test_single_polls_keep_the_weights() -> None:
    """8:3:1 also when every claim takes one task: what a claim cannot hold, the rotation carries."""
    rotation = Rotation()
    tiers = {"critical": 10_000, "standard": 10_000, "bulk": 10_000}
    assert Counter(_serve(rotation, tiers) for _ in range(120)) == {"critical": 80, "standard": 30, "bulk": 10}


def test_an_idle_tier_saves_nothing_up() -> None:
    """A tier that had no work joins at the present time: it gets its share, not what it might have had."""
    rotation = Rotation()
    for _ in range(5_000):
        _serve(rotation, {"critical": 1, "standard": 0, "bulk": 0})
    tiers = {"critical": 10_000, "standard": 0, "bulk": 10_000}
    served = Counter(_serve(rotation, tiers) for _ in range(90))
    assert served["bulk"] in (9, 10, 11)


def test_forgotten_filters_begin_anew() -> None:
    """The memory is bounded."""
    rotations = Rotations(limit=2)
    a, b, c = (Filter(tenant_id=None, queues=(q,), actions=("x",)) for q in "abc")
    first = rotations.of(a)
    assert rotations.of(a) is first
    rotations.of(b)
    rotations.of(c)
    assert rotations.of(a) is not first


async def test_one_claim_keeps_the_weights(client: Client, queue: Queue) -> None:
    """A batch of 120 out of three full tiers is 80, 30 and 10."""
    for tier in TIERS:
        await queue.put(200, tier=tier)
    tasks = await client.poll(120)
    assert Counter(task.tier for task in tasks) == {1: 80, 2: 30, 3: 10}


async def test_single_task_polls_do_not_starve_bulk(client: Client, queue: Queue) -> None:
    """Polls of one task, full tiers: in twelve polls one is bulk."""
    for tier in TIERS:
        await queue.put(50, tier=tier)
    served = Counter([(await client.poll(1))[0].tier for _ in range(24)])
    assert served == {1: 16, 2: 6, 3: 2}


async def test_ten_thousand_tasks_do_not_delay_one(client: Client, queue: Queue) -> None:
    """PG-06: tenant A has 10,000 tasks, then B gets one: B's is in the very next batch."""
    await queue.put(10_000, tenant="a", notify=False)
    await client.poll(100)
    await queue.put(1, tenant="b", notify=False)
    tasks = await client.poll(10)
    assert Counter(task.tenant_id for task in tasks) == {"a": 9, "b": 1}


async def test_tenants_take_turns_over_single_polls(client: Client, queue: Queue) -> None:
    """Polls of one task go round the tenants, whatever their backlog."""
    await queue.put(500, tenant="a")
    for tenant in "bcd":
        await queue.put(3, tenant=tenant)
    served = [(await client.poll(1))[0].tenant_id for _ in range(12)]
    assert served == ["a", "b", "c", "d"] * 3


async def test_more_tenants_than_a_claim_looks_at(client: Client, queue: Queue) -> None:
    """Each of 60 tenants is served once in six polls of ten: a walk that is cut goes on where it stopped."""
    for n in range(60):
        await queue.put(2, tenant=f"t{n:02}", notify=False)
    served: Counter[str] = Counter()
    for _ in range(6):
        served.update(task.tenant_id for task in await client.poll(10))
    assert served == {f"t{n:02}": 1 for n in range(60)}


async def test_delayed_tasks_of_many_tenants_hide_nobody(client: Client, queue: Queue) -> None:
    """PG-06: what is not due never blocks, though 300 tenants with delayed tasks stand before the one whose task is due."""
    for n in range(300):
        await queue.put(1, tenant=f"a{n:03}", due_in_ms=3_600_000, notify=False)
    await queue.put(20, tenant="z", due_in_ms=3_600_000, notify=False)
    [run] = await queue.put(1, tenant="z", notify=False)
    assert [task.run_id for task in await client.poll(1, wait_ms=20_000)] == [run]


async def test_a_retry_in_an_hour_does_not_hold_up_a_ready_one(client: Client, queue: Queue) -> None:
    """PG-06: same tenant, queue and tier."""
    await queue.put(1, due_in_ms=3_600_000)
    [ready] = await queue.put(1)
    assert [task.run_id for task in await client.poll(5)] == [ready]


@pytest.mark.pages
async def test_few_actions_among_many_others(database: Database, queue: Queue) -> None:
    """A worker that names one action of a queue full of others reads its own tasks only: index entries read do not grow with the others'."""
    await queue.put(20_000, action="other:thing", notify=False)
    [run] = await queue.put(1, notify=False)
    await queue.owner.execute("analyze eec_workflow_step_attempt")
    pool = await open_pool(database.dsn("dispatch"), "dispatch", max_size=1, settings=PROBES)
    try:
        leases = Leases(pool, lease_ms=15_000, max_bytes=3 << 20)
        poll = Poll(
            wanted=Filter(tenant_id=None, queues=("default",), actions=("noop:noop",)),
            worker_id="w",
            poll_id="p",
            limit=100,
        )
        before = await _entries_read(pool)
        claim = await leases.claim(poll)
        assert [task.key.run_id for task in claim.tasks] == [run]
        assert await _entries_read(pool) - before < 50
    finally:
        await pool.close()


async def test_two_dispatchers_never_lease_a_task_twice(dispatching, queue: Queue) -> None:  # type: ignore[no-untyped-def]
    """Two processes race for the same tasks: each task once, none left, and neither waits for the other."""
    await queue.put(600, tenant="a", notify=False)
    await queue.put(200, tenant="b", tier="critical", notify=False)
    async with dispatching() as one, dispatching() as two:
        batches = await asyncio.gather(*(c.poll(25, wait_ms=2_000) for _ in range(24) for c in (one, two)))
    runs = [task.run_id for batch in batches for task in batch]
    assert len(runs) == len(set(runs)) == 800
    assert await queue.leased() == 800


async def _entries_read(pool) -> int:  # type: ignore[no-untyped-def]
    await pool.execute("select pg_stat_force_next_flush()")
    count: int = await pool.fetchval(
        "select idx_tup_read from pg_stat_user_indexes where indexrelname = 'eec_workflow_step_attempt_claim'"
    )
    return count
