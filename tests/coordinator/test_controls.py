"""Controls as rows: shown until they are settled, settled once, with a line in the trail (rulings C1, C8)."""

import asyncio
import itertools
import random

import asyncpg
import orjson
import pytest

from ductord.coordinator import facts
from ductord.coordinator.sweep import Net
from ductord.model.control import ControlBody
from ductord.model.enums import Verb
from ductord.model.ids import derived
from tests.coordinator.conftest import Ticker
from tests.support.books import TENANT, Books, chain


async def test_c1_a_control_is_settled_once_with_a_line_in_the_trail(books: Books, ticker: Ticker) -> None:
    """C1, C8: who asked, why, in which request, and what became of it; another tick changes nothing."""
    run_id = await books.start(await books.publish(chain(1)))
    await ticker.drain()
    await books.control(run_id, Verb.PAUSE)
    await ticker.drain()
    operation = await books.operation(run_id, "pause")
    assert (operation["status"], operation["code"]) == ("applied", "")
    row = await books.owner.fetchrow("select * from eec_workflow_audit")
    assert (row["actor"], row["action"], row["target"], row["reason"], row["request_id"], row["outcome"]) == (
        "somebody", "pause", f"run:{run_id}", "because", "pause", "applied",
    )  # fmt: skip
    assert row["at"] == operation["settle_time"]
    await books.wake(run_id)
    await ticker.drain()
    assert await books.operation(run_id, "pause") == operation
    assert len(await books.trail(run_id)) == 1


async def test_c1_a_refusal_is_an_outcome(books: Books, ticker: Ticker) -> None:
    """C1: a control whose run has moved on is rejected with a code, a text, and what a machine wants to know; the run stays as it is."""
    run_id = await books.start(await books.publish(chain(1)))
    await ticker.drain()
    await books.report()
    await ticker.drain()
    before = await books.settled(run_id)
    await books.control(run_id, Verb.CANCEL)
    await ticker.drain()
    operation = await books.operation(run_id, "cancel")
    assert (operation["status"], operation["code"]) == ("rejected", "RUN_TERMINAL")
    assert "already completed" in operation["message"]
    assert orjson.loads(operation["result"])["status"] == "completed"
    detail = orjson.loads(await books.owner.fetchval("select detail::text from eec_workflow_audit"))
    assert (detail["code"], detail["message"]) == ("RUN_TERMINAL", operation["message"])
    assert await books.settled(run_id) == before


