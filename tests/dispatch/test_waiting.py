"""Waiting, step by step: the loop is turned by hand over a real queue, so that a poller leaves or a claim breaks at the very moment that is meant."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ductord.db.pool import PROBES, open_pool
from ductord.dispatch.fairness import Filter
from ductord.dispatch.leases import Claim, LeasedTask, Leases, Poll
from ductord.dispatch.waiting import Waiting
from tests.conftest import Database
from tests.support.queue import Queue

WANTED = Filter(tenant_id=None, queues=("default",), actions=("noop:noop",))


class Breaking(Leases):
    """Leases whose next claim is committed and then breaks, as a connection does that dies before the answer."""

    breaks = False
    claims = 0

    async def claim(self, poll: Poll) -> Claim:
        """As `Leases`, and breaks once when told to."""
        self.claims += 1
        claim = await super().claim(poll)
        if self.breaks:
            self.breaks = False
            raise ConnectionError("the connection died")
        return claim


@pytest.fixture
async def leases(database: Database, queue: Queue) -> AsyncIterator[Breaking]:
    """Leases over a pool of dispatch's role."""
    pool = await open_pool(database.dsn("dispatch"), "dispatch", max_size=2, settings=PROBES)
    yield Breaking(pool, lease_ms=15_000, max_bytes=3 << 20)
    await pool.close()


def _poll(limit: int = 10, poll_id: str = "p") -> Poll:
    return Poll(wanted=WANTED, worker_id="w", poll_id=poll_id, limit=limit)


async def _begun(waiting: Waiting, poll: Poll, wait_s: float = 30) -> asyncio.Task[list[LeasedTask]]:
    """A poll that waits."""

    async def take() -> list[LeasedTask]:
        return (await waiting.take(poll, wait_s)).tasks

    task = asyncio.create_task(take())
    await asyncio.sleep(0)
    return task


async def test_a_poller_that_leaves_during_the_claim(leases: Breaking, queue: Queue) -> None:
    """The claim brings tasks for somebody who is gone: they are given back and somebody else gets them at once."""
    await queue.put(3)
    waiting = Waiting(leases, interval_ms=60_000)
    gone = await _begun(waiting, _poll())
    turn = asyncio.create_task(waiting.turn())
    await asyncio.sleep(0)
    gone.cancel()
    await turn
    assert await queue.leased() == 3
    await waiting.turn()
    assert await queue.leased() == 0
    row = await queue.owner.fetchrow(
        "select worker_id, poll_id, start_time, lease_expire_time, check_time from eec_workflow_step_attempt"
    )
    assert set(row.values()) == {None}
    other = await _begun(waiting, _poll(poll_id="q"))
    await waiting.turn()
    assert len(await other) == 3


async def test_a_poller_that_leaves_with_the_answer_in_hand(leases: Breaking, queue: Queue) -> None:
    """Cancelled between the answer and its taking: the tasks are given back; their queue deadline is watched again."""
    deadline = await queue.owner.fetchval("select now() + interval '1 minute'")
    await queue.put(2, queue_deadline=deadline, check_time=deadline)
    waiting = Waiting(leases, interval_ms=60_000)
    gone = await _begun(waiting, _poll())
    await waiting.turn()
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    await waiting.drain()
    assert await queue.leased() == 0
    assert (
        await queue.owner.fetchval("select count(*) from eec_workflow_step_attempt where check_time = queue_deadline")
        == 2
    )


async def test_a_redelivered_task_is_not_given_back_by_the_first_call(leases: Breaking, queue: Queue) -> None:
    """The first call's tasks went to its repetition, under new secrets: giving back the old ones takes nothing away."""
    await queue.put(2)
    claim = await leases.claim(_poll())
    again = await leases.redeliver(_poll())
    assert again is not None
    assert await leases.give_back(claim.tasks) == 0
    assert await queue.leased() == 2
    assert await leases.give_back(again.tasks) == 2


async def test_a_claim_that_broke_after_its_commit(leases: Breaking, queue: Queue) -> None:
    """Nobody knows whether it was committed: the next look for the same poll finds what it leased, and leases nothing more."""
    await queue.put(5)
    waiting = Waiting(leases, interval_ms=0)
    taken = await _begun(waiting, _poll(limit=2))
    leases.breaks = True
    with pytest.raises(ConnectionError):
        await waiting.turn()
    await waiting.turn()
    assert len(await taken) == 2
    assert await queue.leased() == 2


