"""Digests as rows: one window per key whoever ticks, every event in exactly one of them, and nobody forgotten (ruling E5)."""

import asyncio
import json
from typing import Any

import orjson
import pytest

from ductord.coordinator.sweep import Net, watch
from ductord.engine.limits import LIMITS
from ductord.model.enums import Verb
from tests.coordinator.conftest import Ticker
from tests.coordinator.waiters import waiting
from tests.support.books import TENANT, Books

MAIL = ('step d type=digest digest={"digest_key": "TRIGGER.payload.user", "window_ms": 5000}',)
TWO_MAIL = ('step d type=digest digest={"digest_key": "TRIGGER.payload.user", "window_ms": 60000, "max_events": 2}',)
BACKOFF = (
    'step d type=digest digest={"digest_key": "1", "mode": "backoff", "window_ms": 60000, "look_back_ms": 60000}',
)


async def _triggered(books: Books, lines: tuple[str, ...], *users: str) -> list[str]:
    """One run per user, in the order of their ids; the payload says which it is."""
    version_id = await books.publish(waiting(*lines))
    return [await books.start(version_id, input_=json.dumps({"user": user, "n": n})) for n, user in enumerate(users)]


async def _time_over(books: Books, ticker: Ticker) -> None:
    """All windows are due."""
    await books.owner.execute("update eec_workflow_timer set due_time = eec_now() - interval '1 second'")
    await watch(ticker.connection)


async def _events(books: Books, run_id: str) -> list[Any]:
    """Whose events the run went on with, by run id: the output of its digest, if it has one."""
    text = await books.owner.fetchval(
        "select output::text from eec_workflow_step_attempt where run_id = $1 and step_ref = 'd'", run_id
    )
    if text is None:
        return []
    output = orjson.loads(text)
    assert output["count"] == len(output["events"])
    return [event["run_id"] for event in output["events"]]


async def _statuses(books: Books, runs: list[str]) -> list[str]:
    return [(await books.settled(run_id)).status.value for run_id in runs]


async def _drained(*tickers: Ticker, batch_size: int = 500) -> int:
    """All tick at once until nothing is due; how many decisions lost a race."""
    conflicts = 0
    while True:
        ticked = await asyncio.gather(*(ticker.tick(batch_size) for ticker in tickers))
        assert not any(t.quarantined for t in ticked)
        conflicts += sum(t.conflicts for t in ticked)
        if not any(t.claimed for t in ticked):
            return conflicts


async def test_dg_01_fifty_at_once_are_one_digest(books: Books, ticker: Ticker, other_ticker: Ticker) -> None:
    """DG-01: 50 triggers with one key, ticked by two coordinators at once: one run goes on with 50 events in the order of their arrival, ties by id, and 49 are
    merged into it."""
    runs = await _triggered(books, MAIL, *["ann"] * 50)
    await _drained(ticker, other_ticker, batch_size=7)
    assert await books.owner.fetchval("select count(*) from eec_workflow_digest") == 1
    await _time_over(books, ticker)
    await _drained(ticker, other_ticker, batch_size=7)
    leader = await books.owner.fetchval("select leader_run_id::text from eec_workflow_digest")
    assert sorted(await _statuses(books, runs)) == ["completed"] + ["merged"] * 49
    assert (await books.run(leader)).status == "completed"
    rows = await books.owner.fetch("select run_id::text from eec_workflow_digest_arrival order by arrive_time, run_id")
    assert await _events(books, leader) == [row["run_id"] for row in rows]
    assert sorted(await _events(books, leader)) == sorted(runs)
    into = await books.owner.fetch(
        "select distinct merged_into_run_id::text as run_id from eec_workflow_run where status = 'merged'"
    )
    assert [row["run_id"] for row in into] == [leader]