@pytest.mark.parametrize(("bound", "value"), [("_CONTROLS", 3), ("_CONTROLS_BYTES", 5)])
async def test_c1_a_flood_of_controls_is_taken_in_turns(
    books: Books, ticker: Ticker, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    """C1: more controls than a tick is shown are all settled, in order, without anybody waking the run for the rest."""
    monkeypatch.setattr(facts, bound, value)
    run_id = await books.start(await books.publish(chain(1)))
    await ticker.drain()
    verbs = itertools.cycle((Verb.PAUSE, Verb.RESUME))
    for n in range(10):
        await books.control(run_id, next(verbs), request_id=f"r{n}", wake=n == 0)
    await ticker.tick()
    assert (await books.operation(run_id, "r2"))["status"] == "applied"
    assert (await books.operation(run_id, "r3"))["status"] == "pending"
    await ticker.drain()
    rows = await books.owner.fetch("select status from eec_workflow_intent")
    assert [row["status"] for row in rows] == ["applied"] * 10
    assert await books.status(run_id) == "running"
    trail = await books.trail(run_id)
    assert sorted(action for _, action, _ in trail) == ["pause"] * 5 + ["resume"] * 5


async def test_gj_06_a_control_without_wake_up_is_found(books: Books, ticker: Ticker) -> None:
    """GJ-06: the net wakes the run of a control that nobody woke it for, once its period is over; one that waits for the end of a continuing run is no loss."""
    run_id = await books.start(await books.publish(chain(1)))
    await ticker.drain()
    await books.control(run_id, Verb.PAUSE, wake=False)
    assert (await Net(60_000).round(ticker.connection)).repaired["controls"] == 0
    assert (await Net(0).round(ticker.connection)).repaired["controls"] == 1
    await ticker.drain()
    assert await books.status(run_id) == "paused"
    await books.control(run_id, Verb.RESUME)
    await ticker.drain()
    await books.owner.execute("update eec_workflow_step_attempt set lease_secret = 's', start_time = eec_now()")
    await books.control(run_id, Verb.CONTINUE_AS_NEW)
    await ticker.drain()
    assert (await books.operation(run_id, "continue_as_new"))["status"] == "pending"
    assert not (await Net(0).round(ticker.connection)).woke


async def test_c9_controls_of_a_run_that_is_set_aside_wait_for_its_tick(books: Books, ticker: Ticker) -> None:
    """C9: while its tick raises, a run's controls stay pending; a wake-up (ResumeRun) retries at once, whatever the run's delay, and then they are applied."""
    run_id = await books.start(await books.publish(chain(1)))
    await ticker.drain()
    good = await books.owner.fetchval("select run_state::text from eec_workflow_run")
    await books.owner.execute("update eec_workflow_run set run_state = '{\"stop\": 5}'")
    ticker.cache.runs.clear()
    await books.control(run_id, Verb.CANCEL)
    assert (await ticker.tick()).quarantined == 1
    assert (await ticker.tick()).claimed == 0, "it is retried later"
    assert (await books.operation(run_id, "cancel"))["status"] == "pending"
    await books.wake(run_id)
    assert (await ticker.tick()).quarantined == 1, "at once, although it is to be retried later"
    await books.owner.execute("update eec_workflow_run set run_state = $1", good)
    await books.wake(run_id)
    await ticker.drain()
    assert (await books.settled(run_id)).status == "cancelled"
    assert (await books.operation(run_id, "cancel"))["status"] == "applied"
    assert await books.owner.fetchval("select count(*) from eec_workflow_quarantine") == 0


async def test_a_coordinator_that_dies_between_load_and_commit_settles_nothing(
    books: Books, ticker: Ticker, other_ticker: Ticker
) -> None:
    """C1, RR-01: a cancel was loaded and decided when the process died; nothing of it is written, its wake-up is still there, another one applies it once."""
    run_id = await books.start(await books.publish(chain(2)))
    await ticker.drain()
    await books.control(run_id, Verb.CANCEL)
    await books.owner.execute(
        f"create function die() returns trigger language plpgsql as $$ begin"
        f" if pg_backend_pid() = {ticker.connection.get_server_pid()} then perform pg_terminate_backend(pg_backend_pid()); end if; return new; end $$"
    )
    await books.owner.execute(
        "create trigger die before insert on eec_workflow_transition for each row execute function die()"
    )
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, ConnectionError)):
        await ticker.tick()
    assert (await books.operation(run_id, "cancel"))["status"] == "pending"
    assert await books.trail(run_id) == []
    await other_ticker.drain()
    assert (await books.settled(run_id)).status == "cancelled"
    assert await books.trail(run_id) == [("somebody", "cancel", "applied")]


