"""Waits for external events as rows: opened and closed with the tick that parks and wakes, and never closed over an event that counted (ruling E3)."""

import asyncio
from datetime import timedelta

import orjson
import pytest

from ductord.coordinator import outside
from ductord.coordinator.sweep import Net
from ductord.model.enums import Verb
from tests.coordinator.conftest import Ticker
from tests.coordinator.waiters import Publisher, blocked, waiting
from tests.support.books import TENANT, Books

PAID = (
    'step w type=wait wait={"event": {"event_name": "paid", "correlation_key": "\\"o1\\""}, "timeout_ms": 60000, "on_timeout": "skip"}',
)
ANY_KEY = ('step w type=wait wait={"event": {"event_name": "paid"}}',)
TWO = (
    'step s type=event_set event_set={"correlation_key": "\\"o1\\"", "requirements": [{"name": "pay", "event_name": "paid"},'
    ' {"name": "big", "event_name": "paid", "filter": "EVENT.payload.sum > 100"}, {"name": "ship", "event_name": "shipped"}]}',
)

MINUTE = timedelta(minutes=1)


async def _parked(books: Books, ticker: Ticker, *lines: str) -> str:
    run_id = await books.start(await books.publish(waiting(*lines)))
    await ticker.drain()
    return run_id


async def _time_over(books: Books) -> None:
    """All timers are due."""
    await books.owner.execute("update eec_workflow_timer set due_time = eec_now() - interval '1 second'")


async def test_e3_a_wait_opens_and_closes_with_the_tick_that_parks_and_wakes(
    books: Books, ticker: Ticker, publisher: Publisher
) -> None:
    """E3: one row per pattern while the node waits; its end closes them, takes the receipt, removes the timer and stores the output, in one commit."""
    run_id = await _parked(books, ticker, *PAID)
    row = await books.owner.fetchrow("select * from eec_workflow_wait")
    assert (row["step_ref"], row["attempt"], row["event_name"], row["correlation_key"]) == ("w", 1, "paid", "o1")
    assert (row["any_key"], row["event_set"], row["close_time"]) == (False, False, None)
    assert (await books.owner.fetchval("select count(*) from eec_workflow_timer")) == 1
    assert await books.owner.fetchval("select count(*) from eec_workflow_step_attempt") == 0, "nobody works for it"
    assert (await publisher.publish("paid", "o2")).matched == 0
    assert (await publisher.publish("paid", "o1", {"sum": 20}, event_id="e-1")).matched == 1
    await ticker.drain()
    run = await books.settled(run_id)
    assert run.status == "completed"
    assert await books.owner.fetchval("select close_time is not null from eec_workflow_wait")
    assert await books.owner.fetchval("select applied_time is not null from eec_workflow_receipt")
    assert await books.owner.fetchval("select count(*) from eec_workflow_timer") == 0
    stored = await books.owner.fetchrow("select *, output::text as text from eec_workflow_step_attempt")
    assert (stored["status"], stored["outcome"], stored["action"], stored["attempt"]) == (
        "succeeded",
        "succeeded",
        "wait",
        1,
    )
    assert orjson.loads(stored["text"])["event"]["payload"] == {"sum": 20}
    reference = run.nodes[0].output
    assert reference is not None
    assert (reference.size, reference.hash) == (stored["output_size"], stored["output_hash"])
    assert len(stored["text"].encode()) == reference.size
    assert stored["start_time"] < stored["report_time"]


