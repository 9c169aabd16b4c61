"""WatchRun: a run followed to its end: state, changes, resumption, successors, outages, callers that leave (contract; F1 to F5, C6, TN-01, PG-01)."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import grpc
import pytest
from grpc.aio import EOF  # type: ignore[attr-defined]  # not in the stubs

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.db.embedded import EmbeddedPostgres
from ductord.db.ids import new_id
from ductord.db.migrate import migrate
from ductord.model.enums import NodeStatus, Verb
from ductord.model.fan import Fan
from ductord.model.fan_events import ChildFailed, ChildrenBegun, ChildrenCancelled, ChildrenSucceeded
from ductord.model.fault import Fault
from ductord.model.run import Node
from ductord.reads.service import SERVICE as READS
from ductord.rpc.errors import refusal_from
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.reads.fans import Rows, fanning
from tests.support.books import TENANT, Books, chain
from tests.support.edges import Catalogue, Edges, as_tenant, serving

META = as_tenant(TENANT)
STATE, CHANGE, HEARTBEAT = reads.WATCH_KIND_STATE, reads.WATCH_KIND_CHANGE, reads.WATCH_KIND_HEARTBEAT


class Watch:
    """One open stream."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def next(self, *, beats: bool = False) -> reads.WatchRunResponse:
        """The next message; heartbeats are passed over unless asked for."""
        async with asyncio.timeout(20):
            while True:
                message: Any = await self.call.read()
                assert message is not EOF, "the stream has ended"
                if beats or message.kind != HEARTBEAT:
                    return message  # type: ignore[no-any-return]

    async def until(self, holds: Callable[[reads.WatchRunResponse], bool]) -> list[reads.WatchRunResponse]:
        """Messages up to the first that satisfies `holds`."""
        found = [await self.next()]
        while not holds(found[-1]):
            found.append(await self.next())
        return found

    async def over(self) -> None:
        """Nothing more comes."""
        async with asyncio.timeout(20):
            assert await self.call.read() is EOF


def _watch(edges: Edges, run_id: str, *, tenant: str = TENANT, **fields: Any) -> Watch:
    fields = {"min_interval_ms": 20} | fields
    return Watch(edges.reads.WatchRun(reads.WatchRunRequest(run_id=run_id, **fields), metadata=as_tenant(tenant)))


async def _reason(watch: Watch) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await watch.next()
    return refusal_from(raised.value).reason


def _told(messages: list[reads.WatchRunResponse], after: int) -> None:
    """Every transition after `after` is told once, in order."""
    for message in messages:
        assert (message.kind, message.first_seq) == (CHANGE, after + 1)
        after = message.seq


def _statuses(message: reads.WatchRunResponse) -> dict[str, int]:
    return {node.step_ref: node.status for node in message.nodes}


async def _step(ticker: Ticker, books: Books) -> None:
    await books.report()
    await ticker.drain()


