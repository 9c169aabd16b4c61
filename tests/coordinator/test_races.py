"""Races as rows: with the win all that its losers had open goes in the same commit, and nothing that comes in between is lost (ruling G7)."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ductord.coordinator.sweep import Net, watch
from ductord.db.pool import open_pool
from ductord.model.enums import NodeStatus, SignalVerb, SkipReason, Verb
from ductord.model.run import Node
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.waiters import Publisher, blocked, say, waiting
from tests.coordinator.workers import Workers
from tests.support.books import TENANT, Books

RACE = (
    "step a action=noop:noop",
    "step b action=noop:noop",
    "step c action=noop:noop",
    'step e type=wait wait={"event": {"event_name": "paid", "correlation_key": "\\"o1\\""}, "timeout_ms": 60000}',
    'step s type=event_set event_set={"correlation_key": "\\"o1\\"", "timeout_ms": 60000,'
    ' "requirements": [{"name": "x", "event_name": "sent"}, {"name": "y", "event_name": "paid"}]}',
    'step p type=approval approval={"timeout_ms": 60000}',
    'step t type=wait wait={"duration": "1h"}',
    "step first type=race",
    "a -success-> first",
    "b -success-> first",
    "c -success-> first",
    "e -success-> first",
    "s -success-> first",
    "p -success-> first",
    "t -success-> first",
)
OPEN_WAITS = "select count(*) from eec_workflow_wait where close_time is null"
TIMERS = "select array_agg(kind || ' ' || step_ref order by kind, step_ref) from eec_workflow_timer"
UNAPPLIED = "select count(*) from eec_workflow_receipt where applied_time is null"


@pytest.fixture
async def publisher(database: Database) -> AsyncIterator[Publisher]:
    pool = await open_pool(database.dsn("signals"), "signals", max_size=2)
    yield Publisher(pool)
    await pool.close()


async def _begun(books: Books, ticker: Ticker) -> str:
    run_id = await books.start(await books.publish(waiting(*RACE)))
    await ticker.drain()
    assert await books.owner.fetchval(OPEN_WAITS) == 3
    assert await books.owner.fetchval(TIMERS) == ["wait t", "wait_timeout e", "wait_timeout p", "wait_timeout s"]
    return run_id


async def _nodes(books: Books, run_id: str) -> dict[str, Node]:
    run = await books.settled(run_id)
    return dict(zip(("a", "b", "c", "e", "s", "p", "t", "first"), run.nodes, strict=True))


async def test_g7_what_losers_had_open_goes_with_the_win(
    books: Books, ticker: Ticker, publisher: Publisher, workers: Workers
) -> None:
    """G7: one commit writes the winner, the race, and the end of every wait; takes the timers and the subscriptions, and asks those at work to stop. A task
    that nobody had taken is over at once."""
    run_id = await _begun(books, ticker)
    assert (await publisher.publish("sent", "o1")).matched == 1
    await ticker.drain()
    winner, loser = await workers.lease(2)
    [idle] = {"a", "b", "c"} - {winner.key.step_ref, loser.key.step_ref}
    await workers.succeed(winner)
    await ticker.tick()
    nodes = await _nodes(books, run_id)
    assert nodes["first"].status is NodeStatus.SUCCEEDED
    for ref in "espt":
        assert (nodes[ref].status, nodes[ref].skip_reason) == (NodeStatus.CANCELLED, SkipReason.RACE_LOST)
    writers = await books.owner.fetch(
        "select xmin::text from eec_workflow_wait union select xmin::text from eec_workflow_run where run_id = $1"
        " union (select xmin::text from eec_workflow_transition where run_id = $1 order by seq desc limit 1)"
        " union select xmin::text from eec_workflow_step_attempt",
        run_id,
    )
    assert len(writers) == 1, "all in one commit"
    assert await books.owner.fetchval(OPEN_WAITS) == 0
    grace = f"node_grace {loser.key.step_ref}"
    assert await books.owner.fetchval(TIMERS) == sorted([grace, f"node_grace {idle}"])
    await ticker.drain()
    assert await books.owner.fetchval(TIMERS) == [grace]
    await workers.succeed(loser, output='{"late": true}')
    await ticker.drain()
    nodes = await _nodes(books, run_id)
    assert (nodes[loser.key.step_ref].status, nodes[idle].status) == (NodeStatus.SUCCEEDED, NodeStatus.CANCELLED)
    assert await books.status(run_id) == "completed"
    assert await books.owner.fetchval(TIMERS) is None
    assert await books.owner.fetchval(UNAPPLIED) == 0
    assert await books.folded(run_id) == await books.run(run_id)


async def test_g7_an_event_that_a_win_does_not_know_of(
    books: Books, ticker: Ticker, publisher: Publisher, workers: Workers
) -> None:
    """G7, E3: the race is won, and before the tick commits an event is counted for a loser: nothing of the decision is written. The next tick knows both:
    the first of them has won, and the other has succeeded."""
    run_id = await _begun(books, ticker)
    [a, *_] = await workers.lease()
    await workers.succeed(a)
    decided = await ticker.decide(TENANT, run_id)
    assert (await publisher.publish("paid", "o1")).matched == 2
    assert await ticker.commit(decided) == {run_id}
    assert await books.owner.fetchval(OPEN_WAITS) == 3
    assert (await _nodes(books, run_id))["first"].status is NodeStatus.PENDING
    await ticker.drain()
    nodes = await _nodes(books, run_id)
    assert (nodes["e"].status, nodes["s"].status) == (NodeStatus.SUCCEEDED, NodeStatus.CANCELLED)
    winner = "select output ->> 'winner' from eec_workflow_step_attempt where step_ref = 'first'"
    assert await books.owner.fetchval(winner) == "a"
    assert await books.owner.fetchval(UNAPPLIED) == 0


async def test_g7_whoever_publishes_to_a_loser_waits_for_the_win(
    books: Books, ticker: Ticker, publisher: Publisher, workers: Workers
) -> None:
    """G7, E3: an event meets the commit of the win: it waits for it, and counts for nobody."""
    run_id = await _begun(books, ticker)
    [a, *_] = await workers.lease()
    await workers.succeed(a)
    decided = await ticker.decide(TENANT, run_id)
    async with ticker.connection.transaction():
        assert await ticker.commit(decided) == set()
        publishing = asyncio.create_task(publisher.publish("paid", "o1"))
        await blocked(books, publishing)
    assert (await publishing).matched == 0
    assert await books.owner.fetchval("select count(*) from eec_workflow_receipt") == 0


async def test_g7_two_who_win_at_once(books: Books, ticker: Ticker, other_ticker: Ticker, workers: Workers) -> None:
    """G7: two coordinators have each seen another winner: the one that commits has the race, the other's decision is void, and its racer has succeeded."""
    run_id = await _begun(books, ticker)
    [_, b, _] = await workers.lease()
    await workers.succeed(b)
    first = await ticker.decide(TENANT, run_id)
    await say(books, run_id, SignalVerb.APPROVE, "p", request_id="yes")
    second = await other_ticker.decide(TENANT, run_id)
    assert await ticker.commit(first) == set()
    assert await other_ticker.commit(second) == {run_id}
    await ticker.drain()
    nodes = await _nodes(books, run_id)
    assert (nodes["b"].status, nodes["p"].status) == (NodeStatus.SUCCEEDED, NodeStatus.CANCELLED)
    assert await books.owner.fetchval("select status from eec_workflow_signal") == "ignored"
    races = "select count(*) from eec_workflow_transition t, json_array_elements(t.events) e where e ->> 'step_ref' = 'first' and e ->> 'type' = 'node_ended'"
    assert await books.owner.fetchval(races) == 1


