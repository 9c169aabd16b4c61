"""Publishing an external event: which waits it matches, when it is a duplicate, what is kept, and what filters may and may not do (E3)."""

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from ductord.signals.service import SERVICE
from tests.conftest import Database
from tests.signals.sender import Sender
from tests.signals.standing import Desk
from tests.support.edges import serving


async def test_by_name_and_key(sender: Sender, desk: Desk) -> None:
    """Every open wait for the name and the key, or for any key, gets a receipt; its run is woken once; the payload is stored once, exactly (L5)."""
    one, two, anyone = await desk.open(), await desk.open(), await desk.open(key=None)
    for key, name in (("other", "paid"), ("k", "shipped"), ("", "paid")):
        await desk.open(key=key, name=name)
    answer = await sender.publish(event_id="e", payload_json='{"n": 9007199254740993}')
    assert (answer.matched, answer.duplicate, answer.event_id, list(answer.started_run_ids)) == (3, False, "e", [])
    assert len(await desk.receipts()) == 3
    for run_id in (one, two, anyone):
        assert await desk.receipts(run_id) == [("ev", 1, "", "e")]
        assert await desk.wakeups(run_id) == 1
    row = await desk.owner.fetchrow("select payload::text, publish_time, dedupe_until from eec_workflow_event")
    assert row["payload"] == '{"n":9007199254740993}'
    assert row["dedupe_until"] - row["publish_time"] == timedelta(hours=24)
    received = await desk.owner.fetchval("select min(receive_time) from eec_workflow_receipt")
    assert received == row["publish_time"]


async def test_the_empty_key_is_a_key(sender: Sender, desk: Desk) -> None:
    """An event without a key is for waits with an empty one, and for those that take any."""
    empty, anyone = await desk.open(key=""), await desk.open(key=None)
    await desk.open(key="k")
    assert await sender.told(key="") == (2, False)
    assert len(await desk.receipts(empty)) == len(await desk.receipts(anyone)) == 1


async def test_se01_a_wait_for_one_event_is_over_with_the_first(database: Database, sender: Sender, desk: Desk) -> None:
    """SE-01, spec: `matched` is how many waits the event resolved. Of twenty events at once for one wait, before any tick, one resolves it; one that came too
    late is not remembered, or kept for a wait to come."""
    run_id = await desk.open()
    async with serving(database, [SERVICE], pool_max_size=4) as other:
        both = [sender, Sender(other)] * 10
        answers = await asyncio.gather(*(s.told(event_id=str(i)) for i, s in enumerate(both)))
    assert sorted(answers) == [(0, False)] * 19 + [(1, False)]
    assert len(await desk.receipts(run_id)) == len(await desk.events()) == 1
    assert await desk.wakeups(run_id) == 1
    assert await sender.told(event_id="late", ttl_seconds=60) == (0, False)
    assert (await desk.events())[-1] == ("late", 0, True)
    second = await desk.open()
    assert await sender.told(event_id="next") == (1, False)
    assert await desk.receipts(second) == [("ev", 1, "", "next")]


async def test_waits_are_counted_not_patterns(sender: Sender, desk: Desk) -> None:
    """One event may meet two requirements of a set: two receipts, one wait, one wake-up."""
    run_id = await desk.open(step_ref="set", requirement="a")
    await desk.open(run_id, "set", requirement="b")
    await desk.open(run_id, "ev")
    assert await sender.told(event_id="e") == (2, False)
    assert sorted(await desk.receipts(run_id)) == [("ev", 1, "", "e"), ("set", 1, "a", "e"), ("set", 1, "b", "e")]
    assert await desk.wakeups(run_id) == 1


async def test_se01_an_event_before_its_wait(sender: Sender, desk: Desk) -> None:
    """SE-01: it matches nothing and is not remembered, so the same id does something once there is a wait."""
    assert await sender.told(event_id="e") == (0, False)
    assert await desk.events() == []
    await desk.open()
    assert await sender.told(event_id="e") == (1, False)
    assert await sender.told(event_id="e") == (0, True)


async def test_a_closed_wait_gets_nothing(sender: Sender, desk: Desk) -> None:
    run_id = await desk.open()
    await desk.close(run_id)
    assert await sender.told() == (0, False)


