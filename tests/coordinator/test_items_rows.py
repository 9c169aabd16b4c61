"""Inline children as rows: attempts of their own whose cost does not grow with the width, closed and cancelled by step (rulings F1, A1 to A6)."""

import asyncio

import asyncpg
import orjson
from msgspec import structs

from ductord.coordinator.commit import commit
from ductord.coordinator.decided import Decided
from ductord.coordinator.facts import SHOWN
from ductord.coordinator.needs import load_needs
from ductord.coordinator.tick import tick_alone
from ductord.engine.limits import LIMITS
from ductord.model.decision import Decision
from ductord.model.effects import CloseAttempt, Effect
from ductord.model.enums import AttemptStatus, Outcome, Verb
from ductord.model.fan import Item
from ductord.model.fan_effects import CloseItems, RecordItemFault
from ductord.model.fault import Fault
from ductord.model.needs import ItemsNeed
from tests.coordinator.conftest import Ticker
from tests.coordinator.parents import begun, family, over
from tests.coordinator.waiters import blocked
from tests.coordinator.workers import Workers
from tests.support.books import TENANT, Books

GATHER = ('step g type=gather gather={"scatter_ref": "s"}', "s -success-> g")


async def _rows(books: Books, run_id: str) -> list[asyncpg.Record]:
    return list(
        await books.owner.fetch(
            "select *, item_state::text as state, output::text as text from eec_workflow_step_attempt where run_id = $1 and kind = 'item'"
            " order by item_index, attempt",
            run_id,
        )
    )


async def _does(ticker: Ticker, run_id: str, *effects: Effect) -> Decided:
    decided = await ticker.decide(TENANT, run_id)
    return Decided(loaded=decided.loaded, decision=Decision(effects=effects))


async def test_f1_a_collection_is_frozen_in_pages(books: Books, ticker: Ticker) -> None:
    """F1: the commit that expands stores the items, 100 a row; children are tasks of the run with what their args say, and no state of their own yet."""
    run_id = await begun(books, ticker, over("inline"), width=250)
    pages = await books.owner.fetch(
        "select page, items::text as text, attempt from eec_workflow_item_page where run_id = $1 order by page", run_id
    )
    assert [(row["page"], len(orjson.loads(row["text"])), row["attempt"]) for row in pages] == [
        (0, 100, 1),
        (1, 100, 1),
        (2, 50, 1),
    ]
    rows = await _rows(books, run_id)
    assert [row["item_index"] for row in rows] == list(range(250))
    assert {(row["status"], row["state"], row["queue"], row["action"]) for row in rows} == {
        ("open", None, "default", "noop:noop")
    }
    assert len({row["idempotency_key"] for row in rows}) == 250, "A6"
    assert orjson.loads(rows[249]["input"]) == {"x": 249}


async def test_a1_a_retry_carries_what_the_child_has_behind_it(books: Books, ticker: Ticker, workers: Workers) -> None:
    """A1, A6: the counters of a child stand in the row of its retry, come back with its report, and its output is never loaded by a tick."""
    run_id = await begun(books, ticker, over("inline", settings="retry_max_attempts=3"))
    tasks = await workers.lease()
    await workers.fail(next(t for t in tasks if t.key.item_index == 1), code="UNAVAILABLE")
    await ticker.drain()
    first, again = [row for row in await _rows(books, run_id) if row["item_index"] == 1]
    assert (first["status"], again["status"], again["attempt"]) == ("failed", "open", 2)
    assert orjson.loads(again["state"]) == {"logical": 2, "failures": 1}
    assert again["idempotency_key"] != first["idempotency_key"]
    await workers.succeed(*await workers.lease(), output='{"big": "value"}')
    decided = await ticker.decide(TENANT, run_id)
    (report,) = decided.loaded.inbox.reports
    assert (report.item_index, report.attempt, report.outcome) == (1, 2, Outcome.SUCCEEDED)
    assert report.item == Item(logical=2, failures=1)
    assert decided.loaded.inbox.outputs == {}


async def test_sg_02_a_gather_waits_for_children_that_have_not_begun(
    books: Books, ticker: Ticker, other_ticker: Ticker
) -> None:
    """SG-02: 3,000 items, 500 begun, all of those done, and the coordinator dies in the commit that begins the next: the gather comes after all 3,000."""
    for one in (ticker, other_ticker):
        one.limits = structs.replace(LIMITS, max_inline_children=10_000)
    run_id = await begun(books, ticker, over("inline"), *GATHER, width=3_000)
    assert len(await _rows(books, run_id)) == 500
    await books.report(run_id, output='{"n": 1}')
    transaction = ticker.connection.transaction()
    await transaction.start()
    decided = await ticker.decide(TENANT, run_id)
    assert await commit(ticker.connection, [decided], ticker.now, []) == set()
    await transaction.rollback()
    fan = (await books.run(run_id)).nodes[0].fan
    assert fan is not None
    assert (fan.expected, fan.next, fan.open) == (3_000, 500, 500)
    while await books.status(run_id) == "running":
        await other_ticker.drain()
        await books.report(run_id, output='{"n": 1}')
    assert (await books.settled(run_id)).status == "completed"
    gathered = orjson.loads(
        await books.owner.fetchval("select output::text from eec_workflow_step_attempt where step_ref = 'g'")
    )
    assert gathered["result_indexes"] == list(range(3_000))
    assert await books.owner.fetchval("select count(*) from eec_workflow_step_attempt where kind = 'item'") == 3_000