@pytest.mark.parametrize(("sooner", "status"), [("2 minutes", "succeeded"), ("0", "skipped")], ids=["in time", "late"])
async def test_e3_a_decision_that_does_not_know_of_an_event_is_void(
    sooner: str, status: str, books: Books, ticker: Ticker, publisher: Publisher
) -> None:
    """E3: the time is over, the tick has decided so, and before it commits an event is counted: nothing of the decision is written. The next tick knows both
    and judges them in order of time."""
    run_id = await _parked(books, ticker, *PAID)
    await _time_over(books)
    decided = await ticker.decide(TENANT, run_id)
    assert decided.decision.events
    assert (await publisher.publish("paid", "o1")).matched == 1
    await books.owner.execute(f"update eec_workflow_receipt set receive_time = receive_time - interval '{sooner}'")
    await books.owner.execute(f"update eec_workflow_event set publish_time = publish_time - interval '{sooner}'")
    assert await ticker.commit(decided) == {run_id}
    assert await books.owner.fetchval("select close_time is null from eec_workflow_wait")
    assert (await books.settled(run_id)).nodes[0].status == "waiting"
    await ticker.drain()
    assert (await books.settled(run_id)).nodes[0].status == status
    assert await books.owner.fetchval("select count(*) from eec_workflow_receipt where applied_time is null") == 0


async def test_e3_whoever_publishes_waits_for_a_wait_that_closes(
    books: Books, ticker: Ticker, publisher: Publisher
) -> None:
    """E3: publishing meets a wait that is being closed: it waits for the commit and counts nothing."""
    run_id = await _parked(books, ticker, *PAID)
    await _time_over(books)
    decided = await ticker.decide(TENANT, run_id)
    async with ticker.connection.transaction():
        assert await ticker.commit(decided) == set()
        publishing = asyncio.create_task(publisher.publish("paid", "o1"))
        await blocked(books, publishing)
    assert (await publishing).matched == 0
    assert await books.owner.fetchval("select count(*) from eec_workflow_receipt") == 0


async def test_e3_a_commit_waits_for_whoever_publishes(books: Books, other_books: Books, ticker: Ticker) -> None:
    """E3: a publisher has found the wait open and is about to commit its receipt: the tick that closes the wait waits for it, and is void."""
    run_id = await _parked(books, ticker, *PAID)
    await _time_over(books)
    decided = await ticker.decide(TENANT, run_id)
    async with other_books.owner.transaction():
        await other_books.owner.execute("select from eec_workflow_wait for share")
        committing = asyncio.create_task(ticker.commit(decided))
        await blocked(books, committing)
        await other_books.owner.execute(
            "insert into eec_workflow_receipt (tenant_id, run_id, step_ref, attempt, event_name, event_id, receive_time)"
            " values ($1, $2, 'w', 1, 'paid', 'e', eec_now())",
            TENANT,
            run_id,
        )
    assert await committing == {run_id}


async def test_e3_of_a_batch_only_the_run_that_overlooked_an_event_is_void(
    books: Books, ticker: Ticker, publisher: Publisher
) -> None:
    """E3: the other runs of the group tick are written."""
    lone, other = await _parked(books, ticker, *PAID), await _parked(books, ticker, *ANY_KEY)
    await books.control(other, Verb.CANCEL)
    await _time_over(books)
    decided = [await ticker.decide(TENANT, run_id) for run_id in (lone, other)]
    assert (await publisher.publish("paid", "o2")).matched == 1
    assert await ticker.commit(*decided) == {other}
    assert await books.status(lone) == "completed"
    await ticker.drain()
    assert await books.status(other) == "cancelled"
    assert await books.owner.fetchval("select count(*) from eec_workflow_wait where close_time is null") == 0


async def test_e3_a_kept_event_is_there_when_its_wait_opens(books: Books, ticker: Ticker, publisher: Publisher) -> None:
    """E3, SE-01: kept events that fit name, key and filter become receipts in the commit that parks; one whose time is over does not."""
    for key, name, keep, sum_ in (
        ("o1", "paid", MINUTE, 20),
        ("o1", "paid", timedelta(milliseconds=1), 900),
        ("o2", "paid", MINUTE, 900),
        ("o1", "sent", MINUTE, 900),
        ("o1", "paid", MINUTE, 200),
        ("o1", "paid", MINUTE, "much"),
    ):
        await publisher.publish(name, key, {"sum": sum_}, keep=keep)
    await books.owner.execute(
        "update eec_workflow_event set keep_until = eec_now() where keep_until - publish_time < interval '1 second'"
    )
    run_id = await books.start(await books.publish(waiting(*TWO)))
    assert (await ticker.tick()).transitions == 1
    rows = await books.owner.fetch("select event_id, requirement from eec_workflow_receipt order by 1, 2")
    assert [tuple(row) for row in rows] == [("e1", "pay"), ("e5", "big"), ("e5", "pay"), ("e6", "pay")]
    assert await books.owner.fetchval("select count(*) from eec_workflow_wakeup where run_id = $1", run_id) == 1
    await ticker.drain()
    node = (await books.settled(run_id)).nodes[0]
    assert node.waiting is not None
    assert {received.requirement for received in node.waiting.received} == {"pay", "big"}
    assert (await publisher.publish("shipped", "o1")).matched == 1
    await ticker.drain()
    assert (await books.settled(run_id)).status == "completed"


