"""Signals as rows: applied once however often a tick dies, put away with their run, handed on to its successor (rulings E1, C6, C8)."""

import asyncpg
import pytest

from ductord.coordinator.cache import Cache
from ductord.coordinator.sweep import Net, watch
from ductord.model.control import ControlBody
from ductord.model.enums import SignalVerb, Verb
from ductord.model.events import NodeEnded
from ductord.model.ids import derived
from tests.coordinator.conftest import Ticker
from tests.coordinator.waiters import say, waiting
from tests.support.books import TENANT, Books

APPROVAL = ("step ap type=approval",)
LATER = ("step a action=noop:noop", "step ap type=approval", "a -success-> ap")
MINUTE = ('step w type=wait wait={"duration": "1m"}',)


async def _started(books: Books, ticker: Ticker, *lines: str) -> str:
    run_id = await books.start(await books.publish(waiting(*lines)))
    await ticker.drain()
    return run_id


async def _signals(books: Books, run_id: str) -> list[tuple[str, str, str]]:
    rows = await books.owner.fetch(
        "select request_id, status, outcome_message from eec_workflow_signal where run_id = $1 order by number", run_id
    )
    return [tuple(row) for row in rows]


async def _ends(books: Books, run_id: str) -> list[NodeEnded]:
    return [event for events in await books.history(run_id) for event in events if isinstance(event, NodeEnded)]


_DIE = """
create function die() returns trigger language plpgsql as $$ begin raise exception 'gone' using errcode = 'admin_shutdown'; end $$;
create constraint trigger die after insert on eec_workflow_transition deferrable initially deferred for each row execute function die();
"""


async def _die(books: Books, ticker: Ticker) -> None:
    """A coordinator ticks, writes everything, and is gone before its transaction commits."""
    await books.owner.execute(_DIE)
    with pytest.raises(asyncpg.AdminShutdownError):
        await ticker.tick()
    await books.owner.execute("drop trigger die on eec_workflow_transition; drop function die()")
    ticker.cache = Cache()


async def test_e1_a_signal_is_applied_once_however_often_a_tick_dies(books: Books, ticker: Ticker) -> None:
    """E1, C8: between the signal's insert and the commit of its tick coordinators die: one decision, one line in the trail, one output."""
    run_id = await _started(books, ticker, *APPROVAL)
    await say(books, run_id, SignalVerb.APPROVE, "ap", {"limit": 5}, request_id="yes")
    for _ in range(3):
        await _die(books, ticker)
        assert await _signals(books, run_id) == [("yes", "kept", "")]
    await ticker.drain()
    assert (await books.settled(run_id)).status == "completed"
    assert await _signals(books, run_id) == [("yes", "applied", "")]
    assert [event.status for event in await _ends(books, run_id)] == ["succeeded"]
    assert await books.trail(run_id) == [("anonymous", "approve", "applied")]
    line = await books.owner.fetchrow("select reason, request_id, detail::text from eec_workflow_audit")
    assert (line["reason"], line["request_id"]) == ("because", "yes")
    assert '"ann"' in line["detail"]
    output = "select output ->> 'approver_id' as who, output -> 'payload' ->> 'limit' as payload from eec_workflow_step_attempt"
    assert tuple(await books.owner.fetchrow(output)) == ("ann", "5")


async def test_tc_10_a_timer_fires_once_however_often_a_tick_dies(books: Books, ticker: Ticker) -> None:
    """TC-10: between its due time and its firing coordinators die: the watch wakes the run once, the wake-up outlives them, the wait ends once, never early."""
    run_id = await _started(books, ticker, *MINUTE)
    assert (await watch(ticker.connection)).timers == 0
    await books.owner.execute("update eec_workflow_timer set due_time = eec_now() - interval '1 second'")
    assert (await watch(ticker.connection)).timers == 1
    for _ in range(3):
        await _die(books, ticker)
        assert (await watch(ticker.connection)).timers == 0
    await ticker.drain()
    assert (await books.settled(run_id)).status == "completed"
    assert len(await _ends(books, run_id)) == 1
    assert await books.owner.fetchval("select count(*) from eec_workflow_timer") == 0


