"""A parent has a child redriven in the very moment in which the child ends: the end is of before, and nobody is told of it (C4, F4, SW-01)."""

import pytest

from ductord.coordinator.sweep import Net
from ductord.model.enums import Verb
from tests.coordinator.conftest import Ticker
from tests.coordinator.parents import begun, child_of, child_rows, end, over
from tests.coordinator.workers import Workers
from tests.support.books import TENANT, Books


async def _both_cancelled(books: Books, ticker: Ticker, workers: Workers) -> str:
    """A parent that was cancelled; its child is being cancelled, and waits for its worker."""
    parent = await begun(books, ticker, over("one"))
    await ticker.drain()
    assert len(await workers.lease()) == 1
    await books.control(parent, Verb.CANCEL)
    await ticker.drain()
    child = child_of(parent)
    assert (await books.status(parent), await books.status(child)) == ("cancelled", "running")
    return parent


@pytest.mark.parametrize("way", ["one tick", "two coordinators"])
async def test_c4_an_end_in_the_moment_of_a_redrive_is_not_told(
    books: Books, ticker: Ticker, other_ticker: Ticker, workers: Workers, way: str
) -> None:
    """C4, F4: a child ended cancelled while its parent was being redriven; the parent counted it as failed, and the child did its work for nobody."""
    parent = await _both_cancelled(books, ticker, workers)
    child = child_of(parent)
    await books.report(child, outcome="lost", output=None)
    if way == "one tick":
        await books.control(parent, Verb.REDRIVE)
        assert (await ticker.tick()).claimed == 2
    else:
        ending = await other_ticker.decide(TENANT, child)
        await books.control(parent, Verb.REDRIVE)
        assert await ticker.commit(await ticker.decide(TENANT, parent)) == set()
        assert await other_ticker.commit(ending) == set()
    assert await books.status(child) == "cancelled"
    before, present = await child_rows(books, parent)
    assert (before["status"], present["status"]) == ("cancelled", None)
    assert not (await Net(0).round(ticker.connection)).repaired["untold"], "it is to be redriven, and tells then"
    await ticker.drain()
    assert await books.status(child) == "running"
    await end(books, ticker, child, output='{"n": 7}')
    await ticker.drain()
    assert (await books.settled(parent)).status == "completed"
    assert (await child_rows(books, parent))[-1]["status"] == "completed"


async def test_c4_a_refused_redrive_tells_of_the_end(books: Books, ticker: Ticker, workers: Workers) -> None:
    """C4: the child has completed in that moment, so that there is nothing to redrive: the refusal says so, in the commit that settles it."""
    parent = await _both_cancelled(books, ticker, workers)
    child = child_of(parent)
    await books.report(child, output='{"n": 7}')
    await books.control(parent, Verb.REDRIVE)
    assert (await ticker.tick()).claimed == 2
    assert await books.status(child) in ("completed", "cancelled")
    await ticker.drain()
    if await books.status(child) == "running":
        await end(books, ticker, child, output='{"n": 7}')
        await ticker.drain()
    assert (await books.settled(parent)).status == "completed"