@pytest.mark.parametrize("lines", [PAID, ANY_KEY], ids=["its key", "any key"])
async def test_e3_keeping_and_listening_do_not_miss_each_other(
    lines: tuple[str, ...], books: Books, ticker: Ticker, publisher: Publisher
) -> None:
    """E3: a wait is about to open when an event is about to be kept: who keeps it waits for the commit, and then finds the wait."""
    run_id = await books.start(await books.publish(waiting(*lines)))
    decided = await ticker.decide(TENANT, run_id)
    async with ticker.connection.transaction():
        assert await ticker.commit(decided) == set()
        keeping = asyncio.create_task(publisher.publish("paid", "o1", keep=MINUTE))
        await blocked(books, keeping)
    assert (await keeping).matched == 1
    await ticker.drain()
    assert (await books.settled(run_id)).status == "completed"


async def test_e3_two_coordinators_open_and_publishers_keep_without_deadlock(
    books: Books, ticker: Ticker, other_ticker: Ticker, publisher: Publisher
) -> None:
    """E3: 60 waits for one key and for any key open through two coordinators while 60 events are kept: every event that is there is received by every wait that
    is, so all runs complete, and nobody waits for ever."""
    versions = [await books.publish(waiting(*lines)) for lines in (PAID, ANY_KEY)]
    runs = [await books.start(version) for _ in range(30) for version in versions]

    async def publish() -> None:
        for number in range(60):
            await publisher.publish("paid", "o1", event_id=f"n{number}", keep=MINUTE)

    async def coordinate(coordinator: Ticker) -> None:
        while (await coordinator.tick(4)).claimed:
            pass

    async with asyncio.timeout(60):
        await asyncio.gather(publish(), coordinate(ticker), coordinate(other_ticker))
        await ticker.drain()
    assert {await books.status(run_id) for run_id in runs} == {"completed"}
    assert await books.owner.fetchval("select count(*) from eec_workflow_wait where close_time is null") == 0
    assert await books.owner.fetchval("select count(*) from eec_workflow_receipt where applied_time is null") == 0


async def test_e3_ids_are_those_of_one_name(books: Books, ticker: Ticker, publisher: Publisher) -> None:
    """E3: two events of different names under the same id are two events, each with its own payload."""
    run_id = await _parked(books, ticker, *TWO)
    assert (await publisher.publish("paid", "o1", {"sum": 500}, event_id="o1")).matched == 1
    await ticker.drain()
    assert (await publisher.publish("shipped", "o1", {"by": "air"}, event_id="o1")).matched == 1
    await ticker.drain()
    assert (await books.settled(run_id)).status == "completed"
    output = await books.owner.fetchval("select output::text from eec_workflow_step_attempt")
    payloads = {event["requirement"]: event["payload"] for event in orjson.loads(output)["events"]}
    assert payloads == {"pay": {"sum": 500}, "big": {"sum": 500}, "ship": {"by": "air"}}


async def test_e3_an_id_that_is_used_again_a_day_later_does_not_change_what_was_received(
    books: Books, ticker: Ticker, publisher: Publisher
) -> None:
    """E3: the payload of an event that counts for a wait is the one that it came with."""
    run_id = await _parked(books, ticker, *TWO)
    await publisher.publish("paid", "o1", {"sum": 500}, event_id="x")
    await ticker.drain()
    await books.owner.execute(
        "update eec_workflow_event set publish_time = publish_time - interval '25 hours', dedupe_until = dedupe_until - interval '25 hours'"
    )
    assert (await publisher.publish("paid", "o1", {"sum": 1}, event_id="x", keep=MINUTE)).matched == 0
    await publisher.publish("shipped", "o1")
    await ticker.drain()
    assert (await books.settled(run_id)).status == "completed"
    output = await books.owner.fetchval("select output::text from eec_workflow_step_attempt")
    assert {e["payload"]["sum"] for e in orjson.loads(output)["events"] if e["payload"]} == {500}