async def test_timers_that_are_due_together_fire_in_batches_oldest_first(books: Books, ticker: Ticker) -> None:
    """A thousand runs wait for a moment that has passed during a downtime: each is woken once, all end."""
    version = await books.publish(waiting(*MINUTE))
    runs = [await books.start(version) for _ in range(1_050)]
    await ticker.drain()
    await books.owner.execute("update eec_workflow_timer set due_time = due_time - interval '1 hour'")
    assert (await watch(ticker.connection)).timers == 1_050
    assert await books.owner.fetchval("select count(*) from eec_workflow_wakeup") == 1_050
    await ticker.drain()
    assert await books.owner.fetchval("select count(*) from eec_workflow_run where status = 'completed'") == len(runs)


async def test_se_06_a_signal_before_its_step_waits_is_kept(books: Books, ticker: Ticker) -> None:
    """E1, SE-06: it stays kept through ticks of other steps, in its order, and is applied in the tick that parks the step; what came second changes nothing."""
    run_id = await _started(books, ticker, *LATER)
    await say(books, run_id, SignalVerb.APPROVE, "ap", request_id="z-first")
    await say(books, run_id, SignalVerb.REJECT, "ap", request_id="a-second")
    await ticker.drain()
    assert {status for _, status, _ in await _signals(books, run_id)} == {"kept"}
    await books.report()
    ticked = await ticker.drain()
    assert ticked.transitions == 1
    assert (await books.settled(run_id)).nodes[1].status == "succeeded"
    assert [(name, status) for name, status, _ in await _signals(books, run_id)] == [
        ("z-first", "applied"),
        ("a-second", "ignored"),
    ]
    assert await books.trail(run_id) == [("anonymous", "approve", "applied")], "what changed nothing has no line"


async def test_e1_signals_end_with_their_run(books: Books, ticker: Ticker) -> None:
    """E1: what is kept when the run is terminated is discarded in that commit; what came while it was being decided, with the next tick."""
    run_id = await _started(books, ticker, *LATER)
    await say(books, run_id, SignalVerb.APPROVE, "ap", request_id="early")
    await books.control(run_id, Verb.TERMINATE)
    decided = await ticker.decide(TENANT, run_id)
    await say(books, run_id, SignalVerb.APPROVE, "ap", request_id="late")
    assert await ticker.commit(decided) == set()
    assert [status for _, status, _ in await _signals(books, run_id)] == ["discarded", "kept"]
    await ticker.drain()
    assert [status for _, status, _ in await _signals(books, run_id)] == ["discarded", "discarded"]
    assert await books.owner.fetchval("select count(*) from eec_workflow_wakeup") == 0


async def test_c6_signals_go_on_to_the_successor(books: Books, ticker: Ticker) -> None:
    """C6: what no step has consumed is the successor's, under its request id, in its order, with its payload; also what came while the run was closing."""
    run_id = await _started(books, ticker, *LATER)
    for name in ("z", "a"):
        await say(books, run_id, SignalVerb.APPROVE, "ap", {"said": name}, request_id=name)
    successor = derived("continue", run_id, "on")
    await books.control(run_id, Verb.CONTINUE_AS_NEW, request_id="on", body=ControlBody(new_run_id=successor))
    await ticker.tick()
    decided = await ticker.decide(TENANT, run_id)
    await say(books, run_id, SignalVerb.REJECT, "ap", request_id="meanwhile")
    assert await ticker.commit(decided) == set()
    await ticker.drain()
    assert await books.status(run_id) == "terminated"
    forwarded = "forwarded to the successor"
    assert await _signals(books, run_id) == [(name, "applied", forwarded) for name in ("z", "a", "meanwhile")]
    assert [(name, status) for name, status, _ in await _signals(books, successor)] == [
        ("z", "kept"),
        ("a", "kept"),
        ("meanwhile", "kept"),
    ]
    await books.report()
    await ticker.drain()
    assert (await books.settled(successor)).status == "completed"
    said = "select output -> 'payload' ->> 'said' from eec_workflow_step_attempt where run_id = $1 and step_ref = 'ap'"
    assert await books.owner.fetchval(said, successor) == "z"