async def test_se02_the_same_event_through_two_processes(database: Database, sender: Sender, desk: Desk) -> None:
    """SE-02: twenty times the same id at once: one publication, one receipt; every other answer is a duplicate. Another event counts again."""
    run_id = await desk.open(step_ref="set", requirement="money")
    async with serving(database, [SERVICE], pool_max_size=4) as other:
        both = [sender, Sender(other)] * 10
        answers = await asyncio.gather(*(s.told(event_id="e1") for s in both))
    assert sorted(answers) == [(0, True)] * 19 + [(1, False)]
    assert await sender.told(event_id="e2") == (1, False)
    assert await desk.receipts(run_id) == [("set", 1, "money", "e1"), ("set", 1, "money", "e2")]
    assert await desk.wakeups(run_id) == 2


async def test_se03_two_events_at_the_same_moment(database: Database, sender: Sender, desk: Desk) -> None:
    """SE-03: A and B published in parallel, fifty times over: both receipts are there each time."""
    runs = []
    for i in range(50):
        run_id = await desk.open(step_ref="set", requirement="a", name="A", key=str(i))
        await desk.open(run_id, "set", requirement="b", name="B", key=str(i))
        runs.append(run_id)
    async with serving(database, [SERVICE], pool_max_size=4) as other:
        another = Sender(other)
        calls = [s.told(name, str(i)) for i in range(50) for s, name in ((sender, "A"), (another, "B"))]
        assert await asyncio.gather(*calls) == [(1, False)] * 100
    for run_id in runs:
        assert [requirement for _, _, requirement, _ in sorted(await desk.receipts(run_id))] == ["a", "b"]


async def test_ids_are_those_of_a_name(sender: Sender, desk: Desk) -> None:
    """The producer's id dedupes per event name, whatever the key."""
    await desk.open()
    await desk.open(name="shipped")
    await desk.open(key="other")
    assert await sender.told(event_id="e") == (1, False)
    assert await sender.told("shipped", event_id="e") == (1, False)
    assert await sender.told(key="other", event_id="e") == (0, True)


async def test_an_id_dedupes_for_a_day(sender: Sender, desk: Desk) -> None:
    """After 24 hours it is another event; a wait that has received the first does not receive it again, and the first's payload stays."""
    holds = await desk.open(step_ref="set", requirement="money")
    assert await sender.told(event_id="e", payload=1) == (1, False)
    await desk.age(23)
    assert await sender.told(event_id="e", payload=2) == (0, True)
    await desk.age(1)
    assert await sender.told(event_id="e", payload=2) == (0, False)
    listens = await desk.open()
    assert await sender.told(event_id="e", payload=3) == (1, False)
    assert await desk.receipts(holds) == [("set", 1, "money", "e")]
    assert await desk.receipts(listens) == [("ev", 1, "", "e")]
    rows = await desk.owner.fetch("select payload::text from eec_workflow_event order by publish_time")
    assert [row["payload"] for row in rows] == ["1", "3"]


async def test_what_is_kept(sender: Sender, desk: Desk) -> None:
    """`ttl_seconds` keeps an event that matched nothing; one that matched is not kept, and both dedupe."""
    assert await sender.told(event_id="e", ttl_seconds=60) == (0, False)
    assert await sender.told(event_id="e", ttl_seconds=60) == (0, True)
    await desk.open()
    assert await sender.told(event_id="f", ttl_seconds=60) == (1, False)
    assert await desk.events() == [("e", 0, True), ("f", 1, False)]
    row = await desk.owner.fetchrow(
        "select keep_until - publish_time as keep from eec_workflow_event where event_id = 'e'"
    )
    assert row["keep"] == timedelta(seconds=60)


async def test_publishing_and_registering_serialise_on_the_key(sender: Sender, desk: Desk, database: Database) -> None:
    """Whoever keeps an event waits for a wait of its key, or of any, that is being registered, and finds it; one of another key keeps nobody waiting."""
    for key in ("k", None):
        async with asyncio.timeout(60):
            registers = await asyncpg.connect(database.owner)
            try:
                async with registers.transaction():
                    await registers.execute("select pg_advisory_xact_lock(eec_event_lock_key('t', 'paid', $1))", key)
                    publishing = asyncio.create_task(sender.told(event_id=f"e-{key}", ttl_seconds=60))
                    if key is not None:
                        assert await sender.told(key="other", ttl_seconds=60) == (0, False)
                    assert await sender.told(event_id=f"at-once-{key}") == (0, False)
                    await _waits_for_a_lock(desk)
                    await Desk(registers, desk.books).open(await desk.run(), key=key)
                assert await publishing == (1, False)
            finally:
                await registers.close()
        await desk.owner.execute("update eec_workflow_wait set close_time = now()")


