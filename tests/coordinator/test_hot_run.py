"""A hot run: many branches of one run that end together, with several coordinators after it (field case IL-05)."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
from msgspec import structs

from ductord.coordinator.tick import Ticked
from ductord.dispatch.outcomes import Beat
from ductord.model.enums import Verb
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.workers import Workers
from tests.support.books import Books, chain

_BRANCHES = 200


@pytest.fixture
async def tickers(database: Database) -> AsyncIterator[list[Ticker]]:
    """Four coordinators."""
    connections = [await asyncpg.connect(database.dsn("coordinator")) for _ in range(4)]
    yield [Ticker(connection) for connection in connections]
    for connection in connections:
        await connection.close()


async def test_il_05_only_ticks_repeat(books: Books, tickers: list[Ticker], workers: Workers) -> None:
    """IL-05: 200 branches of one run report within moments of each other, each in a call of its own, with four coordinators: all are applied, each once,
    and no task is handed out twice."""
    step = chain(1).steps[0]
    steps = tuple(structs.replace(step, ref=f"b{n:03}") for n in range(_BRANCHES))
    manifest = structs.replace(chain(1), steps=steps, entrypoints=tuple(range(_BRANCHES)))
    run_id = await books.start(await books.publish(manifest))
    await tickers[0].drain()
    tasks = await workers.lease()
    assert len(tasks) == _BRANCHES
    over = asyncio.Event()

    async def coordinate(ticker: Ticker) -> Ticked:
        total = Ticked()
        while not over.is_set():
            total.add(await ticker.tick())
        total.add(await ticker.drain())
        return total

    coordinating = [asyncio.create_task(coordinate(ticker)) for ticker in tickers]
    await asyncio.gather(*(workers.succeed(task) for task in tasks))
    async with asyncio.timeout(60):
        while await books.status(run_id) == "running":  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.01)
    over.set()
    totals = await asyncio.gather(*coordinating)
    run = await books.settled(run_id)
    assert run.status == "completed"
    assert all(node.attempt == 1 for node in run.nodes)
    transitions = await books.owner.fetchval("select count(*) from eec_workflow_transition")
    assert sum(ticked.transitions for ticked in totals) == transitions - 1
    attempts = await books.owner.fetch("select status, count(*) from eec_workflow_step_attempt group by status")
    assert [tuple(row) for row in attempts] == [("succeeded", _BRANCHES)]
    assert all(ticked.quarantined == 0 for ticked in totals)


async def test_il_05_a_decision_in_vain_is_a_conflict(books: Books, tickers: list[Ticker]) -> None:
    """IL-05: with nothing but the row's version between them, four coordinators decide the same reports: one commits, three are told that they lost, and wrote
    nothing."""
    run_id = await books.start(await books.publish(chain(2)))
    await tickers[0].drain()
    await books.report()
    decided = [await ticker.decide("t", run_id) for ticker in tickers]
    lost = await asyncio.gather(*(ticker.commit(d) for ticker, d in zip(tickers, decided, strict=True)))
    assert sorted(len(each) for each in lost) == [0, 1, 1, 1]
    assert await books.owner.fetchval("select count(*) from eec_workflow_transition") == 2
    assert await books.owner.fetchval("select count(*) from eec_workflow_step_attempt where step_ref = 's1'") == 1
    await books.settled(run_id)


async def test_il_05_commits_and_batches_of_dispatch_do_not_meet_half_way(
    books: Books, tickers: list[Ticker], workers: Workers
) -> None:
    """IL-05: runs are paused, cancelled and terminated by the batch while batches of heartbeats and reports hold locks on their attempts: nobody waits in
    a circle, and every run ends."""
    step = chain(1).steps[0]
    refs = ("B", "a", "c.d", "c-d", "_e")  # in another order by the rules of most languages
    manifest = structs.replace(
        chain(1), steps=tuple(structs.replace(step, ref=ref) for ref in refs), entrypoints=tuple(range(len(refs)))
    )
    version = await books.publish(manifest)
    runs = [await books.start(version) for _ in range(60)]
    await tickers[0].drain()
    tasks = await workers.lease()
    assert len(tasks) == len(runs) * len(refs)
    over = asyncio.Event()

    async def coordinate(ticker: Ticker) -> None:
        while not over.is_set():
            await ticker.tick(20)
        await ticker.drain()

    async def beat() -> None:
        while not over.is_set():
            await workers.outcomes.heartbeat([Beat(number=n, key=task.key) for n, task in enumerate(tasks)])

    going = [asyncio.create_task(each) for each in (*(coordinate(t) for t in tickers[:2]), beat(), beat())]
    for verb in (Verb.PAUSE, Verb.RESUME, Verb.CANCEL):
        for run_id in runs:
            await books.control(run_id, verb)
    for run_id in runs[::2]:
        await books.control(run_id, Verb.TERMINATE)
    for start in range(0, len(tasks), 30):
        await workers.succeed(*tasks[start : start + 30])
    async with asyncio.timeout(60):
        while await books.open_runs():  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.01)
    over.set()
    await asyncio.gather(*going)
    await books.owner.execute("select pg_stat_force_next_flush()")
    assert await books.owner.fetchval("select deadlocks from pg_stat_database where datname = current_database()") == 0
    for run_id in runs:
        await books.settled(run_id)