async def test_c6_pending_signals_may_be_discarded(books: Books, ticker: Ticker) -> None:
    """C6: with `discard_pending` the successor begins without them."""
    run_id = await _started(books, ticker, *LATER)
    await say(books, run_id, SignalVerb.APPROVE, "ap", request_id="yes")
    successor = derived("continue", run_id, "on")
    body = ControlBody(new_run_id=successor, discard_pending=True)
    await books.control(run_id, Verb.CONTINUE_AS_NEW, request_id="on", body=body)
    await ticker.drain()
    assert [status for _, status, _ in await _signals(books, run_id)] == ["discarded"]
    assert await _signals(books, successor) == []


async def test_gj_06_word_whose_wake_up_was_lost_is_found(books: Books, ticker: Ticker) -> None:
    """GJ-06: a signal for a step that waits, or for a run that has ended, without a wake-up; but not one that is kept for a step to come, nor what is held."""
    waits, to_come, held, over = [await _started(books, ticker, *lines) for lines in (APPROVAL, LATER, APPROVAL, LATER)]
    await books.control(held, Verb.PAUSE_NODE, step_ref="ap")
    await books.control(over, Verb.TERMINATE)
    await ticker.drain()
    for run_id in (waits, to_come, held, over):
        await say(books, run_id, SignalVerb.APPROVE, "ap", request_id="yes", wake=False)
    assert not (await Net(60_000).round(ticker.connection)).woke, "not before the period is over"
    swept = await Net(0).round(ticker.connection)
    assert {place: count for place, count in swept.repaired.items() if count} == {"signals": 2}
    await ticker.drain()
    assert await books.status(waits) == "completed"
    assert await _signals(books, over) == [("yes", "discarded", "the run ended before its step took it")]
    assert [status for run_id in (to_come, held) for _, status, _ in await _signals(books, run_id)] == ["kept", "kept"]
    assert not (await Net(0).round(ticker.connection)).woke
    await books.control(held, Verb.RESUME_NODE, step_ref="ap")
    await ticker.drain()
    assert await books.status(held) == "completed", "what was held is applied by the resume"


async def test_a_run_that_waits_for_a_person_is_not_stuck(books: Books, ticker: Ticker) -> None:
    """Invariant 4: whoever waits for somebody outside may have no wake source of its own; a step at work beside it must have one."""
    both = ("step a action=noop:noop", "step ap type=approval")
    alone, beside = [await _started(books, ticker, *lines) for lines in (APPROVAL, both)]
    assert not (await Net(0).round(ticker.connection)).woke
    await books.owner.execute("delete from eec_workflow_step_attempt where run_id = $1", beside)
    swept = await Net(0).round(ticker.connection)
    assert swept.repaired["stuck"] == 1
    assert await books.owner.fetchval("select count(*) from eec_workflow_wakeup where run_id = $1", alone) == 0


@pytest.mark.parametrize("verb", [Verb.CANCEL, Verb.TERMINATE])
async def test_c3_a_wait_ends_at_once_and_leaves_nothing(verb: Verb, books: Books, ticker: Ticker) -> None:
    """C3: cancel and terminate end waits in the tick that applies them: no timer, no open wait, no attempt is left."""
    lines = (
        *MINUTE,
        'step e type=wait wait={"event": {"event_name": "paid"}, "timeout_ms": 60000}',
        'step ap type=approval approval={"timeout_ms": 60000}',
    )
    run_id = await _started(books, ticker, *lines)
    await books.control(run_id, verb)
    assert (await ticker.tick()).ended == 1
    await books.settled(run_id)
    for table in ("timer", "step_attempt", "wakeup", "wait where close_time is null"):
        assert await books.owner.fetchval(f"select count(*) from eec_workflow_{table}") == 0, table


async def test_a_tick_without_word_costs_no_statement_more(books: Books, ticker: Ticker) -> None:
    """Whether a run has signals or receipts comes along with its row: a tick that has none sends the statements that it always sent."""
    version = await books.publish(waiting(*LATER))
    await books.start(version)
    await ticker.drain()
    sent: list[str] = []
    ticker.connection.add_query_logger(lambda record: sent.append(record.query))
    await books.report()
    await books.start(version)
    await ticker.tick()
    tables = ("eec_workflow_signal", "eec_workflow_wait", "eec_workflow_receipt", "eec_workflow_event")
    reading = [query for query in sent if any(f"{table} " in query for table in tables)]
    assert len(reading) == 1, "the probes of load_runs"
