"""What a decision turns out to need of its children: loaded when asked for, sized before it travels, and what evaluates much is decided apart (F1, F2, F6)."""

import asyncio
import threading
from typing import Any

import orjson
import pytest
from msgspec import structs

from ductord.coordinator import deciding
from ductord.coordinator.needs import load_needs
from ductord.coordinator.service import SERVICE
from ductord.coordinator.tick import Way, tick_alone
from ductord.engine.limits import LIMITS
from ductord.model.control import ControlBody
from ductord.model.enums import RunStatus, Verb
from ductord.model.fan import Gathered, GatheredChild, Kin, Workflow
from ductord.model.fault import Fault
from ductord.model.needs import GatheredNeed, KinNeed, Need, WorkflowNeed
from ductord.rpc.config import Settings
from ductord.rpc.host import hosting
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.parents import PAGE, begun, child_of, end, family, over
from tests.coordinator.workers import Workers
from tests.support.books import TENANT, Books, chain

GATHER = ('step g type=gather gather={"scatter_ref": "s"}', "s -done-> g")


async def _given(ticker: Ticker, run_id: str, need: Need) -> object:
    """The value of a need of this run."""
    loaded = (await ticker.decide(TENANT, run_id)).loaded
    given, beyond = await load_needs(ticker.connection, [(loaded, need)])
    assert not beyond
    return given[run_id][need]


async def test_d1_which_version_children_run(books: Books, ticker: Ticker) -> None:
    """D1: by number, or the highest; what is archived says so beside what it is; its tier and the schema of its input come along."""
    await books.release(family("page", *PAGE))
    await books.release(family("page", *PAGE, "tier bulk", 'input_schema {"type": "object"}'))
    run_id = await books.start(await books.publish(chain(1)))
    newest = await _given(ticker, run_id, WorkflowNeed("page", 0))
    first = await _given(ticker, run_id, WorkflowNeed("page", 1))
    assert isinstance(newest, Workflow)
    assert isinstance(first, Workflow)
    assert (newest.version, newest.tier, newest.input_schema, newest.problem) == (2, "bulk", {"type": "object"}, "")
    assert (first.version, first.tier, first.input_schema, first.definition_id) == (
        1,
        "standard",
        None,
        newest.definition_id,
    )
    await books.owner.execute("update eec_workflow_version set status = 'archived' where version = 2")
    assert await _given(ticker, run_id, WorkflowNeed("page", 0)) == structs.replace(newest, problem="archived")
    assert await _given(ticker, run_id, WorkflowNeed("page", 3)) == Workflow(problem="unknown_version")
    assert await _given(ticker, run_id, WorkflowNeed("pages", 3)) == Workflow(problem="unknown_family")


async def test_f4_children_as_they_stand(books: Books, ticker: Ticker) -> None:
    """F4, C4: of each index the latest; redrivable is what a redrive would be let do: not what is open, completed, being undone or was undone."""
    child = (
        'step work action=noop:noop compensation={"on_cancel": [{"action": "noop:noop"}]}',
        "step more action=noop:noop",
        "work -success-> more",
    )
    parent = await begun(books, ticker, over("runs"), width=5, child=child)
    await ticker.drain()
    await end(books, ticker, child_of(parent, 1), code="NOT_FOUND")
    await end(books, ticker, child_of(parent, 2))
    await books.control(child_of(parent, 2), Verb.CANCEL)
    await end(books, ticker, child_of(parent, 3))
    await end(books, ticker, child_of(parent, 3))
    await books.control(child_of(parent, 4), Verb.TERMINATE)
    await ticker.drain()
    await books.report(child_of(parent, 2))
    await ticker.drain()
    kin = [
        Kin(
            item_index=index,
            run_id=child_of(parent, index),
            first_run_id=child_of(parent, index),
            status=status,
            redrivable=index == 1,
        )
        for index, status in enumerate(
            (RunStatus.RUNNING, RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.COMPLETED, RunStatus.TERMINATED)
        )
    ]
    assert await _given(ticker, parent, KinNeed("s")) == tuple(kin)
    assert await _given(ticker, parent, KinNeed("s", since=2)) == ()
    other = await books.start(await books.publish(chain(1)))
    assert await _given(ticker, other, KinNeed("s", run_id=parent)) == (), "C5: the source is open"
    await books.owner.execute("update eec_workflow_run set status = 'failed' where run_id = $1", parent)
    assert await _given(ticker, other, KinNeed("s", run_id=parent)) == tuple(kin)