async def test_batches_that_meet_in_many_windows_do_not_block_each_other(
    books: Books, ticker: Ticker, other_ticker: Ticker
) -> None:
    """E5: two coordinators join, fill and flush 40 windows at the same time, in whatever order; nobody is a victim, and every event is in one window."""
    users = [f"u{n % 40}" for n in range(160)]
    runs = await _triggered(books, TWO_MAIL, *users)
    assert await _drained(ticker, other_ticker, batch_size=20) == 0
    statuses = await _statuses(books, runs)
    assert (statuses.count("completed"), statuses.count("merged")) == (80, 80)
    gone = [event for run, status in zip(runs, statuses, strict=True) if status == "completed"
            for event in await _events(books, run)]  # fmt: skip
    assert sorted(gone) == sorted(runs)
    windows = await books.owner.fetch("select close_time, flush_time from eec_workflow_digest")
    assert len(windows) == 80
    assert all(row["close_time"] and row["flush_time"] for row in windows)


async def test_cancels_in_the_thick_of_it(books: Books, ticker: Ticker, other_ticker: Ticker) -> None:
    """E5: every third run is cancelled while two coordinators are at it: what was told was told once, and whoever was neither merged nor cancelled went on."""
    runs = await _triggered(books, TWO_MAIL, *(f"u{n % 7}" for n in range(90)))
    for n in range(0, 90, 3):
        await asyncio.gather(ticker.tick(4), other_ticker.tick(4), books.control(runs[n], Verb.CANCEL))
    await _drained(ticker, other_ticker, batch_size=9)
    await _time_over(books, ticker)
    await _drained(ticker, other_ticker, batch_size=9)
    status = dict(zip(runs, await _statuses(books, runs), strict=True))
    told: dict[str, str] = {}
    for run_id in runs:
        for event in await _events(books, run_id):
            assert event not in told, "told twice"
            told[event] = run_id
    assert set(status.values()) <= {"completed", "merged", "cancelled"}
    for run_id in runs:
        if status[run_id] == "completed":
            assert told[run_id] == run_id
        elif status[run_id] == "merged":
            assert (await books.run(run_id)).merged_into_run_id == told[run_id]
        else:
            assert run_id not in told or told[run_id] == run_id
    assert await books.owner.fetchval("select count(*) from eec_workflow_digest where flush_time is null") == 0
    left = "select count(*) from eec_workflow_digest_arrival where told_time is null and leave_time is null"
    assert await books.owner.fetchval(left) == 0


async def test_one_batch_fills_windows_one_after_the_other(books: Books, ticker: Ticker) -> None:
    """E5: runs of one tick arrive in the order of their ids: a full window is closed within the tick, and the next of them opens another."""
    runs = sorted(await _triggered(books, TWO_MAIL, "ann", "ann", "ann", "ann", "ann"))
    await ticker.tick()
    rows = await books.owner.fetch(
        "select leader_run_id::text, close_time from eec_workflow_digest order by leader_run_id"
    )
    assert [(row["leader_run_id"], row["close_time"] is not None) for row in rows] == [
        (runs[0], True), (runs[2], True), (runs[4], False),
    ]  # fmt: skip
    await ticker.drain()
    assert await _statuses(books, runs) == ["completed", "merged", "completed", "merged", "running"]
    assert await _events(books, runs[2]) == runs[2:4]


@pytest.mark.parametrize("join_first", [True, False])
async def test_e5_an_event_at_the_time_of_the_flush_goes_to_exactly_one_window(
    books: Books, ticker: Ticker, other_ticker: Ticker, join_first: bool
) -> None:
    """E5, DG-01: the window's end and an arrival are decided at the same time, and committed in either order."""
    leader, late = await _triggered(books, MAIL, "ann", "ann")
    await books.owner.execute("delete from eec_workflow_wakeup where run_id = $1", late)
    await ticker.drain()
    await _time_over(books, ticker)
    closing, joining = await ticker.decide(TENANT, leader), await other_ticker.decide(TENANT, late)
    for who, what in sorted(
        [(ticker, closing), (other_ticker, joining)], key=lambda p: (p[1] is joining) is not join_first
    ):
        assert await who.commit(what) == set()
    await _drained(ticker)
    assert await _events(books, leader) == ([leader, late] if join_first else [leader])
    assert await _statuses(books, [leader, late]) == ["completed", "merged" if join_first else "running"]
    await _time_over(books, ticker)
    await _drained(ticker)
    assert await _statuses(books, [leader, late]) == ["completed", "merged" if join_first else "completed"]
    if not join_first:
        assert await _events(books, late) == [late]


