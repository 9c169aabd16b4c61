"""A parent is told of the end of its children, in the commit that ends them, once, whatever happens in the same moment (ruling F5)."""

import asyncio

import pytest
from asyncpg.transaction import Transaction
from msgspec import structs

from ductord.coordinator.commit import commit
from ductord.coordinator.decided import Decided
from ductord.model.decision import Decision
from ductord.model.effects import Effect
from ductord.model.enums import CheckpointStatus, RunStatus, Verb
from ductord.model.fan_effects import AttachChildren, TellCheckpoint, TellParent
from ductord.model.inbox import ChildFact
from tests.coordinator.conftest import Ticker
from tests.coordinator.parents import begun, child_of, child_rows, end, over, pending
from tests.coordinator.waiters import blocked
from tests.support.books import TENANT, Books


async def _does(ticker: Ticker, run_id: str, *effects: Effect) -> Decided:
    """A decision of this run that is nothing but these effects."""
    decided = await ticker.decide(TENANT, run_id)
    return Decided(loaded=decided.loaded, decision=Decision(effects=effects))


async def _children(ticker: Ticker, run_id: str) -> tuple[ChildFact, ...]:
    return (await ticker.decide(TENANT, run_id)).loaded.inbox.children


async def _goes_on(books: Books, ticker: Ticker, child: str) -> str:
    """A child is continued as new; its successor."""
    await books.control(child, Verb.CONTINUE_AS_NEW)
    await ticker.drain()
    await books.report(child)
    await ticker.drain()
    return (await books.run(child)).continued_to_run_id


async def test_f5_an_end_is_told_with_it_and_shown_until_it_is_taken(books: Books, ticker: Ticker) -> None:
    """F5: the child's end and the word of it are one commit; the parent is woken once and shown how it ended until its tick has taken it."""
    parent = await begun(books, ticker, over("runs", '"tolerated_failures": 3'))
    await ticker.drain()
    await end(books, ticker, child_of(parent, 2))
    await end(books, ticker, child_of(parent, 0), code="NOT_FOUND")
    assert await pending(books, parent) == 2
    facts = await _children(ticker, parent)
    assert [(f.step_ref, f.attempt, f.item_index, f.run_id, f.status) for f in facts] == [
        ("s", 1, 2, child_of(parent, 2), RunStatus.COMPLETED),
        ("s", 1, 0, child_of(parent, 0), RunStatus.FAILED),
    ]
    assert facts[1].fault is not None
    assert facts[1].fault.code == "NOT_FOUND"
    assert facts == await _children(ticker, parent), "shown until it is taken"
    assert await ticker.commit(await ticker.decide(TENANT, parent)) == set()
    assert await _children(ticker, parent) == ()
    assert [row["applied_time"] is not None for row in await child_rows(books, parent)] == [True, False, True]
    await end(books, ticker, child_of(parent, 1))
    await ticker.drain()
    run = await books.settled(parent)
    assert (run.status, run.has_errors) == ("completed", True)


async def test_f5_told_again_changes_nothing(books: Books, ticker: Ticker) -> None:
    """F5: a second word of the same child, after it was taken or before, changes no row and wakes nobody."""
    parent = await begun(books, ticker, over("runs"))
    await ticker.drain()
    child = child_of(parent, 1)
    await end(books, ticker, child)
    before = await child_rows(books, parent)
    again = await _does(ticker, child, TellParent(status=RunStatus.CANCELLED))
    await books.owner.execute("delete from eec_workflow_wakeup")
    await ticker.commit(again)
    assert await child_rows(books, parent) == before
    assert await pending(books, parent) == 0


async def test_f5_nobody_waits_for_an_async_child(books: Books, ticker: Ticker) -> None:
    """F5: the end of an async child is written down, and wakes nobody."""
    parent = await begun(books, ticker, over("one", '"mode": "async"'))
    await ticker.drain()
    assert await books.status(parent) == "completed"
    await end(books, ticker, child_of(parent))
    (row,) = await child_rows(books, parent)
    assert (row["status"], row["sync"], row["applied_time"]) == ("completed", False, None)
    assert await pending(books, parent) == 0
    assert await _children(ticker, parent) == ()