async def test_f2_what_inline_children_came_to(books: Books, ticker: Ticker, workers: Workers) -> None:
    """F2, SG-03: the last attempt of each, in order; over the limit the size alone, and nothing of it has travelled."""
    run_id = await begun(books, ticker, over("inline", settings="retry_max_attempts=2"), *GATHER, width=4)
    tasks = {task.key.item_index: task for task in await workers.lease()}
    await workers.fail(tasks[1], code="UNAVAILABLE")
    await workers.fail(tasks[2], code="NOT_FOUND")
    await ticker.drain()
    await workers.succeed(*await workers.lease(), output='{"n": 20}')
    await workers.succeed(tasks[3], output="null")
    need = GatheredNeed(step_ref="s", expected=4, runs=False, max_bytes=100)
    assert await _given(ticker, run_id, need) == Gathered(
        size=13,
        children=(
            GatheredChild(item_index=1, output={"n": 20}, open=True),
            GatheredChild(item_index=2, fault=Fault(code="NOT_FOUND", message="NOT_FOUND")),
            GatheredChild(item_index=3, output=None, open=True),
        ),
    )
    assert await _given(ticker, run_id, structs.replace(need, max_bytes=12)) == Gathered(size=13)
    assert await _given(ticker, run_id, structs.replace(need, expected=2)) == Gathered(
        size=9, children=(GatheredChild(item_index=1, output={"n": 20}, open=True),)
    )


async def test_f2_what_child_runs_came_to(books: Books, ticker: Ticker) -> None:
    """F2, F5: the value of the output expression, or leaf outputs by ref; a failure as the parent was told, though the child was redriven since."""
    parent = await begun(books, ticker, over("runs"), width=4)
    await ticker.drain()
    await end(books, ticker, child_of(parent, 0), output='{"n": 1}')
    await end(books, ticker, child_of(parent, 1), code="NOT_FOUND")
    await end(books, ticker, child_of(parent, 2))
    await books.owner.execute(
        "update eec_workflow_run set result_refs = null, result = '{\"n\": 9007199254740993}' where run_id = $1",
        child_of(parent, 2),
    )
    await books.control(child_of(parent, 1), Verb.REDRIVE, body=ControlBody())
    await ticker.tick()
    assert await books.status(child_of(parent, 1)) == "running"
    need = GatheredNeed(step_ref="s", expected=4, runs=True, max_bytes=1_000)
    found = await _given(ticker, parent, need)
    assert isinstance(found, Gathered)
    assert [(c.item_index, c.output, c.status) for c in found.children] == [
        (0, {"work": {"n": 1}}, "completed"),
        (1, None, "failed"),
        (2, {"n": 9007199254740993}, "completed"),
    ]
    fault = found.children[1].fault
    assert fault is not None
    assert fault.code == "child_failed"
    assert child_of(parent, 1) in fault.message
    assert found.size == len('{"n": 1}') + len('{"n": 9007199254740993}')
    assert await _given(ticker, parent, structs.replace(need, max_bytes=found.size - 1)) == Gathered(size=found.size)


