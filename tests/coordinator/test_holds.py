"""Pauses as rows: held tasks are handed out by nobody, run out of no time, and go again where they left off (ruling C2)."""

import asyncio

import pytest
from msgspec import structs

from ductord.coordinator.attempts import SQL
from ductord.coordinator.sweep import Net, watch
from ductord.model.enums import Verb
from ductord.model.specs import RetryPolicy
from tests.coordinator.conftest import Ticker
from tests.coordinator.workers import WANTED, Workers
from tests.support.books import TENANT, Books, chain

_TASK = "select status, due_time = 'infinity' as held, held_due_time, due_time, queue_deadline, check_time from eec_workflow_step_attempt"


async def _paused(books: Books, ticker: Ticker, **settings: object) -> str:
    run_id = await books.start(await books.publish(chain(1, **settings)))
    await ticker.drain()
    await books.control(run_id, Verb.PAUSE)
    await ticker.drain()
    assert await books.status(run_id) == "paused"
    return run_id


async def test_c2_a_held_task_is_handed_out_by_nobody(books: Books, ticker: Ticker, workers: Workers) -> None:
    """C2: paused, a queued task is leased by no worker; resumed, it is at once."""
    run_id = await _paused(books, ticker)
    assert await workers.lease() == []
    await books.control(run_id, Verb.RESUME)
    await ticker.drain()
    (task,) = await workers.lease()
    await workers.succeed(task)
    await ticker.drain()
    assert (await books.settled(run_id)).status == "completed"


async def test_c2_time_in_the_queue_begins_anew(books: Books, ticker: Ticker, workers: Workers) -> None:
    """C2, A3: a held task has no queue time-out; released it has all of it again, and is never due in the past, where dispatch looks no more."""
    run_id = await _paused(books, ticker, queue_timeout_ms=1000)
    held = await books.owner.fetchrow(_TASK)
    assert (held["held"], held["check_time"]) == (True, None)
    await books.owner.execute(
        "update eec_workflow_step_attempt set held_due_time = held_due_time - interval '1 hour', queue_deadline = queue_deadline - interval '1 hour'"
    )
    assert not (await watch(ticker.connection)).woke
    await books.control(run_id, Verb.RESUME)
    await ticker.drain()
    row = await books.owner.fetchrow(_TASK)
    assert (row["held"], row["held_due_time"]) == (False, None)
    assert row["due_time"] > held["held_due_time"]
    assert (row["queue_deadline"] - row["due_time"]).total_seconds() == 1
    assert row["check_time"] == row["queue_deadline"]
    assert not (await watch(ticker.connection)).woke
    assert len(await workers.lease()) == 1


async def test_c2_a_back_off_that_a_pause_outlasts_is_over(books: Books, ticker: Ticker) -> None:
    """C2: a retry that is held keeps its own time: clocks run on."""
    retry = RetryPolicy(max_attempts=3, backoff_ms=3_600_000)
    run_id = await books.start(await books.publish(chain(1, retry=retry)))
    await ticker.drain()
    await books.control(run_id, Verb.PAUSE)
    await books.report(outcome="failed", code="UNAVAILABLE")
    await ticker.drain()
    held = "select held_due_time from eec_workflow_step_attempt where status = 'open' and due_time = 'infinity'"
    due = await books.owner.fetchval(held)
    assert due is not None, "the retry was queued on hold"
    await books.control(run_id, Verb.RESUME)
    await ticker.drain()
    assert await books.owner.fetchval("select due_time from eec_workflow_step_attempt where status = 'open'") == due


async def test_c2_a_pause_that_meets_a_lease_leaves_it(books: Books, ticker: Ticker, workers: Workers) -> None:
    """C2: what a worker has goes on and is recorded; only what comes after it is held."""
    run_id = await books.start(await books.publish(chain(2)))
    await ticker.drain()
    (task,) = await workers.lease()
    await books.control(run_id, Verb.PAUSE)
    await ticker.drain()
    found, _ = await workers.outcomes.heartbeat([])
    assert found == {}
    await workers.succeed(task)
    await ticker.drain()
    run = await books.settled(run_id)
    assert (run.status, run.nodes[0].status, run.nodes[1].status) == ("paused", "succeeded", "pending")


async def test_c2_a_lease_that_was_undone_during_a_pause_is_not_given_again(
    books: Books, ticker: Ticker, workers: Workers
) -> None:
    """C2: a task was claimed for a poller that went away, the run is paused, dispatch gives the task back: it is on hold, without limits, until the resume."""
    run_id = await books.start(await books.publish(chain(1, queue_timeout_ms=1000)))
    await ticker.drain()
    leased = await workers.lease()
    await books.control(run_id, Verb.PAUSE)
    await ticker.drain()
    assert await workers.leases.give_back(leased) == 1
    assert await workers.lease() == []
    assert not (await workers.leases.due([WANTED]))[0]
    assert (await books.owner.fetchrow(_TASK))["check_time"] is None
    await books.control(run_id, Verb.RESUME)
    await ticker.drain()
    assert len(await workers.lease()) == 1


