"""What workers say too late, and at the very moment at which a tick ends their attempt: no effect is forgotten (rulings A4, C7, field case SA-02)."""

import asyncio

import asyncpg
import orjson
import pytest
from msgspec import structs

from ductord.coordinator.sweep import Net, watch
from ductord.dispatch.outcomes import Verdict
from ductord.model.enums import Verb
from ductord.model.events import AttemptEnded, InverseRegistered
from ductord.model.manifest import Manifest
from ductord.model.specs import Compensation, InverseSpec, Template
from tests.coordinator.conftest import Ticker
from tests.coordinator.workers import Workers
from tests.support.books import TENANT, Books, chain

_UNDO = InverseSpec(
    action="noop:undo",
    args=Template(tree={"id": "${{ OUTPUT.n }}"}, static=False, names=("OUTPUT",)),
)


def undoable(length: int = 1, **settings: object) -> Manifest:
    """A chain whose first step has an inverse, which reads its output."""
    manifest = chain(length, **settings)
    first = structs.replace(manifest.steps[0], compensation=Compensation(on_failure=(_UNDO,), on_cancel=(_UNDO,)))
    return structs.replace(manifest, steps=(first, *manifest.steps[1:]))


async def _registered(books: Books, run_id: str) -> list[bool]:
    """The registrations in a run's history: whether each was late."""
    history = await books.history(run_id)
    return [event.late for events in history for event in events if isinstance(event, InverseRegistered)]


async def _undone(books: Books) -> list[object]:
    rows = await books.owner.fetch(
        "select input::text from eec_workflow_step_attempt where kind = 'compensation' order by create_time"
    )
    return [orjson.loads(row["input"]) for row in rows]


async def _expire(books: Books) -> None:
    """Every lease is long over."""
    await books.owner.execute(
        "update eec_workflow_step_attempt set deadline_time = eec_now() - interval '1 second', check_time = eec_now() - interval '1 second'"
        " where status = 'open'"
    )


async def test_sa_02_a_late_success_is_undone(books: Books, ticker: Ticker, workers: Workers) -> None:
    """SA-02, C7: the attempt timed out, the run failed; then its worker says that it had acted. The inverse is registered and runs, with the late output at
    hand; the worker is told LEASE_LOST, and the report is shown to the engine once."""
    run_id = await books.start(await books.publish(undoable(timeout_ms=60_000)))
    await ticker.drain()
    (task,) = await workers.lease()
    await _expire(books)
    await watch(ticker.connection)
    await ticker.drain()
    assert (await books.settled(run_id)).status == "failed"
    assert await workers.succeed(task, output='{"n": 7}') == [Verdict.STALE]
    await ticker.drain()
    assert await _registered(books, run_id) == [True]
    assert await _undone(books) == [{"id": 7}]
    before = await books.settled(run_id)
    await books.wake(run_id)
    await ticker.drain()
    assert await books.settled(run_id) == before
    (undo,) = await workers.lease()
    await workers.succeed(undo)
    await ticker.drain()
    assert (await books.settled(run_id)).saga.plan[-1].status == "done"


async def test_a_success_after_its_deadline_is_both(books: Books, ticker: Ticker, workers: Workers) -> None:
    """A3, C7: judged timed out and kept as late by one statement: one tick fails the node and registers the inverse."""
    run_id = await books.start(await books.publish(undoable(timeout_ms=60_000)))
    await ticker.drain()
    (task,) = await workers.lease()
    await books.owner.execute("update eec_workflow_step_attempt set deadline_time = eec_now() - interval '1 second'")
    assert await workers.succeed(task) == [Verdict.TIMED_OUT]
    await ticker.tick()
    assert await _registered(books, run_id) == [True]
    assert (await books.settled(run_id)).status == "failed"


async def test_gj_06_a_late_success_without_wake_up_is_found(books: Books, ticker: Ticker, workers: Workers) -> None:
    """GJ-06: the net wakes the run of a late success, once its period is over, and not again."""
    run_id = await books.start(await books.publish(undoable(timeout_ms=60_000)))
    await ticker.drain()
    (task,) = await workers.lease()
    await _expire(books)
    await watch(ticker.connection)
    await ticker.drain()
    await workers.succeed(task)
    await books.owner.execute("delete from eec_workflow_wakeup")
    assert (await Net(60_000).round(ticker.connection)).repaired["lates"] == 0
    assert (await Net(0).round(ticker.connection)).repaired["lates"] == 1
    await ticker.drain()
    assert await _registered(books, run_id) == [True]
    assert (await Net(0).round(ticker.connection)).repaired["lates"] == 0


