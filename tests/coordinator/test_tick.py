"""Group ticks on real Postgres: claim, decide, commit, lose a race, set a poisoned run aside."""

import asyncio
from typing import get_args

import asyncpg
import pytest
from msgspec import structs

from ductord.coordinator import attempts, births, children, decided, digests, items, records, waits
from ductord.coordinator import commit as commit_module
from ductord.coordinator.commit import commit
from ductord.coordinator.decided import Decided
from ductord.coordinator.load import load
from ductord.coordinator.starts import SQL
from ductord.coordinator.tick import Ticked, tick
from ductord.db.outage import is_outage
from ductord.engine.decide import decide
from ductord.model.decision import Decision
from ductord.model.effects import Effect
from tests.coordinator.conftest import Ticker
from tests.coordinator.waiters import blocked
from tests.support.books import TENANT, Books, chain


async def test_runs_go_from_start_to_end_in_group_ticks(books: Books, ticker: Ticker) -> None:
    """Ten runs of three steps: four ticks for all of them, one attempt per step, the history folds to the row."""
    version = await books.publish(chain(3))
    runs = [await books.start(version) for _ in range(10)]
    for _ in range(3):
        ticked = await ticker.tick()
        assert (ticked.claimed, ticked.tasks) == (10, 10)
        assert await books.report() == 10
    assert (await ticker.tick()).ended == 10
    assert (await ticker.tick()).claimed == 0
    for run_id in runs:
        run = await books.settled(run_id)
        assert run.status == "completed"
    rows = await books.owner.fetch(
        "select step_ref, count(*), max(attempt) as attempt, min(status) as status from eec_workflow_step_attempt group by 1"
    )
    assert {(r["step_ref"], r["count"], r["attempt"], r["status"]) for r in rows} == {
        (f"s{i}", 10, 1, "succeeded") for i in range(3)
    }


async def test_a_tick_goes_on_beside_another_one(books: Books, ticker: Ticker, other_ticker: Ticker) -> None:
    """Two ticks of one process share what it remembers: the second begins when the first has decided, and takes the runs that that one does not hold."""
    version = await books.publish(chain(3))
    runs = [await books.start(version) for _ in range(30)]
    claimed, transitions = [], []
    for _ in range(4):
        beside: list[asyncio.Task[Ticked]] = []

        def begin(runs: int, beside: list[asyncio.Task[Ticked]] = beside) -> None:
            ticking = tick(other_ticker.connection, ticker.cache, ticker.limits, 20)
            beside.append(asyncio.get_running_loop().create_task(ticking))

        first = await tick(ticker.connection, ticker.cache, ticker.limits, 20, decided=begin)
        second = await beside[0]
        claimed.append((first.claimed, first.conflicts + second.conflicts))
        transitions.append(first.transitions + second.transitions)
        await books.report()
    assert claimed == [(20, 0)] * 4
    # The second may look at runs that the first has let go of a moment before: it finds nothing to do there, and what it had no place for is claimed next.
    assert max(transitions) == 30
    assert min(transitions) >= 20
    for _ in range(4):
        await ticker.drain()
        await books.report()
    await ticker.drain()
    for run_id in runs:
        assert (await books.settled(run_id)).status == "completed"


async def test_a_second_wake_up_changes_nothing(books: Books, ticker: Ticker) -> None:
    """An empty inbox decides nothing: no transition, no attempt."""
    run_id = await books.start(await books.publish(chain(2)))
    await ticker.drain()
    before = await books.run(run_id)
    for _ in range(3):
        await books.wake(run_id)
    assert (await ticker.tick()).transitions == 0
    assert await books.run(run_id) == before
    assert await books.owner.fetchval("select count(*) from eec_workflow_wakeup") == 0


async def test_the_current_step_is_the_one_begun_last_that_is_open(books: Books, ticker: Ticker) -> None:
    """For people who glance: of two branches the one that goes on, and when its step ends too, the one that is left."""
    manifest = chain(2)
    lone = structs.replace(manifest.steps[0], ref="lone", incoming=(), outgoing=())
    manifest = structs.replace(manifest, steps=(*manifest.steps, lone), entrypoints=(0, 2))
    run_id = await books.start(await books.publish(manifest))
    current = "select current_step from eec_workflow_run where run_id = $1"
    seen = []
    for ends in ("s0", "s1", "lone"):
        await ticker.drain()
        seen.append(await books.owner.fetchval(current, run_id))
        await books.owner.execute(
            "update eec_workflow_step_attempt set due_time = 'infinity' where step_ref <> $1 and status = 'open'", ends
        )
        await books.owner.execute("update eec_workflow_step_attempt set due_time = eec_now() where step_ref = $1", ends)
        assert await books.report() == 1
    await ticker.drain()
    seen.append(await books.owner.fetchval(current, run_id))
    assert seen == ["lone", "s1", "lone", ""]


