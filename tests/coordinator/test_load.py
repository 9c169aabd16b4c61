"""What a tick loads and remembers: no more than it reads, no more than memory holds, nothing of a newer build."""

import asyncio
from datetime import UTC, datetime

import orjson
from msgspec import structs

from ductord.coordinator.cache import LARGE_BYTES, Cache, Known
from ductord.model.enums import SignalVerb, Verb
from ductord.model.specs import ActionSpec, Expression, Template
from tests.coordinator.conftest import Ticker
from tests.coordinator.waiters import Publisher, say, waiting
from tests.support.books import Books, chain
from tests.support.starts import start_of


async def test_a_large_output_is_loaded_where_it_is_read(books: Books, ticker: Ticker) -> None:
    """An output too large to be sent along with its report reaches the condition and the args that read it, and only theirs is loaded."""
    manifest = chain(3)
    args = Template(tree={"x": '${{ STEPS["s0"].output.x }}'}, static=False, names=("STEPS",), steps=("s0",))
    condition = Expression(source='size(STEPS["s0"].output.x) > 10', names=("STEPS",), steps=("s0",))
    reader = structs.replace(manifest.steps[1], action=ActionSpec(action="noop:noop", args=args))
    manifest = structs.replace(
        manifest,
        steps=(manifest.steps[0], reader, manifest.steps[2]),
        edges=(structs.replace(manifest.edges[0], condition=condition), manifest.edges[1]),
    )
    run_id = await books.start(await books.publish(manifest))
    text = "x" * 2 * LARGE_BYTES
    for _ in range(3):
        await ticker.drain()
        await books.report(output=f'{{"x": "{text}"}}')
    await ticker.drain()
    assert (await books.settled(run_id)).status == "completed"
    rendered = await books.owner.fetchval("select input::text from eec_workflow_step_attempt where step_ref = 's1'")
    assert orjson.loads(rendered) == {"x": text}


async def test_large_inputs_are_carried_a_few_at_a_time(books: Books, ticker: Ticker) -> None:
    """Runs whose inputs together are more than a tick carries start in several ticks, each with its own input; who does not read it is not held up."""
    manifest = chain(1)
    args = Template(tree={"x": "${{ TRIGGER.payload.n }}"}, static=False, names=("TRIGGER",))
    reader = structs.replace(manifest.steps[0], action=ActionSpec(action="noop:noop", args=args))
    version = await books.publish(structs.replace(manifest, steps=(reader,)))
    text = "x" * (5 << 20)
    for n in range(7):
        await books.start(version, input_=f'{{"n": {n}, "text": "{text}"}}')
    for _ in range(3):
        await books.start(await books.publish(manifest), input_=f'{{"text": "{text}"}}')
    assert [(await ticker.tick()).tasks for _ in range(4)] == [6, 3, 1, 0]
    rendered = await books.owner.fetch(
        "select input ->> 'x' as n from eec_workflow_step_attempt where input ->> 'x' <> ''"
    )
    assert sorted(row["n"] for row in rendered) == [str(n) for n in range(7)]


def test_the_cache_is_bounded_by_weight() -> None:
    """A few runs with many outputs push out those that were not used for longest, whatever their number."""
    cache = Cache()
    for n in range(100):
        start = start_of(run_id=f"r{n}", family_slug="x", create_time=datetime(2030, 1, 1, tzinfo=UTC))
        known = Known(start=start, run=None)
        for ref in range(20):
            known.remember_output(f"s{ref}", 1, None, LARGE_BYTES)
        known.remember_output("large", 1, None, LARGE_BYTES + 1)
        assert "large" not in known.outputs
        cache.keep(known)
    assert cache.runs.currsize <= 64 << 20
    assert 10 < len(cache.runs) < 100
    assert "r99" in cache.runs
    assert "r0" not in cache.runs


async def test_a_run_may_be_forgotten_while_it_is_loaded(books: Books, ticker: Ticker) -> None:
    """A tick that one run has to itself shares the cache, and may push out what another tick has just told the database that it knows."""
    run_id = await books.start(await books.publish(chain(2)))
    await ticker.drain()
    await books.report()
    ticking = asyncio.create_task(ticker.tick())
    while not ticking.done():
        ticker.cache.forget(run_id)
        await asyncio.sleep(0)
    assert (ticking.result().tasks, ticking.result().quarantined) == (1, 0)
    await books.settled(run_id)


async def test_a_state_of_a_newer_format_is_left_alone(books: Books, ticker: Ticker) -> None:
    """KB-03: a run whose row a newer build wrote is not read and written back with half of its state, though its version is an old one."""
    run_id = await books.start(await books.publish(chain(2)))
    await ticker.drain()
    await books.owner.execute("update eec_workflow_run set format_version = 99")
    before = await books.run(run_id)
    await books.report()
    assert (await ticker.tick()).foreign == 1
    assert await books.run(run_id) == before


async def test_a_newer_format_is_left_to_a_newer_coordinator(books: Books, ticker: Ticker) -> None:
    """KB-03: a run that this build does not understand is neither failed nor stranded: its wake-up stays."""
    run_id = await books.start(await books.publish(chain(1), format_version=99))
    ticked = await ticker.tick()
    assert (ticked.foreign, ticked.quarantined) == (1, 0)
    assert await books.status(run_id) == "pending"
    assert await books.owner.fetchval("select count(*) from eec_workflow_wakeup where run_id = $1", run_id) == 1


async def test_a_transition_is_no_older_than_what_it_was_decided_from(books: Books, ticker: Ticker) -> None:
    """C8, OB-01: a report and a control that came in while the tick was loading count, and its time is theirs: a replay finds what there was by that time."""
    run_id = await books.start(await books.publish(chain(2)))
    await ticker.drain()
    for fact in ("report", "control"):
        if fact == "report":
            await books.report()
            later = "update eec_workflow_step_attempt set report_time = eec_now() + interval '1 minute' where status = 'open' returning report_time"
        else:
            await books.control(run_id, Verb.PAUSE)
            later = (
                "update eec_workflow_intent set create_time = eec_now() + interval '2 minutes' returning create_time"
            )
        at = await books.owner.fetchval(later)
        await ticker.tick()
        assert await books.owner.fetchval("select max(at) from eec_workflow_transition where run_id = $1", run_id) == at
    await books.settled(run_id)


async def test_a_transition_is_no_older_than_what_was_said_and_received(
    books: Books, ticker: Ticker, publisher: Publisher
) -> None:
    """E1, E3, OB-01: the same of an event and of a signal."""
    lines = ('step w type=wait wait={"event": {"event_name": "paid"}}', "step ap type=approval", "w -success-> ap")
    run_id = await books.start(await books.publish(waiting(*lines)))
    await ticker.drain()
    await publisher.publish("paid")
    later = "update eec_workflow_receipt set receive_time = eec_now() + interval '1 minute' returning receive_time"
    at = await books.owner.fetchval(later)
    await ticker.tick()
    assert await books.owner.fetchval("select max(at) from eec_workflow_transition where run_id = $1", run_id) == at
    await ticker.drain()
    await say(books, run_id, SignalVerb.APPROVE, "ap", request_id="yes")
    later = "update eec_workflow_signal set create_time = eec_now() + interval '2 minutes' returning create_time"
    at = await books.owner.fetchval(later)
    await ticker.tick()
    assert await books.owner.fetchval("select max(at) from eec_workflow_transition where run_id = $1", run_id) == at
    assert await books.owner.fetchval("select settle_time from eec_workflow_signal") == at
    assert (await books.settled(run_id)).status == "completed"