async def test_e5_a_leader_does_not_go_on_with_an_event_that_was_taken_back(
    books: Books, ticker: Ticker, other_ticker: Ticker
) -> None:
    """E5: between the leader's decision to go on and its commit a follower is cancelled: the decision is void, and the next one goes on without it."""
    leader, other, third = await _closed(books, ticker)
    going_on = await ticker.decide(TENANT, leader)
    await books.control(other, Verb.CANCEL, wake=False)
    assert await other_ticker.commit(await other_ticker.decide(TENANT, other)) == set()
    assert await ticker.commit(going_on) == {leader}
    await books.wake(leader)
    await _drained(ticker)
    assert await _events(books, leader) == [leader, third]
    assert await _statuses(books, [leader, other, third]) == ["completed", "cancelled", "merged"]


async def test_e5_a_run_whose_event_has_gone_on_is_merged_whatever_was_decided_meanwhile(
    books: Books, ticker: Ticker, other_ticker: Ticker
) -> None:
    """E5: a follower's cancel is decided when the leader goes on: it comes too late, the run is merged and the control is told so."""
    leader, other, third = await _closed(books, ticker)
    await books.control(other, Verb.CANCEL, wake=False)
    leaving = await other_ticker.decide(TENANT, other)
    assert await ticker.commit(await ticker.decide(TENANT, leader)) == set()
    assert await other_ticker.commit(leaving) == {other}
    await _drained(ticker)
    assert await _events(books, leader) == [leader, other, third]
    assert await _statuses(books, [leader, other, third]) == ["completed", "merged", "merged"]
    operation = await books.operation(other, "cancel")
    assert (operation["status"], operation["code"]) == ("rejected", "RUN_TERMINAL")


async def test_e5_the_leader_of_a_closed_window_leaves_and_the_next_one_goes_on(books: Books, ticker: Ticker) -> None:
    """E5, C2: a paused leader's window fills and closes; when the leader is cancelled, the next run goes on at once with what is left."""
    version_id = await books.publish(waiting(MAIL[0].replace("5000", '60000, "max_events": 3')))
    leader = await books.start(version_id, input_='{"user": "ann"}')
    await ticker.drain()
    await books.control(leader, Verb.PAUSE)
    await ticker.drain()
    others = sorted([await books.start(version_id, input_='{"user": "ann"}') for _ in range(2)])
    await ticker.drain()
    assert await _statuses(books, [leader, *others]) == ["paused", "running", "running"]
    await books.control(leader, Verb.CANCEL)
    await ticker.drain()
    arrived = await books.owner.fetch(
        "select run_id::text from eec_workflow_digest_arrival where leave_time is null order by arrive_time, run_id"
    )
    first, second = (row["run_id"] for row in arrived)
    assert await _statuses(books, [leader, first, second]) == ["cancelled", "completed", "merged"]
    assert await _events(books, first) == [first, second]
    assert (await books.run(second)).merged_into_run_id == first


async def test_a_place_that_changes_meanwhile_is_told_again(books: Books, ticker: Ticker, other_ticker: Ticker) -> None:
    """E5: a follower is promoted while its tick takes its first place: it is told once more."""
    leader, other = await _triggered(books, MAIL, "ann", "ann")
    await books.owner.execute("delete from eec_workflow_wakeup where run_id = $1", other)
    await ticker.drain()
    assert await other_ticker.commit(await other_ticker.decide(TENANT, other)) == set()
    following = await other_ticker.decide(TENANT, other)
    assert [fact.place.value for fact in following.loaded.inbox.digests] == ["follows"]
    await books.control(leader, Verb.CANCEL, wake=False)
    assert await ticker.commit(await ticker.decide(TENANT, leader)) == set()
    assert await other_ticker.commit(following) == set()
    await _drained(ticker)
    waits = (await books.settled(other)).nodes[0].waiting
    assert waits is not None
    assert waits.leads
    assert await books.owner.fetchval("select leader_run_id::text from eec_workflow_digest") == other