async def test_a_late_report_is_closed_and_changes_nothing(books: Books, ticker: Ticker) -> None:
    """G8: an inbox row that arrives after the end does not stay unapplied, and the terminal run stays as it is."""
    version = await books.publish(chain(1))
    run_id = await books.start(version)
    await ticker.drain()
    await books.report()
    await ticker.drain()
    before = await books.settled(run_id)
    await books.owner.execute(
        "insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, attempt, tier, queue, action, input, idempotency_key, due_time, create_time)"
        " select tenant_id, run_id, step_ref, 2, tier, queue, action, input, 'k', due_time, create_time from eec_workflow_step_attempt"
    )
    assert await books.report() == 1
    await ticker.drain()
    assert await books.settled(run_id) == before
    assert await books.owner.fetchval("select count(*) from eec_workflow_step_attempt where status = 'open'") == 0


async def test_two_coordinators_never_tick_one_run_at_once(books: Books, ticker: Ticker, other_ticker: Ticker) -> None:
    """The try-lock at the claim: what one has claimed the other passes over, and gets when it is free again."""
    version = await books.publish(chain(1))
    first = await books.start(version)
    transaction = ticker.connection.transaction()
    await transaction.start()
    claimed = await ticker.connection.fetch(SQL["claim_runs"], 10)
    assert [row["run_id"] for row in claimed] == [first]
    second = await books.start(version)
    await books.wake(first)
    assert (await other_ticker.drain()).claimed == 1
    assert (await books.status(first), await books.status(second)) == ("pending", "running")
    await transaction.rollback()
    assert (await other_ticker.drain()).claimed == 1
    assert await books.status(first) == "running"


async def test_a_second_coordinator_works_behind_the_first(books: Books, ticker: Ticker, other_ticker: Ticker) -> None:
    """With more due than one batch holds, what the first has claimed does not hide the rest from the second."""
    version = await books.publish(chain(1))
    for _ in range(20):
        await books.start(version)
    async with ticker.connection.transaction():
        claimed = await ticker.connection.fetch(SQL["claim_runs"], 10)
        assert (await other_ticker.tick(batch_size=10)).claimed == 10
    assert len(claimed) == 10
    assert await books.owner.fetchval("select count(*) from eec_workflow_wakeup") == 0


async def test_the_loser_of_a_race_writes_nothing(books: Books, ticker: Ticker, other_ticker: Ticker) -> None:
    """The versioned update guards every statement of the commit: a decision over an old version leaves no trace."""
    version = await books.publish(chain(2))
    run_id = await books.start(version)
    await ticker.drain()
    await books.report()
    async with ticker.connection.transaction():
        claimed = await ticker.connection.fetch(SQL["claim_runs"], 10)
        batch = await load(ticker.connection, ticker.cache, claimed)
        (loaded,) = batch.runs
        assert loaded.compiled is not None
        decision = decide(loaded.compiled.manifest, loaded.compiled.programs, loaded.known.run, loaded.inbox, batch.now)
        assert isinstance(decision, Decision)
        assert decision.events
        await books.owner.execute("update eec_workflow_run set record_version = record_version + 1")
        lost = await commit(ticker.connection, [Decided(loaded=loaded, decision=decision)], batch.now, [])
    assert lost == {run_id}
    assert await books.owner.fetchval("select count(*) from eec_workflow_step_attempt") == 1
    assert await books.owner.fetchval("select count(*) from eec_workflow_transition") == 1


async def test_a_poisoned_run_is_set_aside_alone(books: Books, ticker: Ticker) -> None:
    """C9: a version that cannot be read quarantines its own run; the error is in the books, a later wake-up retries, the others go on."""
    good = [await books.start(await books.publish(chain(1))) for _ in range(3)]
    bad = await books.start(await books.publish(chain(1), text='{"family_slug": 5}'))
    ticked = await ticker.tick()
    assert (ticked.claimed, ticked.quarantined, ticked.transitions) == (4, 1, 3)
    assert [await books.status(run_id) for run_id in good] == ["running"] * 3
    row = await books.owner.fetchrow("select run_id::text, error, ticks from eec_workflow_quarantine")
    assert (row["run_id"], row["ticks"]) == (bad, 1)
    assert "ValidationError" in row["error"]
    assert await books.owner.fetchval("select due_time > eec_now() from eec_workflow_wakeup where run_id = $1", bad)


