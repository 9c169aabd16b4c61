"""Sets of external events on real rows, with publishers and coordinators at it at the same time (rulings E3, E4; SE-01, SE-02, SE-03)."""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import asyncpg
import orjson
import pytest

from ductord.db.pool import open_pool
from ductord.model.events import NodeEnded
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.waiters import Publisher, waiting
from tests.support.books import Books

BOTH = (
    'step s type=event_set event_set={"correlation_key": "TRIGGER.payload.id", "requirements": [{"name": "a", "event_name": "a"},'
    ' {"name": "b", "event_name": "b"}]}',
)
TWO_OF_A_KIND = (
    'step s type=event_set event_set={"correlation_key": "TRIGGER.payload.id", "requirements": [{"name": "a", "event_name": "a"}],'
    ' "completion_policy": "count", "count": 2}',
)
PAID = ('step w type=wait wait={"event": {"event_name": "paid", "correlation_key": "TRIGGER.payload.id"}}',)


@pytest.fixture
async def publishers(database: Database) -> AsyncIterator[tuple[Publisher, Publisher]]:
    """Two processes that publish, as far as the database can tell."""
    pools: list[asyncpg.Pool] = [await open_pool(database.dsn("signals"), "signals", max_size=4) for _ in range(2)]
    yield Publisher(pools[0]), Publisher(pools[1])
    for pool in pools:
        await pool.close()


async def _runs(books: Books, count: int, *lines: str) -> list[str]:
    """So many runs; the key of each is its number."""
    version = await books.publish(waiting(*lines))
    return [await books.start(version, input_=f'{{"id": "k{number}"}}') for number in range(count)]


async def _until(done: "asyncio.Future[Any]", coordinator: Ticker) -> None:
    """Tick small batches until everything is said and nothing is due."""
    while True:
        said = done.done()
        if not (await coordinator.tick(8)).claimed and said:
            return


async def _ends(books: Books, run_id: str) -> int:
    """How often the run's steps have ended, by its history."""
    return sum(isinstance(event, NodeEnded) for tick in await books.history(run_id) for event in tick)


async def _left(books: Books) -> tuple[int, int]:
    """Waits that are open and receipts that were not applied."""
    return (
        await books.owner.fetchval("select count(*) from eec_workflow_wait where close_time is null"),
        await books.owner.fetchval("select count(*) from eec_workflow_receipt where applied_time is null"),
    )


async def test_se_03_two_events_at_the_same_moment_200_times(
    books: Books,
    ticker: Ticker,
    other_ticker: Ticker,
    publishers: tuple[Publisher, Publisher],
) -> None:
    """SE-03: A and B published in parallel by two processes, under two coordinators: both are received each time, and each set ends once."""
    runs = await _runs(books, 200, *BOTH)
    await ticker.drain()

    async def say(number: int) -> list[int]:
        told = await asyncio.gather(
            publishers[0].publish("a", f"k{number}", {"n": number}),
            publishers[1].publish("b", f"k{number}", {"n": number}),
        )
        return [published.matched for published in told]

    async with asyncio.timeout(60):
        saying = asyncio.gather(*(say(number) for number in range(200)))
        matched, *_ = await asyncio.gather(saying, _until(saying, ticker), _until(saying, other_ticker))
        await ticker.drain()
    assert matched == [[1, 1]] * 200
    assert {await books.status(run_id) for run_id in runs} == {"completed"}
    assert {await _ends(books, run_id) for run_id in runs} == {1}
    assert await _left(books) == (0, 0)
    outputs = await books.owner.fetch("select output::text from eec_workflow_step_attempt")
    for (output,) in outputs:
        assert sorted(event["requirement"] for event in orjson.loads(output)["events"]) == ["a", "b"]
    assert len(outputs) == 200


async def test_se_02_the_same_event_through_two_processes_counts_once(
    books: Books, ticker: Ticker, publishers: tuple[Publisher, Publisher]
) -> None:
    """SE-02: the set counts to two, one event is published twice at once: it is still waiting, and goes on with the second event."""
    (run_id,) = await _runs(books, 1, *TWO_OF_A_KIND)
    await ticker.drain()
    for _ in range(10):
        told = await asyncio.gather(*(p.publish("a", "k0", event_id="e1") for p in publishers))
        await ticker.drain()
    assert [published.matched for published in told] == [0, 0]
    waits = (await books.settled(run_id)).nodes[0].waiting
    assert waits is not None
    assert [received.event_id for received in waits.received] == ["e1"]
    assert (await publishers[0].publish("a", "k0", event_id="e2")).matched == 1
    await ticker.drain()
    assert await books.status(run_id) == "completed"
    assert await _left(books) == (0, 0)


async def test_se_01_what_matched_is_what_was_resolved(
    books: Books,
    ticker: Ticker,
    other_ticker: Ticker,
    publishers: tuple[Publisher, Publisher],
) -> None:
    """SE-01: 100 waits open while their events are published: those that came too soon matched nothing and are not remembered, every other one wakes its wait.
    Published again under another id they wake the rest."""
    runs = await _runs(books, 100, *PAID)
    numbers = list(range(100))
    Random(1).shuffle(numbers)

    async def say() -> int:
        matched = 0
        for number in numbers:
            matched += (await publishers[number % 2].publish("paid", f"k{number}")).matched
        return matched

    async with asyncio.timeout(60):
        saying = asyncio.ensure_future(say())
        matched, *_ = await asyncio.gather(saying, _until(saying, ticker), _until(saying, other_ticker))
        await ticker.drain()
    resolved = [await books.status(run_id) == "completed" for run_id in runs]
    assert matched == sum(resolved)
    again = [(await publishers[0].publish("paid", f"k{n}", event_id=f"again-{n}")).matched for n in range(100)]
    await ticker.drain()
    assert again == [int(not done) for done in resolved]
    assert {await books.status(run_id) for run_id in runs} == {"completed"}
    assert await _left(books) == (0, 0)