async def test_a_flood_of_events_is_shown_in_parts(
    books: Books, ticker: Ticker, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tick is shown so many events of one run and no more; the rest comes next, and what the end of the wait leaves over is put away."""
    monkeypatch.setattr(outside, "_RECEIPTS", 2)
    step = (
        'step s type=event_set event_set={"correlation_key": "\\"o1\\"", "requirements": [{"name": "vote", "event_name": "voted"}],'
        ' "completion_policy": "count", "count": 5}'
    )
    run_id = await _parked(books, ticker, step)
    for _ in range(8):
        assert (await publisher.publish("voted", "o1")).matched == 1
    ticked = await ticker.drain()
    assert ticked.transitions == 3
    assert ticked.conflicts == 0
    assert (await books.settled(run_id)).status == "completed"
    assert await books.owner.fetchval("select count(*) from eec_workflow_receipt where applied_time is null") == 0


async def test_gj_06_a_receipt_whose_wake_up_was_lost_is_found(
    books: Books, ticker: Ticker, publisher: Publisher
) -> None:
    """GJ-06, C2: but not one that a pause holds: that is applied by the resume."""
    lost, paused, held = [await _parked(books, ticker, *PAID) for _ in range(3)]
    await books.control(paused, Verb.PAUSE)
    await books.control(held, Verb.PAUSE_NODE, step_ref="w")
    await ticker.drain()
    assert (await publisher.publish("paid", "o1", {"n": 1})).matched == 3
    await books.owner.execute("delete from eec_workflow_wakeup")
    assert not (await Net(60_000).round(ticker.connection)).woke, "not before the period is over"
    swept = await Net(0).round(ticker.connection)
    assert {place: count for place, count in swept.repaired.items() if count} == {"receipts": 1}
    await ticker.drain()
    assert [await books.status(run_id) for run_id in (lost, paused, held)] == ["completed", "paused", "running"]
    assert not (await Net(0).round(ticker.connection)).woke
    await books.control(paused, Verb.RESUME)
    await books.control(held, Verb.RESUME_NODE, step_ref="w")
    await ticker.drain()
    assert {await books.status(run_id) for run_id in (lost, paused, held)} == {"completed"}


async def test_e3_events_are_put_away_when_nobody_needs_them(
    books: Books, ticker: Ticker, publisher: Publisher
) -> None:
    """E3: an event stays as long as its id dedupes, as long as it is kept, and as long as it counts for an open wait: its payload stands nowhere else."""
    run_id = await _parked(books, ticker, *TWO)
    await publisher.publish("paid", "o1", {"sum": 5}, event_id="counts")
    await publisher.publish("seen", event_id="over", keep=MINUTE)
    await publisher.publish("seen", event_id="kept", keep=timedelta(hours=24))
    await publisher.publish("seen", event_id="fresh", keep=MINUTE)
    await ticker.drain()
    assert (await Net(0).round(ticker.connection)).events == 0
    await books.owner.execute(
        "update eec_workflow_event set dedupe_until = eec_now() where event_id <> 'fresh'; update eec_workflow_event"
        " set keep_until = eec_now() where event_id in ('over', 'fresh')"
    )
    assert (await Net(0).round(ticker.connection)).events == 1
    left = "select array_agg(event_id order by event_id) from eec_workflow_event"
    assert await books.owner.fetchval(left) == ["counts", "fresh", "kept"]
    await books.control(run_id, Verb.CANCEL)
    await ticker.drain()
    assert (await Net(0).round(ticker.connection)).events == 1
    assert await books.owner.fetchval(left) == ["fresh", "kept"]