async def test_backoff_in_one_batch(books: Books, ticker: Ticker) -> None:
    """E5, DG-05: of runs that arrive at one moment the first passes, and the others wait for each other."""
    runs = sorted(await _triggered(books, BACKOFF, "ann", "bob", "cid"))
    await ticker.drain()
    assert await _statuses(books, runs) == ["completed", "running", "running"]
    assert await _events(books, runs[0]) == runs[:1]
    assert (await books.settled(runs[1])).nodes[0].waiting.leads  # type: ignore[union-attr]


async def test_tenants_do_not_share_a_window(books: Books, ticker: Ticker) -> None:
    """E5, N1: the same key of another tenant is another window."""
    manifest = waiting(*MAIL)
    for tenant, runs in (("t", 1), ("u", 2)):
        version_id = await books.publish(manifest, tenant=tenant)
        for _ in range(runs):
            await books.start(version_id, tenant=tenant, input_='{"user": "ann"}')
    await ticker.drain()
    rows = await books.owner.fetch(
        "select tenant_id, count(*)::int as runs from eec_workflow_digest_arrival group by tenant_id, window_id order by 1"
    )
    assert [tuple(row) for row in rows] == [("t", 1), ("u", 2)]


async def test_large_inputs_stay_where_they_are_until_the_window_is_flushed(books: Books, ticker: Ticker) -> None:
    """L7: payloads are read by name, when the leader goes on; together they may not be larger than an output may be."""
    version_id = await books.publish(waiting(*MAIL))
    text = "x" * (LIMITS.aggregate_max_bytes // 3)
    runs = [await books.start(version_id, input_=json.dumps({"user": "ann", "text": text})) for _ in range(3)]
    await ticker.drain()
    await _time_over(books, ticker)
    await _drained(ticker)
    assert await _statuses(books, runs) == ["failed", "completed", "merged"]
    fault = (await books.run(runs[0])).fault
    assert fault is not None
    assert fault.code == "payload_too_large"
    assert await _events(books, runs[1]) == runs[1:]


async def test_lost_wake_ups_about_digests_are_found(books: Books, ticker: Ticker) -> None:
    """The net: a place that nobody was woken for is told after a sweep; what an operator holds waits for its resume (C2)."""
    leader, other = await _triggered(books, MAIL, "ann", "ann")
    await ticker.tick()
    await books.owner.execute("truncate eec_workflow_wakeup")
    swept = await Net(0).round(ticker.connection)
    assert swept.repaired["digests"] == 2
    await books.control(other, Verb.PAUSE)
    await ticker.drain()
    await _time_over(books, ticker)
    await _drained(ticker)
    assert await _statuses(books, [leader, other]) == ["completed", "paused"]
    assert (await Net(0).round(ticker.connection)).repaired["digests"] == 0
    await books.control(other, Verb.RESUME)
    await ticker.drain()
    assert await _statuses(books, [leader, other]) == ["completed", "merged"]


async def _closed(books: Books, ticker: Ticker) -> list[str]:
    """Three runs of a window that takes nobody any more; the leader does not know it yet."""
    runs = sorted(await _triggered(books, MAIL, "ann", "ann", "ann"))
    await ticker.drain()
    await _time_over(books, ticker)
    ticked = await ticker.tick()
    assert ticked.claimed == 1
    assert await books.owner.fetchval("select close_time is not null and flush_time is null from eec_workflow_digest")
    await books.owner.execute("truncate eec_workflow_wakeup")
    return runs