async def test_a_run_from_before_its_begin_to_its_end(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """The state first, then each transition with the nodes that it changed, then the end, and the stream is over."""
    run_id = (await edges.start(await catalogue.published(chain(2)))).run_id
    watch = _watch(edges, run_id)
    first = await watch.next()
    assert (first.kind, first.seq, first.summary.status) == (STATE, 0, run_pb2.RUN_STATUS_PENDING)
    assert _statuses(first) == {"s0": run_pb2.NODE_STATUS_PENDING, "s1": run_pb2.NODE_STATUS_PENDING}
    await ticker.drain()
    begun = await watch.next()
    assert _statuses(begun) == {"s0": run_pb2.NODE_STATUS_RUNNING}
    await _step(ticker, books)
    second = await watch.next()
    assert _statuses(second) == {"s0": run_pb2.NODE_STATUS_SUCCEEDED, "s1": run_pb2.NODE_STATUS_RUNNING}
    await _step(ticker, books)
    last = await watch.next()
    assert _statuses(last) == {"s1": run_pb2.NODE_STATUS_SUCCEEDED}
    assert (last.ended, last.summary.status) == (True, run_pb2.RUN_STATUS_COMPLETED)
    assert last.HasField("event_time")
    assert last.metadata.HasField("fetched_at")
    _told([begun, second, last], 0)
    await watch.over()


async def test_going_on_where_it_was_left(edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker) -> None:
    """`after_seq`: nothing is lost, nothing told twice; with nothing new the stream says at once that it lives; after the end it says that it was."""
    run_id = (await edges.start(await catalogue.published(chain(3)))).run_id
    await ticker.drain()
    watch = _watch(edges, run_id)
    seen = (await watch.next()).seq
    watch.call.cancel()
    await _step(ticker, books)
    await _step(ticker, books)
    again = _watch(edges, run_id, after_seq=seen)
    told = await again.next()
    _told([told], seen)
    assert set(_statuses(told)) == {"s0", "s1", "s2"}
    idle = _watch(edges, run_id, after_seq=told.seq)
    assert (await idle.next(beats=True)).kind == HEARTBEAT
    await _step(ticker, books)
    for stream in (again, idle):
        end = await stream.next()
        _told([end], told.seq)
        assert end.ended
        await stream.over()
    after = _watch(edges, run_id, after_seq=end.seq)
    known = await after.next()
    assert (known.kind, known.seq, known.ended, len(known.nodes)) == (CHANGE, end.seq, True, 0)
    await after.over()
    whole = _watch(edges, run_id)
    assert (await whole.next()).ended
    await whole.over()


async def test_heartbeats_while_nothing_happens(edges: Edges, catalogue: Catalogue, ticker: Ticker) -> None:
    run_id = (await edges.start(await catalogue.published())).run_id
    await ticker.drain()
    watch = _watch(edges, run_id, heartbeat_ms=100)
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
    watch = _watch(edges, rows.run_id, min_interval_ms=400)
    state = await watch.next()
    (fan,) = [node.fan for node in state.nodes if node.step_ref == "s0"]
    assert (fan.expected, fan.begun, fan.open) == (1000, 1000, 1000)
    for index in range(300):
        await rows.moves(ChildrenSucceeded(step_ref="s0", children=((index, 1),)), s0=_node(index + 1))
    messages = await watch.until(lambda message: message.seq == 301)
    _told(messages, 1)
    assert len(messages) < 30
    assert [node.step_ref for message in messages for node in message.nodes] == ["s0"] * len(messages)
    assert messages[-1].nodes[0].fan.succeeded == 300
    assert sum(message.children_ended for message in messages) == 300
    assert all(len(message.children) == min(message.children_ended, 100) for message in messages)


async def test_the_ends_of_children_by_name(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    rows = await _fanned(edges, catalogue, owner)
    watch = _watch(edges, rows.run_id)
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
    back = await _watch(edges, rows.run_id, after_seq=1).next()
    assert (back.kind, back.first_seq, back.seq, len(back.nodes)) == (STATE, 0, 502, 2)


async def test_a_history_of_a_newer_release_is_told_as_state(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    rows = await _fanned(edges, catalogue, owner)
    watch = _watch(edges, rows.run_id)
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
    end = await _watch(edges, run_id).next()
    assert (end.ended, end.summary.status, end.error.code) == (True, run_pb2.RUN_STATUS_FAILED, "NOT_FOUND")
    await books.control(run_id, Verb.REDRIVE)
    await ticker.drain()
    again = await _watch(edges, run_id, after_seq=end.seq).next()
    assert (again.kind, again.ended, again.summary.status) == (STATE, False, run_pb2.RUN_STATUS_RUNNING)


async def test_a_successor_is_followed_where_that_is_wanted_c6(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """C6: the end of the run, then the state of the one that continues it, and its end; without `follow` the stream is over."""
    run_id = (await edges.start(await catalogue.published(chain(1)))).run_id
    await ticker.drain()
    following, not_following = _watch(edges, run_id, follow=True), _watch(edges, run_id)
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
        await _step(ticker, books)
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
    watch = _watch(edges, run_id)
    assert not (await watch.next()).ended
    await owner.execute(
        "update eec_workflow_run set compensation_status = 'done', record_version = 2 where run_id = $1", run_id
    )
    assert (await watch.next()).ended
    await watch.over()


async def test_many_streams_hold_no_connection(
    database: Database, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """PG-01: fifty streams that wait and a pool of one: other calls are served, and all hear of the end at once."""
    async with serving(database, [TRIGGER, READS], pool_max_size=1) as edges:
        run_id = (await edges.start(await catalogue.published(chain(1)))).run_id
        await ticker.drain()
        streams = [_watch(edges, run_id) for _ in range(50)]
        for stream in streams:
            await stream.next()
        for _ in range(20):
            assert await edges.reads.GetRun(reads.GetRunRequest(run_id=run_id), metadata=META, timeout=10)
        assert "ductor_watches 50.0" in edges.host.metrics.exposition().decode()
        await _step(ticker, books)
        for stream in streams:
            assert (await stream.next()).ended
            await stream.over()
        await _gone(edges)


async def _gone(edges: Edges) -> None:
    async with asyncio.timeout(10):
        while "ductor_watches 0.0" not in edges.host.metrics.exposition().decode():  # noqa: ASYNC110  # what a call that is over leaves
            await asyncio.sleep(0.01)


async def test_a_caller_that_leaves_leaves_nothing_behind(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    run_id = (await edges.start(await catalogue.published(chain(1)))).run_id
    await ticker.drain()
    streams = [_watch(edges, run_id) for _ in range(5)]
    for stream in streams:
        await stream.next()
        stream.call.cancel()
    await _gone(edges)
    await _step(ticker, books)
    assert await books.status(run_id) == "completed"


async def test_without_hints_and_with_lost_connections_pg_01(
    database: Database, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """PG-01, PG-02: the server ends every connection of the service again and again, hints are off: the stream goes on, told once each."""
    async with serving(database, [TRIGGER, READS], notify=False) as edges:
        run_id = (await edges.start(await catalogue.published(chain(4)))).run_id
        watch = _watch(edges, run_id)
        messages = [await watch.next()]
        await ticker.drain()
        for _ in range(4):
            await owner.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'ductor_reads' and datname = current_database()"
            )
            await _step(ticker, books)
        messages += await watch.until(lambda message: message.ended)
        _told(messages[1:], 0)
        await watch.over()


async def test_tn01_and_bad_requests(edges: Edges, catalogue: Catalogue) -> None:
    """TN-01: a foreign run is none; what is asked for is judged before the first message."""
    run_id = (await edges.start(await catalogue.published())).run_id
    for watch in (_watch(edges, run_id, tenant="other"), _watch(edges, new_id()), _watch(edges, "nonsense")):
        assert await _reason(watch) == "RUN_NOT_FOUND"
    assert await _reason(_watch(edges, "")) == "FIELD_REQUIRED"
    bad: list[dict[str, Any]] = [
        {"after_seq": -1}, {"min_interval_ms": 19}, {"min_interval_ms": 60_001}, {"heartbeat_ms": -1},
    ]  # fmt: skip
    for fields in bad:
        assert await _reason(_watch(edges, run_id, **fields)) == "FIELD_INVALID"


async def test_more_streams_than_a_process_takes(database: Database, catalogue: Catalogue) -> None:
    """The other half of the calls that it takes is left to calls that end."""
    async with serving(database, [TRIGGER, READS], max_calls=4) as edges:
        run_id = (await edges.start(await catalogue.published())).run_id
        streams = [_watch(edges, run_id) for _ in range(2)]
        for stream in streams:
            await stream.next()
        assert await _reason(_watch(edges, run_id)) == "OVERLOADED"
        assert await edges.reads.GetRun(reads.GetRunRequest(run_id=run_id), metadata=META, timeout=10)


async def test_a_process_that_stops_says_so(database: Database, catalogue: Catalogue) -> None:
    """KB-01: streams end with the code of a call that may be repeated, and do not hold up the stop."""
    async with serving(database, [TRIGGER, READS]) as edges:
        run_id = (await edges.start(await catalogue.published())).run_id
        watch = _watch(edges, run_id)
        await watch.next()
        reason = asyncio.create_task(_reason(watch))
        async with asyncio.timeout(10):
            await edges.host._stop()
            assert await reason == "SERVICE_DRAINING"


@pytest.fixture
def restartable() -> Iterator[EmbeddedPostgres]:
    """A server of the test's own, to be stopped and started."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-test-"))
    folder.chmod(0o711)
    server = EmbeddedPostgres(folder)  # with fsync: what it said it has written outlives it
    server.start()
    try:
        yield server
    finally:
        server.stop(immediate=True)
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def test_a_database_that_restarts_pg_01(restartable: EmbeddedPostgres) -> None:
    """PG-01: the server is stopped hard and started again: the stream beats on, and goes on where it was."""
    restartable.sql("create database watched")
    owner_dsn = restartable.dsn("watched")
    await migrate(owner_dsn)
    database = Database(server=restartable, name="watched")
    async with serving(database, [TRIGGER, READS]) as edges:
        async with _connected(owner_dsn) as owner, _connected(database.dsn("coordinator")) as connection:
            run_id = (await edges.start(await Catalogue(owner).published(chain(1)))).run_id
            await Ticker(connection).drain()
        watch = _watch(edges, run_id, heartbeat_ms=100)
        seq = (await watch.next()).seq
        await asyncio.to_thread(restartable.stop, immediate=True)
        for _ in range(3):
            assert (await watch.next(beats=True)).kind == HEARTBEAT
        await asyncio.to_thread(restartable.start)
        async with _connected(owner_dsn) as owner, _connected(database.dsn("coordinator")) as connection:
            await _step(Ticker(connection), Books(owner))
        told = await watch.until(lambda message: message.ended)
        _told(told, seq)
        await watch.over()