@pytest.mark.parametrize("verb", [Verb.TERMINATE, Verb.RESET_NODE])
async def test_a_report_between_load_and_commit_is_not_lost(
    books: Books, ticker: Ticker, workers: Workers, verb: Verb
) -> None:
    """C7, C10: a control would revoke the attempt; its worker succeeds after the load and before the commit. The tick is repeated and hears the success."""
    run_id = await books.start(await books.publish(undoable(2)))
    await ticker.drain()
    (task,) = await workers.lease()
    await books.control(run_id, verb, step_ref="s0" if verb is Verb.RESET_NODE else "")
    decided = await ticker.decide(TENANT, run_id)
    assert any(isinstance(event, AttemptEnded) for event in decided.decision.events)
    assert await workers.succeed(task) == [Verdict.ACCEPTED]
    assert await ticker.commit(decided) == {run_id}
    await ticker.drain()
    assert await _registered(books, run_id) == [False]
    assert await books.owner.fetchval("select status from eec_workflow_step_attempt where attempt = 1") == "succeeded"
    await books.settled(run_id)


async def test_a_lease_between_load_and_commit_is_seen(books: Books, ticker: Ticker, workers: Workers) -> None:
    """C7: the tick took the attempt for one that nobody has; a worker leases it before the commit. Repeated, the tick knows that it may have acted."""
    run_id = await books.start(await books.publish(undoable()))
    await ticker.drain()
    await books.control(run_id, Verb.TERMINATE)
    decided = await ticker.decide(TENANT, run_id)
    assert [event.started for event in decided.decision.events if isinstance(event, AttemptEnded)] == [False]
    assert len(await workers.lease()) == 1
    assert await ticker.commit(decided) == {run_id}
    await ticker.drain()
    (events,) = [e for e in await books.history(run_id) if any(isinstance(event, AttemptEnded) for event in e)]
    assert [event.started for event in events if isinstance(event, AttemptEnded)] == [True]
    assert (await books.settled(run_id)).nodes[0].unknown


async def test_a_commit_waits_for_a_report_under_way(
    books: Books, ticker: Ticker, workers: Workers, other_books: Books
) -> None:
    """C7: the report's transaction is open when the commit locks: whoever comes first counts, and the other sees it."""
    run_id = await books.start(await books.publish(undoable()))
    await ticker.drain()
    await workers.lease()
    await books.control(run_id, Verb.TERMINATE)
    decided = await ticker.decide(TENANT, run_id)
    transaction = other_books.owner.transaction()
    await transaction.start()
    await other_books.report(run_id)
    committing = asyncio.create_task(ticker.commit(decided))
    await _blocked(books.owner, ticker.connection)
    await transaction.commit()
    assert await committing == {run_id}


async def test_a_success_of_a_fenced_worker_is_late_when_its_attempt_comes_to_nothing(
    books: Books, ticker: Ticker, workers: Workers
) -> None:
    """A4, C7: the reply to a poll was lost and its lease delivered again; the first worker, fenced off, brings a success. It counts for nothing while the
    attempt is open; when the run is terminated and the attempt revoked, its inverse is registered."""
    run_id = await books.start(await books.publish(undoable()))
    await ticker.drain()
    (task,) = await workers.lease()
    await books.owner.execute("update eec_workflow_step_attempt set lease_secret = 'another'")
    assert await workers.succeed(task, output='{"n": 3}') == [Verdict.STALE]
    await ticker.drain()
    assert await _registered(books, run_id) == []
    await books.control(run_id, Verb.TERMINATE)
    await ticker.drain()
    assert await _registered(books, run_id) == [True]
    assert await books.owner.fetchval("select late_judged_time from eec_workflow_step_attempt") is not None


async def _blocked(owner: asyncpg.Connection, connection: asyncpg.Connection) -> None:
    """Until the connection waits for a lock."""
    waits = "select cardinality(pg_blocking_pids($1)) > 0"
    async with asyncio.timeout(60):
        while not await owner.fetchval(waits, connection.get_server_pid()):  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.005)