async def test_l7_gathers_are_carried_a_few_at_a_time(books: Books, ticker: Ticker) -> None:
    """L7: twelve runs gather two megabytes each in one tick: more than it carries, so some wait for the next, and all get theirs."""
    version = await books.release(family("parent", over("inline"), *GATHER))
    runs = [await books.start(version, input_='{"xs": [1, 2]}') for _ in range(12)]
    await ticker.tick()
    await books.report(output=orjson.dumps({"x": "x" * 1_000_000}).decode())
    assert (await ticker.tick()).ended == 8
    assert (await ticker.tick()).ended == 4
    assert {await books.status(run_id) for run_id in runs} == {"completed"}
    sizes = await books.owner.fetch("select output_size from eec_workflow_step_attempt where step_ref = 'g'")
    assert {row["output_size"] // 1_000_000 for row in sizes} == {2}


async def test_f6_a_dear_decision_keeps_neither_the_loop_nor_other_runs_waiting(
    books: Books, ticker: Ticker, other_ticker: Ticker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F6: 5,000 elements are mapped by a run in a batch with others: those are committed at once, the run gets a tick to itself in a thread, and while it is at
    it the event loop turns and another coordinator ticks."""
    line = 'step d type=dataflow dataflow={"operation": "map", "items_expr": "TRIGGER.payload.xs", "expr": "[ITEM, ITEM].map(x, x * 2).map(y, y + INDEX)"}'
    version, plain = await books.release(family("parent", line)), await books.publish(chain(1))
    dear = await books.start(version, input_=f'{{"xs": {list(range(5_000))}}}')
    others = [await books.start(plain) for _ in range(3)]
    ticked = await ticker.tick()
    assert ([run for run, _ in ticked.alone], ticked.transitions) == ([(TENANT, dear)], 3)
    assert await books.status(dear) == "pending"
    assert (
        await books.owner.fetchval(
            "select count(*) from eec_workflow_wakeup where run_id = $1 and due_time > eec_now()", dear
        )
        == 1
    )
    ((run, way),) = ticked.alone
    begun, go_on, loop_thread = threading.Event(), threading.Event(), threading.get_ident()
    decide = deciding.decide  # type: ignore[attr-defined]  # taken over for this test

    def slowly(*given: Any) -> Any:
        if threading.get_ident() != loop_thread:
            begun.set()
            assert go_on.wait(60), "the event loop stands still"
        return decide(*given)

    monkeypatch.setattr(deciding, "decide", slowly)
    await books.report(others[0])
    alone = asyncio.create_task(tick_alone(ticker.connection, ticker.cache, LIMITS, run, way))
    assert await asyncio.to_thread(begun.wait, 60), "it is decided in a thread"
    assert (await other_ticker.drain()).ended == 1
    assert not alone.done()
    go_on.set()
    assert (await alone).ended == 1
    assert await books.status(dear) == "completed"
    assert await books.owner.fetchval("select count(*) from eec_workflow_wakeup where run_id = $1", dear) == 0
    output = orjson.loads(
        await books.owner.fetchval("select output::text from eec_workflow_step_attempt where step_ref = 'd'")
    )
    assert len(output["result"]) == 5_000


async def test_c9_a_dear_decision_that_raises_is_one_runs_fault(books: Books, ticker: Ticker) -> None:
    """C9: what a decision in a thread raises sets its own run aside."""
    run_id = await books.start(await books.publish(chain(1), text='{"family_slug": 5}'))
    ticked = await tick_alone(ticker.connection, ticker.cache, LIMITS, (TENANT, run_id), Way())
    assert (ticked.claimed, ticked.quarantined) == (1, 1)


async def test_a_small_decision_is_made_at_once(books: Books, ticker: Ticker) -> None:
    """F6: what evaluates little is decided in its batch."""
    line = 'step d type=dataflow dataflow={"operation": "map", "items_expr": "TRIGGER.payload.xs", "expr": "ITEM * 2"}'
    run_id = await books.start(await books.release(family("parent", line)), input_='{"xs": [1, 2, 3]}')
    ticked = await ticker.tick()
    assert (ticked.alone, ticked.ended) == ([], 1)
    assert await books.status(run_id) == "completed"


async def test_f6_the_service_gives_dear_runs_a_tick_to_themselves(database: Database, books: Books) -> None:
    """F6: through the coordinator's own loops, with what it counts; no wake-up is left behind."""
    settings = Settings(
        coordinator_database_url=database.dsn("coordinator"), grpc_address="127.0.0.1:0", http_address="off", poll_ms=20
    )
    line = 'step d type=dataflow dataflow={"operation": "map", "items_expr": "TRIGGER.payload.xs", "expr": "ITEM + 1"}'
    version = await books.release(family("parent", line))
    async with hosting([SERVICE], settings) as host:
        runs = [await books.start(version, input_=f'{{"xs": {list(range(1_000))}}}') for _ in range(3)]
        async with asyncio.timeout(60):
            while "ductor_tick_alone_seconds_count 3.0" not in host.metrics.exposition().decode():  # noqa: ASYNC110  # metrics have no event
                await asyncio.sleep(0.01)
    assert {await books.status(run_id) for run_id in runs} == {"completed"}
    assert await books.owner.fetchval("select count(*) from eec_workflow_wakeup") == 0