async def test_c2_a_hold_races_with_a_claim(books: Books, ticker: Ticker, workers: Workers) -> None:
    """C2: 200 paused runs against greedy workers: every task was leased before its pause, and then goes on, or is held: never both, never neither."""
    version = await books.publish(chain(1))
    runs = [await books.start(version) for _ in range(200)]
    await ticker.drain()
    for run_id in runs:
        await books.control(run_id, Verb.PAUSE)

    async def work() -> int:
        taken = 0
        while tasks := await workers.lease(limit=7):
            taken += len(tasks)
        return taken

    async def pause() -> None:
        while (await ticker.tick(20)).claimed:
            pass

    taken, _ = await asyncio.gather(work(), pause())
    taken += await work()
    held = await books.owner.fetchval("select count(*) from eec_workflow_step_attempt where due_time = 'infinity'")
    leased = await books.owner.fetchval("select count(*) from eec_workflow_step_attempt where lease_secret is not null")
    both = "select count(*) from eec_workflow_step_attempt where lease_secret is not null and due_time = 'infinity'"
    assert (leased, held + leased, await books.owner.fetchval(both)) == (taken, 200, 0)
    assert {await books.status(run_id) for run_id in runs} == {"paused"}


async def test_c2_a_node_is_held_alone(books: Books, ticker: Ticker, workers: Workers) -> None:
    """C2: with one of two branches on hold, the other's task goes to a worker; a resume of the run does not let the node go."""
    manifest = chain(1)
    lone = structs.replace(manifest.steps[0], ref="lone")
    version = await books.publish(structs.replace(manifest, steps=(*manifest.steps, lone), entrypoints=(0, 1)))
    run_id = await books.start(version)
    await ticker.drain()
    await books.control(run_id, Verb.PAUSE_NODE, step_ref="lone")
    await books.control(run_id, Verb.PAUSE)
    await ticker.drain()
    assert await workers.lease() == []
    await books.control(run_id, Verb.RESUME)
    await ticker.drain()
    assert [task.key.step_ref for task in await workers.lease()] == ["s0"]
    await books.control(run_id, Verb.RESUME_NODE, step_ref="lone")
    await ticker.drain()
    assert [task.key.step_ref for task in await workers.lease()] == ["lone"]
    await books.settled(run_id)


async def test_gj_06_a_paused_run_is_not_stuck(books: Books, ticker: Ticker) -> None:
    """C2, GJ-06: a run that an operator holds waits for a control alone, and the net does not count it; nor does it wake again what the pause holds."""
    manifest = chain(2, total_timeout_ms=1000)
    run_id = await books.start(await books.publish(manifest))
    await ticker.drain()
    await books.control(run_id, Verb.PAUSE)
    await ticker.drain()
    await books.owner.execute("update eec_workflow_timer set due_time = due_time - interval '1 hour'")
    assert (await watch(ticker.connection)).timers == 1
    await ticker.drain()
    assert await books.owner.fetchval("select count(*) from eec_workflow_timer where woken_time is not null") == 1
    assert not (await Net(0).round(ticker.connection)).woke
    await books.owner.execute("delete from eec_workflow_step_attempt")
    assert not (await Net(0).round(ticker.connection)).woke


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.TERMINATE])
async def test_c3_what_is_held_ends_with_its_run(books: Books, ticker: Ticker, workers: Workers, verb: Verb) -> None:
    """C2, C3: a paused run can be ended, and nothing of it is left in the queue."""
    run_id = await _paused(books, ticker)
    await books.control(run_id, verb)
    await ticker.drain()
    assert (await books.settled(run_id)).status == ("cancelled" if verb is Verb.CANCEL else "terminated")
    assert await workers.lease() == []
    assert await books.owner.fetchval("select count(*) from eec_workflow_step_attempt where status = 'open'") == 0


async def test_locks_are_taken_in_the_order_of_keys(books: Books, ticker: Ticker) -> None:
    """The plan of `lock_attempts` sorts below the node that locks: a commit and a batch of dispatch lock in one order."""
    await books.owner.execute("set enable_seqscan = off")
    values = {"$1::text[]": f"array['{TENANT}']", "$2::uuid[]": "array[gen_random_uuid()]", "$3::bool[]": "array[true]"}
    statement = SQL["lock_attempts"]
    for parameter, value in values.items():
        statement = statement.replace(parameter, value)
    rows = await books.owner.fetch(f"explain (costs off) {statement}")
    plan = [row[0].strip().removeprefix("->  ") for row in rows]
    assert plan[0] == "LockRows"
    assert plan[1] in ("Sort", "Incremental Sort")
