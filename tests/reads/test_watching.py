"""WatchRun: a run followed to its end: state, changes, resumption, successors (contract; F1 to F5, C6, C7)."""

import asyncio

import asyncpg

from ductor.workflow.v1 import run_pb2
from ductord.db.ids import new_id
from ductord.model.enums import NodeStatus, Verb
from ductord.model.fan import Fan
from ductord.model.fan_events import ChildFailed, ChildrenBegun, ChildrenCancelled, ChildrenSucceeded
from ductord.model.fault import Fault
from ductord.model.run import Node
from tests.coordinator.conftest import Ticker
from tests.reads.fans import Rows, fanning
from tests.reads.watches import CHANGE, HEARTBEAT, STATE, are_told, goes_on, statuses, watched
from tests.support.books import Books, chain
from tests.support.edges import Catalogue, Edges


async def test_a_run_from_before_its_begin_to_its_end(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """The state first, then each transition with the nodes that it changed, then the end, and the stream is over."""
    run_id = (await edges.start(await catalogue.published(chain(2)))).run_id
    watch = watched(edges, run_id)
    first = await watch.next()
    assert (first.kind, first.seq, first.summary.status) == (STATE, 0, run_pb2.RUN_STATUS_PENDING)
    assert statuses(first) == {"s0": run_pb2.NODE_STATUS_PENDING, "s1": run_pb2.NODE_STATUS_PENDING}
    await ticker.drain()
    begun = await watch.next()
    assert statuses(begun) == {"s0": run_pb2.NODE_STATUS_RUNNING}
    await goes_on(ticker, books)
    second = await watch.next()
    assert statuses(second) == {"s0": run_pb2.NODE_STATUS_SUCCEEDED, "s1": run_pb2.NODE_STATUS_RUNNING}
    await goes_on(ticker, books)
    last = await watch.next()
    assert statuses(last) == {"s1": run_pb2.NODE_STATUS_SUCCEEDED}
    assert (last.ended, last.summary.status) == (True, run_pb2.RUN_STATUS_COMPLETED)
    assert last.HasField("event_time")
    assert last.metadata.HasField("fetched_at")
    are_told([begun, second, last], 0)
    await watch.over()


async def test_going_on_where_it_was_left(edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker) -> None:
    """`after_seq`: nothing is lost, nothing told twice; with nothing new the stream says at once that it lives; after the end it says that it was."""
    run_id = (await edges.start(await catalogue.published(chain(3)))).run_id
    await ticker.drain()
    watch = watched(edges, run_id)
    seen = (await watch.next()).seq
    watch.call.cancel()
    await goes_on(ticker, books)
    await goes_on(ticker, books)
    again = watched(edges, run_id, after_seq=seen)
    told = await again.next()
    are_told([told], seen)
    assert set(statuses(told)) == {"s0", "s1", "s2"}
    idle = watched(edges, run_id, after_seq=told.seq)
    assert (await idle.next(beats=True)).kind == HEARTBEAT
    await goes_on(ticker, books)
    for stream in (again, idle):
        end = await stream.next()
        are_told([end], told.seq)
        assert end.ended
        await stream.over()
    after = watched(edges, run_id, after_seq=end.seq)
    known = await after.next()
    assert (known.kind, known.seq, known.ended, len(known.nodes)) == (CHANGE, end.seq, True, 0)
    await after.over()
    whole = watched(edges, run_id)
    assert (await whole.next()).ended
    await whole.over()


async def test_heartbeats_while_nothing_happens(edges: Edges, catalogue: Catalogue, ticker: Ticker) -> None:
    run_id = (await edges.start(await catalogue.published())).run_id
    await ticker.drain()
    watch = watched(edges, run_id, heartbeat_ms=100)
    seq = (await watch.next()).seq
    for _ in range(3):
        beat = await watch.next(beats=True)
        assert (beat.kind, beat.run_id, beat.seq, beat.HasField("summary")) == (HEARTBEAT, run_id, seq, False)


async def _fanned(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> Rows:
    run_id = (await edges.start(await catalogue.published(fanning()))).run_id
    rows = Rows(owner, run_id)
    await rows.stands(s0=_node(0))
    return rows


def _node(succeeded: int, failed: int = 0, cancelled: int = 0) -> Node:
    ended = succeeded + failed + cancelled
    fan = Fan(expected=1000, next=1000, open=1000 - ended, succeeded=succeeded, failed=failed, cancelled=cancelled)
    return Node(status=NodeStatus.RUNNING, attempt=1, fan=fan)


async def test_items_show_as_counters_that_are_told_together_f1(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """F1, SG-05: hundreds of transitions of one fan-out within an interval are a few messages; each has the node once, with where it stands then."""
    rows = await _fanned(edges, catalogue, owner)
    clock = asyncio.get_running_loop().time
    begin = clock()
    watch = watched(edges, rows.run_id, min_interval_ms=400)
    state = await watch.next()
    (fan,) = [node.fan for node in state.nodes if node.step_ref == "s0"]
    assert (fan.expected, fan.begun, fan.open) == (1000, 1000, 1000)
    for index in range(300):
        await rows.moves(ChildrenSucceeded(step_ref="s0", children=((index, 1),)), s0=_node(index + 1))
    messages = await watch.until(lambda message: message.seq == 301)
    are_told(messages, 1)
    assert len(messages) <= (clock() - begin) / 0.4 + 2, "one in each interval"
    assert len(messages) < 150
    assert [node.step_ref for message in messages for node in message.nodes] == ["s0"] * len(messages)
    assert messages[-1].nodes[0].fan.succeeded == 300
    assert sum(message.children_ended for message in messages) == 300
    assert all(len(message.children) == min(message.children_ended, 100) for message in messages)


async def test_the_ends_of_children_by_name(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    rows = await _fanned(edges, catalogue, owner)
    watch = watched(edges, rows.run_id)
    await watch.next()
    child, fault = new_id(), Fault(code="child_failed", message="it broke")
    await rows.moves(
        ChildrenBegun(step_ref="s0", first=0, count=3),
        ChildrenSucceeded(step_ref="s0", children=((1, 1), (0, 1))),
        ChildFailed(step_ref="s0", item_index=2, fault=fault, run_id=child),
        ChildrenCancelled(step_ref="s0", children=((7, 1),)),
        s0=_node(2, 1, 1),
    )
    told = await watch.next()
    assert [(c.step_ref, c.item_index, c.status, c.run_id, c.error.message) for c in told.children] == [
        ("s0", 1, run_pb2.NODE_STATUS_SUCCEEDED, "", ""),
        ("s0", 0, run_pb2.NODE_STATUS_SUCCEEDED, "", ""),
        ("s0", 2, run_pb2.NODE_STATUS_FAILED, child, "it broke"),
        ("s0", 7, run_pb2.NODE_STATUS_CANCELLED, "", ""),
    ]
    assert told.children_ended == 4


async def test_who_was_away_for_long_gets_the_state(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    rows = await _fanned(edges, catalogue, owner)
    await owner.execute("update eec_workflow_run set record_version = 502 where run_id = $1", rows.run_id)
    back = await watched(edges, rows.run_id, after_seq=1).next()
    assert (back.kind, back.first_seq, back.seq, len(back.nodes)) == (STATE, 0, 502, 2)


async def test_a_history_of_a_newer_release_is_told_as_state(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    rows = await _fanned(edges, catalogue, owner)
    watch = watched(edges, rows.run_id)
    await watch.next()
    await rows.moves(ChildrenBegun(step_ref="s0", first=0, count=1), s0=_node(0))
    await watch.next()
    await owner.execute(
        "with moved as (update eec_workflow_run set record_version = record_version + 1 where run_id = $1 returning *)"
        " insert into eec_workflow_transition (tenant_id, run_id, seq, at, events)"
        """ select tenant_id, run_id, record_version, now(), '[{"type": "of_tomorrow", "what": 1}]' from moved""",
        rows.run_id,
    )
    assert (await watch.next()).kind == STATE


async def test_a_redrive_is_told_as_state_c4(edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker) -> None:
    """C4: it changes nodes that its event does not name one by one; whoever watched the end watches anew, after it."""
    run_id = (await edges.start(await catalogue.published(chain(2)))).run_id
    await ticker.drain()
    await books.report(outcome="failed", code="NOT_FOUND")
    await ticker.drain()
    end = await watched(edges, run_id).next()
    assert (end.ended, end.summary.status, end.error.code) == (True, run_pb2.RUN_STATUS_FAILED, "NOT_FOUND")
    await books.control(run_id, Verb.REDRIVE)
    await ticker.drain()
    again = await watched(edges, run_id, after_seq=end.seq).next()
    assert (again.kind, again.ended, again.summary.status) == (STATE, False, run_pb2.RUN_STATUS_RUNNING)


async def test_a_successor_is_followed_where_that_is_wanted_c6(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """C6: the end of the run, then the state of the one that continues it, and its end; without `follow` the stream is over."""
    run_id = (await edges.start(await catalogue.published(chain(1)))).run_id
    await ticker.drain()
    following, not_following = watched(edges, run_id, follow=True), watched(edges, run_id)
    for watch in (following, not_following):
        assert (await watch.next()).kind == STATE
    await books.control(run_id, Verb.CONTINUE_AS_NEW)
    while await books.status(run_id) == "running":
        await ticker.tick()
    for watch in (following, not_following):
        *_, end = await watch.until(lambda message: message.ended)
        assert end.summary.close_reason == "continued_as_new"
    await not_following.over()
    successor = await following.next()
    assert (successor.kind, successor.run_id) == (STATE, end.summary.continued_to_run_id)
    while await books.status(successor.run_id) in ("pending", "running"):
        await goes_on(ticker, books)
    *_, last = await following.until(lambda message: message.ended)
    assert last.run_id == successor.run_id
    await following.over()


async def test_what_is_still_owed_is_followed_too_c7(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """C7: a run that has ended and unwinds still moves."""
    run_id = (await edges.start(await catalogue.published(chain(1)))).run_id
    rows = Rows(owner, run_id)
    await rows.stands("failed")
    await owner.execute("update eec_workflow_run set compensation_status = 'running' where run_id = $1", run_id)
    watch = watched(edges, run_id)
    assert not (await watch.next()).ended
    await owner.execute(
        "update eec_workflow_run set compensation_status = 'done', record_version = 2 where run_id = $1", run_id
    )
    assert (await watch.next()).ended
    await watch.over()