async def test_data_that_aborts_the_commit_is_found_by_bisection(books: Books, ticker: Ticker) -> None:
    """C9: one run whose rows Postgres refuses does not keep the other 15 of its batch from their tick; healed, it goes on and leaves quarantine."""
    version = await books.publish(chain(1))
    runs = [await books.start(version) for _ in range(16)]
    await books.owner.execute(
        f"""
        create function refuse() returns trigger language plpgsql as $$
        begin if new.run_id = '{runs[5]}' then raise exception 'no' using errcode = '22000'; end if; return new; end $$;
        create trigger refuse before insert on eec_workflow_step_attempt for each row execute function refuse();
        """
    )
    ticked = await ticker.tick()
    assert (ticked.quarantined, ticked.transitions) == (1, 15)
    assert await books.status(runs[5]) == "pending"
    assert await books.owner.fetchval("select run_id::text from eec_workflow_quarantine") == runs[5]
    await books.owner.execute("drop trigger refuse on eec_workflow_step_attempt")
    await books.wake(runs[5])
    await ticker.drain()
    assert await books.status(runs[5]) == "running"
    assert await books.owner.fetchval("select count(*) from eec_workflow_quarantine") == 0


async def test_c9_a_run_that_is_put_off_has_one_wake_up(books: Books, ticker: Ticker) -> None:
    """C9, KB-03: however often a run is woken that is quarantined or foreign, one wake-up in the future is all there is of it afterwards."""
    bad = await books.start(await books.publish(chain(1), text='{"family_slug": 5}'))
    foreign = await books.start(await books.publish(chain(1), format_version=99))
    for ticks in range(1, 5):
        ticked = await ticker.tick()
        assert (ticked.claimed, ticked.quarantined, ticked.foreign) == (2, 1, 1)
        assert await books.owner.fetchval("select ticks from eec_workflow_quarantine") == ticks
        for run_id in (bad, foreign):
            due = await books.owner.fetch(
                "select due_time > eec_now() as later from eec_workflow_wakeup where run_id = $1", run_id
            )
            assert [row["later"] for row in due] == [True]
            await books.wake(run_id)


async def test_one_tenants_backlog_does_not_hold_up_another(books: Books, ticker: Ticker) -> None:
    """The claim takes tenants in turn: a single wake-up of b is in the first batch although a has 300 older ones."""
    a = await books.publish(chain(1))
    b = await books.publish(chain(1), tenant="b")
    for _ in range(300):
        await books.start(a)
    late = await books.start(b, tenant="b")
    await ticker.tick(batch_size=50)
    assert await books.status(late) == "running"


async def test_begun_runs_come_before_new_ones(books: Books, ticker: Ticker) -> None:
    """Of a tenant's runs those that have begun go first, however long new ones have waited: else, behind a backlog, all runs would be open at once, and
    no memory would hold them."""
    version = await books.publish(chain(2))
    begun = [await books.start(version) for _ in range(5)]
    await ticker.tick()
    waiting = [await books.start(version) for _ in range(100)]
    assert await books.report() == 5
    await ticker.tick(batch_size=5)
    assert await books.report() == 5
    await ticker.tick(batch_size=5)
    assert {await books.status(run) for run in begun} == {"completed"}
    assert {await books.status(run) for run in waiting} == {"pending"}


async def test_new_runs_have_one_place_in_sixteen(books: Books, ticker: Ticker) -> None:
    """Nobody waits for ever: of 64 places behind a backlog of begun runs four go to new ones, those that have waited longest."""
    version = await books.publish(chain(2))
    for _ in range(100):
        await books.start(version)
    await ticker.tick()
    assert await books.report() == 100
    waiting = [await books.start(version) for _ in range(100)]
    assert (await ticker.tick(batch_size=64)).claimed == 64
    assert [run for run in waiting if await books.status(run) != "pending"] == waiting[:4]


async def test_a_run_that_was_served_meanwhile_is_not_claimed(
    books: Books, ticker: Ticker, other_ticker: Ticker
) -> None:
    """The look may be older than the lock: whose wake-up another tick has served by then has nothing to do."""
    version = await books.publish(chain(1))
    runs = [await books.start(version) for _ in range(3)]
    async with books.owner.transaction():
        await books.owner.execute("delete from eec_workflow_wakeup where run_id = $1", runs[0])
        claiming = asyncio.create_task(ticker.tick())
        await blocked(books, claiming)
    assert (await claiming).claimed == 2
    assert (await other_ticker.tick()).claimed == 0