async def test_g7_c2_the_net_knows_that_no_pause_holds_a_grace(books: Books, ticker: Ticker, workers: Workers) -> None:
    """G7, C2: the wake-up of a loser's grace in a paused run is lost: the net wakes the run again, and the loser is revoked."""
    run_id = await _begun(books, ticker)
    [a, *_] = await workers.lease()
    await workers.succeed(a)
    await ticker.drain()
    await books.control(run_id, Verb.PAUSE)
    await ticker.drain()
    assert await books.status(run_id) == "paused"
    await books.owner.execute(
        "update eec_workflow_timer set due_time = eec_now() - interval '1 second', woken_time = eec_now()"
    )
    assert not (await Net(60_000).round(ticker.connection)).woke, "not before the period is over"
    assert (await Net(0).round(ticker.connection)).repaired["timers"] == 2
    assert (await watch(ticker.connection)).timers == 2
    await ticker.drain()
    assert await books.owner.fetchval(TIMERS) is None
    nodes = await _nodes(books, run_id)
    assert (nodes["b"].status, nodes["c"].status) == (NodeStatus.CANCELLED, NodeStatus.CANCELLED)
    assert await books.status(run_id) == "paused"
    await books.control(run_id, Verb.RESUME)
    await ticker.drain()
    assert await books.status(run_id) == "completed"


async def test_g7_c2_what_a_pause_held_for_a_loser_goes_with_it(
    books: Books, ticker: Ticker, publisher: Publisher, workers: Workers
) -> None:
    """G7, C2, E3: an event that came to a paused wait, and word that came to a paused approval, are held until somebody else wins: they are put away with the
    wait, and the net finds nothing."""
    run_id = await _begun(books, ticker)
    for ref in ("e", "s", "p"):
        await books.control(run_id, Verb.PAUSE_NODE, step_ref=ref, request_id=f"hold-{ref}")
    await ticker.drain()
    assert (await publisher.publish("paid", "o1")).matched == 2
    await say(books, run_id, SignalVerb.APPROVE, "p", request_id="yes")
    await ticker.drain()
    assert await books.owner.fetchval(UNAPPLIED) == 2
    await workers.succeed((await workers.lease())[0])
    await ticker.drain()
    nodes = await _nodes(books, run_id)
    assert {nodes[ref].skip_reason for ref in "espt"} == {SkipReason.RACE_LOST}
    assert await books.owner.fetchval(UNAPPLIED) == 0
    assert await books.owner.fetchval(OPEN_WAITS) == 0
    assert await books.owner.fetchval("select status from eec_workflow_signal") == "ignored"
    assert not (await Net(0).round(ticker.connection)).woke