async def test_f5_a_checkpoint_is_told_once_and_the_child_stays_open(books: Books, ticker: Ticker) -> None:
    """F5, G9: the word of a checkpoint ends the wait, not the child: its row is open until it has ended, and its end is no news."""
    child = (
        "step work action=noop:noop",
        "step more action=noop:noop",
        "work -success-> more",
        "checkpoint half: work",
    )
    parent = await begun(
        books,
        ticker,
        over("one", '"wait_for": "checkpoint:half"'),
        "step after action=noop:noop",
        "s -success-> after",
        child=child,
    )
    await ticker.drain()
    await end(books, ticker, child_of(parent))
    (fact,) = await _children(ticker, parent)
    assert (fact.status, fact.checkpoint) == (None, CheckpointStatus.REACHED)
    assert await ticker.commit(await ticker.decide(TENANT, parent)) == set()
    assert (await books.run(parent)).nodes[0].status == "succeeded"
    told = (await child_rows(books, parent))[0]["end_time"]
    await ticker.commit(
        await _does(ticker, child_of(parent), TellCheckpoint(name="half", status=CheckpointStatus.UNREACHABLE))
    )
    await end(books, ticker, child_of(parent))
    (row,) = await child_rows(books, parent)
    assert (row["status"], row["checkpoint_status"], row["end_time"]) == ("completed", "reached", told)
    assert await _children(ticker, parent) == ()


async def test_sw_03_a_child_that_goes_on_as_another_is_followed(books: Books, ticker: Ticker) -> None:
    """SW-03, F5: the row follows the successor, and the parent is told of its end under its id."""
    parent = await begun(books, ticker, over("one"))
    await ticker.drain()
    child = child_of(parent)
    successor = await _goes_on(books, ticker, child)
    (row,) = await child_rows(books, parent)
    assert (row["run_id"], str(row["first_run_id"]), row["status"]) == (successor, child, None)
    await end(books, ticker, successor, output='{"n": 7}')
    (fact,) = await _children(ticker, parent)
    assert (fact.run_id, fact.status) == (successor, RunStatus.COMPLETED)
    await ticker.drain()
    assert (await books.settled(parent)).status == "completed"


async def test_sw_03_a_cancel_reaches_the_live_successor(books: Books, ticker: Ticker, other_ticker: Ticker) -> None:
    """SW-03: the parent sends its cancel to the run that the child was when it looked; that has gone on in the same moment and hands the cancel on."""
    parent = await begun(books, ticker, over("one"))
    await ticker.drain()
    child = child_of(parent)
    await books.control(child, Verb.CONTINUE_AS_NEW, wake=False)
    await ticker.commit(await ticker.decide(TENANT, child))
    await books.report(child, wake=False)
    going_on = await ticker.decide(TENANT, child)
    await books.control(parent, Verb.CANCEL, wake=False)
    await other_ticker.commit(await other_ticker.decide(TENANT, parent))
    await ticker.commit(going_on)
    await ticker.drain()
    successor = (await books.run(child)).continued_to_run_id
    assert [await books.status(run_id) for run_id in (parent, child, successor)] == [
        "cancelled",
        "terminated",
        "cancelled",
    ]


def _taken_over(parent: str, other: str, *, redrive: bool = False) -> AttachChildren:
    return AttachChildren(
        step_ref="s",
        attempt=5,
        children=((0, child_of(parent)),),
        from_run_id=parent if parent != other else "",
        redrive=redrive,
        request_id="r",
    )