async def test_sw_05_cancel_versus_completion(
    books: Books, other_books: Books, ticker: Ticker, other_ticker: Ticker
) -> None:
    """SW-05: 500 runs are cancelled at the instant of their completion, with two coordinators: each is completed or cancelled, for good, and who came too
    late is told so, in the operation and in the trail."""
    version = await books.publish(chain(1))
    runs = [await books.start(version) for _ in range(500)]
    await ticker.drain()
    order = random.Random(5)

    async def complete() -> None:
        for run_id in order.sample(runs, len(runs)):
            await books.report(run_id)

    async def cancel() -> None:
        for run_id in order.sample(runs, len(runs)):
            await other_books.control(run_id, Verb.CANCEL)

    over = asyncio.Event()

    async def coordinate(coordinator: Ticker) -> None:
        while (await coordinator.tick(20)).claimed or not over.is_set():
            pass

    coordinating = [asyncio.create_task(coordinate(t)) for t in (ticker, other_ticker)]
    await asyncio.gather(complete(), cancel())
    over.set()
    await asyncio.gather(*coordinating)
    ended = {run_id: await books.settled(run_id) for run_id in runs}
    outcomes = {str(run.status) for run in ended.values()}
    assert outcomes == {"completed", "cancelled"}
    for run_id, run in ended.items():
        operation = await books.operation(run_id, "cancel")
        if run.status == "cancelled":
            assert (operation["status"], operation["code"]) == ("applied", "")
        else:
            assert (operation["status"], operation["code"]) == ("rejected", "RUN_TERMINAL")
            assert operation["message"] == "cancel ignored: already completed"
        assert await books.trail(run_id) == [("somebody", "cancel", operation["status"])]
        await books.wake(run_id)
    await asyncio.gather(ticker.drain(), other_ticker.drain())
    assert {run_id: await books.run(run_id) for run_id in runs} == ended


async def test_sw_05_a_decision_for_an_open_run_never_overwrites_a_terminal_one(
    books: Books, ticker: Ticker, other_ticker: Ticker
) -> None:
    """SW-05: even if nothing but the row kept two coordinators apart: the later commit writes nothing, whichever way about."""
    run_id = await books.start(await books.publish(chain(1)))
    await ticker.drain()
    await books.report()
    completing = await ticker.decide(TENANT, run_id)
    await books.control(run_id, Verb.CANCEL)
    cancelling = await other_ticker.decide(TENANT, run_id)
    assert await ticker.commit(completing) == set()
    assert await other_ticker.commit(cancelling) == {run_id}
    await books.owner.execute(
        "update eec_workflow_run set record_version = record_version - 1"
    )  # as if the numbers did not tell
    assert await other_ticker.commit(cancelling) == {run_id}
    assert await books.status(run_id) == "completed"
    assert (await books.operation(run_id, "cancel"))["status"] == "pending"


async def test_rr_03_one_successor(books: Books, ticker: Ticker, other_ticker: Ticker) -> None:
    """RR-03: two coordinators decide the same continue-as-new; one successor is born. Another request on the closed run answers with it, and makes no third."""
    run_id = await books.start(await books.publish(chain(1)))
    await ticker.drain()
    new_run_id = derived("continue", run_id, "c1")
    body = ControlBody(new_run_id=new_run_id, seed={"n": 1})
    await books.control(run_id, Verb.CONTINUE_AS_NEW, request_id="c1", body=body)
    await ticker.tick()
    first, second = await ticker.decide(TENANT, run_id), await other_ticker.decide(TENANT, run_id)
    assert first.decision.run is not None
    assert first.decision.run.continued_to_run_id == new_run_id
    committed = await asyncio.gather(ticker.commit(first), other_ticker.commit(second))
    assert sorted(map(len, committed)) == [0, 1]
    await books.control(
        run_id, Verb.CONTINUE_AS_NEW, request_id="c2", body=ControlBody(new_run_id=derived("continue", run_id, "c2"))
    )
    await asyncio.gather(ticker.drain(), other_ticker.drain())
    for request_id in ("c1", "c2"):
        operation = await books.operation(run_id, request_id)
        assert operation["status"] == "applied"
        assert orjson.loads(operation["result"])["new_run_id"] == new_run_id
    starts = await books.owner.fetch(
        "select run_id::text, context::text from eec_workflow_run_start order by create_time"
    )
    assert [(row["run_id"], orjson.loads(row["context"])) for row in starts] == [(run_id, {}), (new_run_id, {"n": 1})]
    source = await books.settled(run_id)
    assert (source.status, source.close_reason) == ("terminated", "continued_as_new")
    assert await books.status(new_run_id) == "running"