async def test_a_wait_that_closes_meanwhile(sender: Sender, desk: Desk, database: Database) -> None:
    """E3: the publisher waits for a commit that closes the wait and then finds it closed: nothing is counted that is not applied."""
    run_id = await desk.open()
    closes = await asyncpg.connect(database.owner)
    try:
        async with asyncio.timeout(60):
            async with closes.transaction():
                await closes.execute("select from eec_workflow_wait where run_id = $1 for update", run_id)
                publishing = asyncio.create_task(sender.told(event_id="e"))
                await _waits_for_a_lock(desk)
                await closes.execute("update eec_workflow_wait set close_time = now() where run_id = $1", run_id)
            assert await publishing == (0, False)
    finally:
        await closes.close()
    assert await desk.receipts() == await desk.events() == []


async def test_filters(sender: Sender, desk: Desk) -> None:
    """A CEL bool over EVENT: name, id, key, payload and time."""
    today = datetime.now(UTC).date().isoformat()
    passing = [
        "EVENT.payload.amount > 100",
        "EVENT.name == 'paid' && EVENT.id == 'e' && EVENT.correlation_key == 'k'",
        f"EVENT.time.startsWith('{today[:7]}') && EVENT.time.endsWith('Z')",
        "has(EVENT.payload.amount) && EVENT.payload.items.exists(i, i == 2)",
    ]
    failing = ["EVENT.payload.amount > 12900", "false", "!has(EVENT.payload.amount)"]
    broken = [
        "EVENT.payload.missing == 1",
        "EVENT.payload.amount",
        "EVENT.payload.amount / 0 == 1",
        "NOPE",
        "((",
        "null",
    ]
    runs = {source: await desk.open(filter_=source) for source in (*passing, *failing, *broken)}
    assert await sender.told(event_id="e", payload={"amount": 12900, "items": [1, 2]}) == (len(passing), False)
    for source, run_id in runs.items():
        assert len(await desk.receipts(run_id)) == (source in passing), source


async def test_one_bad_expression_stops_no_other_wait(sender: Sender, desk: Desk) -> None:
    """A filter without end is given up by itself; waits with other filters get the event all the same, and nobody else waits for them meanwhile."""
    numbers = list(range(400))
    dear = "EVENT.payload.all(a, EVENT.payload.all(b, EVENT.payload.all(c, a + b + c >= {})))"
    bad = [await desk.open(filter_=dear.format(-i)) for i in range(12)]
    good = await desk.open(filter_="size(EVENT.payload) == 400")
    plain = await desk.open()
    assert await sender.told(event_id="e", payload=numbers, timeout=60) == (2, False)
    for run_id in bad:
        assert await desk.receipts(run_id) == []
    for run_id in (good, plain):
        assert await desk.receipts(run_id) == [("ev", 1, "", "e")]


async def test_a_wait_that_opens_while_filters_are_judged(
    sender: Sender, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lock is held while filters are judged, so another wait may turn up then: it is judged too."""
    from ductord.signals import filters

    first = await desk.open(filter_="EVENT.payload == 1")
    judge = filters.Verdicts.judge
    late: list[str] = []

    async def slowly(self: filters.Verdicts, *given: object) -> None:
        if not late:
            late.append(await desk.open(filter_="EVENT.payload < 2"))
        await judge(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(filters.Verdicts, "judge", slowly)
    assert await sender.told(event_id="e", payload=1) == (2, False)
    assert len(await desk.receipts(first)) == len(await desk.receipts(late[0])) == 1


async def _waits_for_a_lock(desk: Desk) -> None:
    """Until a statement of another session stands before a lock."""
    locks = "select exists (select from pg_locks where not granted)"
    while not await desk.owner.fetchval(locks):  # noqa: ASYNC110  # rows have no event
        await asyncio.sleep(0.01)