async def test_il_06_run_locks_are_64_bits_and_not_shared(books: Books, ticker: Ticker) -> None:
    """IL-06: two run ids with equal hashtext() have different lock keys; the claim is the only place that locks."""
    pair = await books.owner.fetchrow(
        "with ids as (select md5(g::text)::uuid as id from generate_series(1, 200000) g)"
        " select min(id::text)::uuid as a, max(id::text)::uuid as b from ids group by hashtext(id::text) having count(*) > 1 limit 1"
    )
    assert pair is not None, "200,000 ids hold a collision of 32 bits"
    keys = [await books.owner.fetchval("select eec_run_lock_key($1)", pair[name]) for name in ("a", "b")]
    assert keys[0] != keys[1]
    assert max(abs(key) for key in keys) > 2**32


async def test_errors_of_everybody_are_not_a_runs_fault(books: Books, ticker: Ticker) -> None:
    """PG-01: an outage raises and quarantines nobody; the wake-ups are still there for the next tick."""
    run_id = await books.start(await books.publish(chain(1)))
    await books.owner.execute("select pg_terminate_backend($1, 5000)", ticker.connection.get_server_pid())
    # What a client says of a lost connection depends on when it learns of it.
    with pytest.raises(Exception) as lost:
        await ticker.tick()
    assert is_outage(lost.value)
    assert await books.owner.fetchval("select count(*) from eec_workflow_quarantine") == 0
    assert (
        await books.owner.fetchval(
            "select count(*) from eec_workflow_wakeup where tenant_id = $1 and run_id = $2", TENANT, run_id
        )
        == 1
    )


@pytest.mark.parametrize("state", ["40001", "40P01"])
async def test_pg_07_a_commit_that_conflicts_is_told_as_such(books: Books, ticker: Ticker, state: str) -> None:
    """PG-07: a conflict found at COMMIT raises as what it is, leaves no transaction open, and the same tick goes through afterwards."""
    run_id = await books.start(await books.publish(chain(1)))
    await _fail_at_commit(books, state)
    with pytest.raises((asyncpg.SerializationError, asyncpg.DeadlockDetectedError)):
        await ticker.tick()
    assert not ticker.connection.is_in_transaction()
    await books.owner.execute("drop function fail_at_commit cascade")
    await ticker.tick()
    assert await books.status(run_id) == "running"


async def test_data_that_aborts_the_commit_itself_is_set_aside_too(books: Books, ticker: Ticker) -> None:
    """C9: a constraint that is checked only at COMMIT concerns the run at fault alone."""
    version_id = await books.publish(chain(1))
    runs = [await books.start(version_id) for _ in range(4)]
    await _fail_at_commit(books, "23514", runs[2])
    ticked = await ticker.tick()
    assert (ticked.transitions, ticked.quarantined) == (3, 1)
    assert await books.owner.fetchval("select run_id::text from eec_workflow_quarantine") == runs[2]


async def _fail_at_commit(books: Books, state: str, run_id: str | None = None) -> None:
    condition = "true" if run_id is None else f"new.run_id = '{run_id}'"
    await books.owner.execute(
        f"create function fail_at_commit() returns trigger language plpgsql as $$ begin"
        f" if {condition} then raise 'at commit' using errcode = '{state}'; end if; return null; end $$"
    )
    await books.owner.execute(
        "create constraint trigger fail_at_commit after insert on eec_workflow_transition deferrable initially deferred"
        " for each row execute function fail_at_commit()"
    )


async def test_state_that_nobody_expected_is_one_runs_fault(books: Books, ticker: Ticker) -> None:
    """C9: whatever a run's stored state makes load or commit raise, by whatever name, the others of its batch get their tick."""
    version = await books.publish(chain(2))
    runs = [await books.start(version) for _ in range(5)]
    await ticker.drain()
    await books.report()
    await books.owner.execute("update eec_workflow_run set edge_states = '' where run_id = $1", runs[2])
    ticker.cache.runs.clear()
    ticked = await ticker.tick()
    assert (ticked.quarantined, ticked.transitions) == (1, 4)
    assert await books.owner.fetchval("select run_id::text from eec_workflow_quarantine") == runs[2]


_WRITERS = (attempts, births, children, commit_module, decided, digests, items, records, waits)


def test_every_effect_is_written() -> None:
    """An effect that the engine learns and the commit does not know would be dropped without a word."""
    known = {name for module in _WRITERS for name in vars(module)}
    assert {effect.__name__ for effect in get_args(Effect)} <= known
