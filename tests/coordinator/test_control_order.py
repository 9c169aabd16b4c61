"""What stops runs comes before what lets them go on: a tenant whose runs multiply can still end them (F5, SW-02)."""

from ductord.model.enums import Verb
from tests.coordinator.conftest import Ticker
from tests.coordinator.parents import PAGE, begun, child_of, family, over
from tests.support.books import Books


async def test_sw_02_the_cancel_of_a_tree_overtakes_what_is_due(books: Books, ticker: Ticker) -> None:
    """A definition that calls itself twice doubled with every turn of its tenant's queue, and its cancel went down one level a turn: it never ended."""
    parent = await begun(books, ticker, over("runs"))
    await ticker.drain()
    version = await books.release(family("other", *PAGE))
    others = [await books.start(version) for _ in range(20)]
    await books.control(parent, Verb.CANCEL, wake=False)
    assert await ticker.commit(await ticker.decide("t", parent)) == set()
    assert (await ticker.tick(3)).claimed == 3
    assert all([(await books.run(child_of(parent, n))).stop for n in range(3)])
    assert {await books.status(run_id) for run_id in others} == {"pending"}
    await ticker.drain()


async def test_sw_02_a_tree_that_doubles_is_ended(books: Books, ticker: Ticker) -> None:
    """One tick of a few runs at a time against a queue that grows: all of the tree has ended before it is complete."""
    twice = 'step s type=scatter scatter={"items_expr": "[1, 2]", "mode": "child_workflow", "workflow": {"family_slug": "twice"}}'
    root = await books.start(await books.release(family("twice", twice)))
    for _ in range(6):
        await ticker.tick()
    await books.control(root, Verb.TERMINATE, wake=False)
    assert await ticker.commit(await ticker.decide("t", root)) == set()
    ticks = 0
    while (await ticker.tick(8)).claimed:
        ticks += 1
        assert ticks < 60, "the tree outgrows its end"
    assert await books.open_runs() == 0