async def test_a_tick_is_shown_so_many_reports(books: Books, ticker: Ticker) -> None:
    """F1: of 1,200 reports a tick is shown the 1,000 that came first and goes on at once; no timer is applied that is due after those."""
    ticker.limits = structs.replace(LIMITS, max_inline_children=10_000, children_per_tick=2_000)
    run_id = await begun(books, ticker, over("inline"), width=1_200)
    await books.report(run_id)
    await books.owner.execute(
        "update eec_workflow_step_attempt set report_time = eec_now() - interval '1 hour' + item_index * interval '1 second' where kind = 'item'"
    )
    await books.owner.execute(
        "insert into eec_workflow_timer (tenant_id, run_id, kind, due_time) select 't', $1, 'run_timeout', eec_now() - interval '1 minute'",
        run_id,
    )
    decided = await ticker.decide(TENANT, run_id)
    assert [report.item_index for report in decided.loaded.inbox.reports] == list(range(SHOWN))
    assert decided.loaded.inbox.timers == ()
    assert decided.unfinished
    await ticker.commit(decided)
    decided = await ticker.decide(TENANT, run_id)
    assert (len(decided.loaded.inbox.reports), len(decided.loaded.inbox.timers)) == (200, 1)


async def test_g8_a_verdict_over_all_is_void_when_one_was_reported_on(
    books: Books, ticker: Ticker, workers: Workers
) -> None:
    """G8, C7: between the decision to close all of a step and its commit one child was reported on: nothing is written; the next tick has the run to itself,
    with its attempts locked and every report shown, and is not overtaken again."""
    run_id = await begun(books, ticker, over("inline"), width=20)
    tasks = await workers.lease()
    await books.control(run_id, Verb.TERMINATE, wake=False)
    decided = await ticker.decide(TENANT, run_id)
    assert decided.sweeping
    await workers.succeed(tasks[0])
    assert await ticker.commit(decided) == {run_id}
    assert {row["status"] for row in await _rows(books, run_id)} == {"open"}
    await ticker.drain()
    assert await books.status(run_id) == "terminated"
    assert sorted(row["status"] for row in await _rows(books, run_id)) == ["cancelled"] * 19 + ["succeeded"]
    await workers.succeed(*tasks[1:])
    await ticker.drain()
    assert (await books.settled(run_id)).status == "terminated"


async def test_g8_more_reports_than_are_shown_are_judged_before_all_is_closed(books: Books, ticker: Ticker) -> None:
    """G8: a terminate meets 1,200 reports: the common tick is shown 1,000 and writes nothing; the run's own tick judges all of them and then closes."""
    ticker.limits = structs.replace(LIMITS, max_inline_children=10_000, children_per_tick=2_000)
    run_id = await begun(books, ticker, over("inline"), width=1_500)
    await books.report(run_id)
    await books.owner.execute(
        "update eec_workflow_step_attempt set report_time = null, outcome = null where item_index >= 1200"
    )
    await books.control(run_id, Verb.TERMINATE)
    ticked = await ticker.tick()
    assert (ticked.conflicts, ticked.transitions) == (1, 0)
    ((run, way),) = ticked.alone
    assert run == (TENANT, run_id)
    assert way.firm
    assert await books.owner.fetchval("select min(due_time) > eec_now() from eec_workflow_wakeup"), (
        "in case that nobody comes to it"
    )
    ticked = await tick_alone(ticker.connection, ticker.cache, ticker.limits, run, way)
    assert (ticked.ended, ticked.alone) == (1, [])
    rows = await _rows(books, run_id)
    assert [row["status"] for row in rows] == ["succeeded"] * 1_200 + ["cancelled"] * 300
    assert await books.owner.fetchval("select count(*) from eec_workflow_wakeup") == 0
    assert (await books.settled(run_id)).status == "terminated"