@pytest.mark.parametrize("first", ["end", "attach"])
async def test_rr_01_a_child_that_ends_while_it_is_attached_is_told(
    books: Books, other_books: Books, ticker: Ticker, other_ticker: Ticker, first: str
) -> None:
    """RR-01, C5: one coordinator ends a child, another attaches it to a reset run at the same moment; whoever comes second sees what the first has written."""
    parent = await begun(books, ticker, over("one"))
    await ticker.drain()
    other = await begun(books, ticker, over("one"))
    child = child_of(parent)
    await books.report(child, wake=False)
    ending = await ticker.decide(TENANT, child)
    attaching = await _does(other_ticker, other, _taken_over(parent, other))
    one, two = (ticker, other_ticker) if first == "end" else (other_ticker, ticker)
    before, after = (ending, attaching) if first == "end" else (attaching, ending)
    held = await _held(one, before)
    pending_commit = asyncio.create_task(two.commit(after))
    await blocked(other_books, pending_commit)
    await held.commit()
    assert await pending_commit == set()
    row = (await child_rows(books, other))[-1]
    assert (row["run_id"], row["attempt"], row["status"], row["applied_time"]) == (child, 5, "completed", None)
    assert await pending(books, other) >= 1


async def _held(ticker: Ticker, decided: Decided) -> Transaction:
    """A commit that has written everything and is not over yet."""
    transaction = ticker.connection.transaction()
    await transaction.start()
    assert await commit(ticker.connection, [decided], ticker.now, []) == set()
    return transaction


async def test_c5_a_child_that_has_gone_on_is_attached_where_it_is(books: Books, ticker: Ticker) -> None:
    """C5, F5: what is attached may have been continued, and its successor have ended: the row follows, and tells."""
    parent = await begun(books, ticker, over("one"))
    await ticker.drain()
    other = await begun(books, ticker, over("one"))
    child = child_of(parent)
    successor = await _goes_on(books, ticker, child)
    await end(books, ticker, successor, code="NOT_FOUND")
    await ticker.commit(await _does(ticker, other, _taken_over(parent, other)))
    row = (await child_rows(books, other))[-1]
    assert (row["run_id"], row["status"], row["error_code"]) == (successor, "failed", "NOT_FOUND")


async def test_c4_a_redriven_child_has_a_row_for_the_new_attempt(books: Books, ticker: Ticker) -> None:
    """C4, F4: attached to be redriven, a child gets a control under one id however often that is committed, and its old end stays told."""
    parent = await begun(books, ticker, over("runs", '"tolerated_failures": 0'), width=1)
    await ticker.drain()
    child = child_of(parent)
    await end(books, ticker, child, code="NOT_FOUND")
    await ticker.drain()
    assert await books.status(parent) == "failed"
    attach = await _does(ticker, parent, _taken_over(parent, parent, redrive=True))
    await ticker.commit(attach)
    await ticker.commit(attach)
    old, new = await child_rows(books, parent)
    assert (old["attempt"], old["status"], new["attempt"], new["status"]) == (1, "failed", 5, None)
    assert str(new["first_run_id"]) == child
    (intent,) = await books.owner.fetch("select verb, actor, reason from eec_workflow_intent where run_id = $1", child)
    assert tuple(intent) == ("redrive", f"run:{parent}", "its parent run is redriven")
    assert await pending(books, parent) == 0, "its old end is no news"


async def test_more_ends_than_a_tick_is_shown(books: Books, ticker: Ticker) -> None:
    """F1: of 1,200 children that have ended a tick is shown the first 1,000, and goes on at once; no timer is applied that is due after those."""
    ticker.limits = structs.replace(ticker.limits, children_per_tick=2_000)
    parent = await begun(books, ticker, over("runs"), width=1_200)
    await books.owner.execute(
        "update eec_workflow_child set status = 'completed', end_time = eec_now() - interval '1 hour' + item_index * interval '1 second'"
    )
    await books.owner.execute(
        "insert into eec_workflow_timer (tenant_id, run_id, kind, due_time) select 't', $1, 'run_timeout', eec_now() - interval '1 minute'",
        parent,
    )
    decided = await ticker.decide(TENANT, parent)
    assert [fact.item_index for fact in decided.loaded.inbox.children] == list(range(1_000))
    assert decided.loaded.inbox.timers == ()
    assert decided.unfinished
    await ticker.commit(decided)
    decided = await ticker.decide(TENANT, parent)
    assert (len(decided.loaded.inbox.children), len(decided.loaded.inbox.timers)) == (200, 1)
    assert not decided.unfinished