async def test_one_empty_claim_answers_for_all_who_wait(leases: Breaking, queue: Queue) -> None:
    """Forty pollers of one filter, one claim; then nothing until a hint."""
    waiting = Waiting(leases, interval_ms=60_000)
    polls = [await _begun(waiting, _poll(poll_id=f"p{n}")) for n in range(40)]
    rest = await waiting.turn()
    assert leases.claims == 1
    assert rest is not None
    assert rest > 50
    await waiting.turn()
    assert leases.claims == 1
    waiting.hint()
    await waiting.turn()
    assert leases.claims == 2
    await waiting.drain()
    assert await asyncio.gather(*polls) == [[]] * 40


async def test_a_hint_during_a_claim_is_not_lost(leases: Breaking, queue: Queue) -> None:
    """Tasks that come while a claim finds nothing are looked for at once, not at the next interval."""
    waiting = Waiting(leases, interval_ms=60_000)
    poll = await _begun(waiting, _poll())
    turn = asyncio.create_task(waiting.turn())
    await asyncio.sleep(0)
    waiting.hint()
    assert await turn == 0
    await queue.put(1)
    await waiting.turn()
    assert len(await poll) == 1


async def test_the_end_of_a_wait_takes_one_last_look(leases: Breaking, queue: Queue) -> None:
    """A poll that wants no wait still gets one look; with the database away it ends a little later, with nothing."""
    await queue.put(1)
    waiting = Waiting(leases, interval_ms=60_000)
    impatient = await _begun(waiting, _poll(), wait_s=0)
    for _ in range(10):
        await asyncio.sleep(0)
    assert not impatient.done()
    await waiting.turn()
    assert len(await impatient) == 1


async def test_groups_have_their_turns(leases: Breaking, queue: Queue) -> None:
    """A group whose pollers come back at once does not keep another from its turn."""
    await queue.put(50)
    await queue.put(1, action="core:echo")
    waiting = Waiting(leases, interval_ms=60_000)
    greedy = [await _begun(waiting, _poll(limit=1, poll_id=f"g{n}")) for n in range(3)]
    echo = Poll(
        wanted=Filter(tenant_id=None, queues=("default",), actions=("core:echo",)), worker_id="w", poll_id="e", limit=1
    )
    modest = await _begun(waiting, echo)
    await waiting.turn()
    assert [len(await each) for each in greedy] == [1, 1, 1]
    assert len(await modest) == 1


async def test_a_poll_behind_a_claim_that_took_all_waits_for_a_hint(leases: Breaking, queue: Queue) -> None:
    """A worker polls again as soon as it has its tasks: no second claim looks for what cannot be there, and a hint is heard at once."""
    await queue.put(2)
    waiting = Waiting(leases, interval_ms=60_000, quiet_s=10)
    first = await _begun(waiting, _poll())
    await waiting.turn()
    assert len(await first) == 2
    second = await _begun(waiting, _poll(poll_id="q"))
    rest = await waiting.turn()
    assert leases.claims == 1
    assert rest is not None
    assert 0 < rest <= 10
    await queue.put(1)
    waiting.hint()
    await waiting.turn()
    assert len(await second) == 1
    assert leases.claims == 2
    impatient = await _begun(waiting, _poll(poll_id="r"), wait_s=0)
    await waiting.turn()
    assert await impatient == []
    assert leases.claims == 3


async def test_without_a_hint_the_look_comes_a_moment_later(leases: Breaking, queue: Queue) -> None:
    """A lost hint costs no more than that moment (PG-02)."""
    await queue.put(1)
    waiting = Waiting(leases, interval_ms=60_000, quiet_s=0.001)
    first = await _begun(waiting, _poll())
    await waiting.turn()
    assert len(await first) == 1
    await queue.put(1)
    second = await _begun(waiting, _poll(poll_id="q"))
    while (rest := await waiting.turn()) is not None and not second.done():
        assert rest <= 0.001
        await asyncio.sleep(rest)
    assert len(await second) == 1


async def test_a_claim_that_left_something_behind_is_followed_by_another(leases: Breaking, queue: Queue) -> None:
    """Tasks beyond what was asked for, or beyond a tenant's share of the candidates, are looked for at once."""
    await queue.put(3)
    claim = await leases.claim(_poll(limit=2))
    assert not claim.emptied
    waiting = Waiting(leases, interval_ms=60_000, quiet_s=10)
    first = await _begun(waiting, _poll(limit=2, poll_id="q"))
    await waiting.turn()
    assert len(await first) == 1