async def test_c7_who_was_taken_since_was_not_idle(books: Books, ticker: Ticker, workers: Workers) -> None:
    """C7: a decision that went by nobody having taken a child does not hold once somebody has."""
    run_id = await begun(books, ticker, over("inline"))
    decided = await _does(ticker, run_id, CloseItems(step_ref="s"))
    loaded = decided.loaded
    need = ItemsNeed(step_ref="s", expected=3)
    given, _ = await load_needs(ticker.connection, [(loaded, need)])
    assert [(row.item_index, row.open, row.started) for row in given[run_id][need]] == [
        (0, True, False),
        (1, True, False),
        (2, True, False),
    ]
    loaded.inbox = structs.replace(loaded.inbox, given=given[run_id])
    await workers.lease()
    assert await ticker.commit(decided) == {run_id}
    assert {row["status"] for row in await _rows(books, run_id)} == {"open"}


async def test_c3_a_cancel_tells_all_children_at_once(books: Books, ticker: Ticker, workers: Workers) -> None:
    """C3: those that a worker has are told at their next heartbeat, the others are revoked at once, and the run is woken to judge them."""
    run_id = await begun(books, ticker, over("inline"), width=50)
    await workers.lease(10)
    await books.control(run_id, Verb.CANCEL)
    await ticker.tick()
    rows = await _rows(books, run_id)
    assert {
        (row["lease_secret"] is not None, row["cancel_requested_time"] is not None, row["outcome"]) for row in rows
    } == {
        (True, True, None),
        (False, True, "revoked"),
    }
    await ticker.drain()
    fan = (await books.run(run_id)).nodes[0].fan
    assert fan is not None
    assert (fan.open, fan.cancelled) == (10, 40)


async def test_f1_why_a_child_failed_stands_in_its_row(books: Books, ticker: Ticker) -> None:
    """F1, F2: the fault of a child that no report names is written into its last attempt; one that never had an attempt gets a row that is born a failure."""
    run_id = await begun(books, ticker, over("inline"), width=2)
    fault = Fault(code="worker_lost", message="six times")
    never = Fault(code="expression_error", message="ITEM.x")
    for _ in range(2):
        await ticker.commit(
            await _does(
                ticker,
                run_id,
                RecordItemFault(step_ref="s", item_index=1, attempt=1, fault=fault),
                RecordItemFault(step_ref="s", item_index=2, attempt=1, fault=never),
            )
        )
    rows = await _rows(books, run_id)
    assert [(row["status"], row["error_code"], row["outcome"]) for row in rows] == [
        ("open", None, None),
        ("open", "worker_lost", None),
        ("failed", "expression_error", "failed"),
    ]
    assert (await ticker.decide(TENANT, run_id)).loaded.inbox.reports == ()


async def test_locks_are_for_the_children_that_a_commit_is_about(
    books: Books, other_books: Books, ticker: Ticker, workers: Workers
) -> None:
    """A commit that ends a lone step of a run without a report does not lock the run's thousand children; one that closes them does, and dispatch waits."""
    run_id = await begun(books, ticker, over("inline"), "step lone action=noop:noop", width=20)
    tasks = await workers.lease()
    decided = await _does(ticker, run_id, CloseAttempt(step_ref="lone", attempt=1, status=AttemptStatus.CANCELLED))
    decided.loaded.inbox = structs.replace(decided.loaded.inbox, started=frozenset({"lone"}))
    assert decided.unheard
    children = [task for task in tasks if task.key.item_index >= 0]
    async with ticker.connection.transaction():
        assert await commit(ticker.connection, [decided], ticker.now, []) == set()
        await workers.succeed(children[0])
    closing = await _does(ticker, run_id, CloseItems(step_ref="s"))
    transaction = ticker.connection.transaction()
    await transaction.start()
    assert await commit(ticker.connection, [closing], ticker.now, []) == set()
    late = asyncio.create_task(workers.succeed(children[1]))
    await blocked(other_books, late)
    await transaction.commit()
    assert [verdict.value for verdict in await late] == ["stale"]


async def test_c2_children_of_a_paused_run_are_not_handed_out(books: Books, ticker: Ticker, workers: Workers) -> None:
    """C2: a pause holds all tasks of the run that nobody has, and a resume lets them go."""
    run_id = await begun(books, ticker, over("inline"), width=5)
    await workers.lease(2)
    await books.control(run_id, Verb.PAUSE)
    await ticker.drain()
    assert await workers.lease() == []
    await books.control(run_id, Verb.RESUME)
    await ticker.drain()
    assert len(await workers.lease()) == 3


async def test_pg_06_large_collections_are_stored_a_few_at_a_time(books: Books, ticker: Ticker) -> None:
    """PG-06: eight runs freeze collections of 1.5 megabytes each: a tick that has stored enough leaves the others to the next."""
    version = await books.release(family("parent", over("inline", '"max_concurrency": 1')))
    items = orjson.dumps({"xs": ["x" * 150_000] * 10}).decode()
    for _ in range(8):
        await books.start(version, input_=items)
    assert [(await ticker.tick()).transitions for _ in range(3)] == [6, 2, 0]
