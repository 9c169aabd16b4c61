"""Sweeps: overdue attempts are reported once, due timers wake once, and no lost wake-up strands a run."""

from msgspec import structs

from ductord.coordinator.sweep import Net, rest, watch
from ductord.model.enums import Verb
from tests.coordinator.conftest import Ticker
from tests.coordinator.test_lates import undoable
from tests.coordinator.waiters import waiting
from tests.coordinator.workers import Workers
from tests.support.books import Books, chain


async def _lease(
    books: Books, *, lease: str = "interval '-1 second'", deadline: str = "null", heartbeat: str = "null"
) -> None:
    """Lease every open attempt, as dispatch does, with limits relative to now."""
    await books.owner.execute(
        f"""
        update eec_workflow_step_attempt set lease_secret = 's', start_time = eec_now() - interval '10 seconds', lease_expire_time = eec_now() + {lease},
            deadline_time = eec_now() + {deadline}, heartbeat_time = eec_now() + {heartbeat},
            check_time = least(eec_now() + {lease}, eec_now() + {deadline}, eec_now() + {heartbeat} + heartbeat_timeout_ms * interval '1 millisecond')
        where status = 'open'
        """
    )


async def test_rt_06_each_loss_is_recorded_and_the_sixth_fails_the_node(books: Books, ticker: Ticker) -> None:
    """RT-06, A4: an expired lease is `lost` and requeued without spending a retry; the node's sixth loss fails it `worker_lost`."""
    run_id = await books.start(await books.publish(chain(1)))
    await ticker.drain()
    for loss in range(1, 7):
        await _lease(books)
        swept = await watch(ticker.connection)
        assert swept.expired == {"lost": 1}, loss
        await ticker.drain()
    run = await books.settled(run_id)
    assert run.status == "failed"
    assert run.nodes[0].fault is not None
    assert run.nodes[0].fault.code == "worker_lost"
    statuses = await books.owner.fetch(
        "select attempt, status, idempotency_key from eec_workflow_step_attempt order by attempt"
    )
    assert [(row["attempt"], row["status"]) for row in statuses] == [(n, "lost") for n in range(1, 7)]
    assert len({row["idempotency_key"] for row in statuses}) == 1, "A6: the outcome stays unknown, so the key stays"


async def test_rt_03_a_heartbeating_attempt_is_never_rescued(books: Books, ticker: Ticker) -> None:
    """RT-03, A4: leases live by heartbeat, never by the attempt's age."""
    await books.start(await books.publish(chain(1)))
    await ticker.drain()
    await _lease(books, lease="interval '15 seconds'")
    await books.owner.execute("update eec_workflow_step_attempt set start_time = eec_now() - interval '3 days'")
    assert not (await watch(ticker.connection)).woke


async def test_each_limit_has_its_own_outcome(books: Books, ticker: Ticker) -> None:
    """A3: deadline, heartbeat silence, queue time-out and lost lease are told apart, by database time."""
    cases = [
        ("timed_out", {"timeout_ms": 1000}, {"lease": "interval '5 seconds'", "deadline": "interval '-1 second'"}),
        (
            "heartbeat_timed_out",
            {"heartbeat_timeout_ms": 1000},
            {"lease": "interval '5 seconds'", "heartbeat": "interval '-3 seconds'"},
        ),
        ("lost", {}, {}),
    ]
    for outcome, settings, limits in cases:
        await books.start(await books.publish(chain(1, **settings)))
        await ticker.drain()
        await _lease(books, **limits)
        assert (await watch(ticker.connection)).expired == {outcome: 1}
        await books.owner.execute("delete from eec_workflow_wakeup")
        await books.owner.execute("update eec_workflow_step_attempt set status = 'cancelled'")
    await books.start(await books.publish(chain(1, queue_timeout_ms=1000)))
    await ticker.drain()
    assert not (await watch(ticker.connection)).woke
    await books.owner.execute(
        "update eec_workflow_step_attempt set check_time = check_time - interval '2 seconds' where status = 'open'"
    )
    assert (await watch(ticker.connection)).expired == {"queue_timed_out": 1}


async def test_gj_06_a_lost_wake_up_strands_no_run(books: Books, ticker: Ticker) -> None:
    """GJ-06: the last step has reported, its wake-up is deleted; one sweep period later the net wakes the run and it completes."""
    run_id = await books.start(await books.publish(chain(1)))
    await ticker.drain()
    await books.report(wake=False)
    assert (await ticker.drain()).claimed == 0
    assert not (await Net(60_000).round(ticker.connection)).woke, "not before the period is over"
    swept = await Net(0).round(ticker.connection)
    assert {place: count for place, count in swept.repaired.items() if count} == {"reports": 1}
    await ticker.drain()
    assert (await books.settled(run_id)).status == "completed"


async def test_gj_06_a_start_without_wake_up_is_found(books: Books, ticker: Ticker) -> None:
    """GJ-06: a run that was born and never woken."""
    run_id = await books.start(await books.publish(chain(1)), wake=False)
    assert (await Net(0).round(ticker.connection)).repaired["starts"] == 1
    await ticker.drain()
    assert await books.status(run_id) == "running"


async def test_gj_06_an_old_start_is_found_too(books: Books, ticker: Ticker) -> None:
    """GJ-06: a start that is older than anything the net has looked at lately, by the walk over all starts."""
    net = Net(0)
    assert (await net.round(ticker.connection)).repaired["starts"] == 0
    run_id = await books.start(await books.publish(chain(1)), wake=False)
    await books.owner.execute("update eec_workflow_run_start set create_time = create_time - interval '3 days'")
    assert (await net.round(ticker.connection)).repaired["starts"] == 1
    await ticker.drain()
    assert await books.status(run_id) == "running"


async def test_c9_the_net_leaves_a_run_alone_that_is_set_aside(books: Books, ticker: Ticker) -> None:
    """C9: a quarantined run keeps its due timer, and its growing delay; only a timer whose wake-up is really gone wakes again."""
    manifest = structs.replace(chain(1), run_timeout_ms=60_000)
    run_id = await books.start(await books.publish(manifest))
    await ticker.drain()
    await books.owner.execute("update eec_workflow_timer set due_time = due_time - interval '61 seconds'")
    await books.owner.execute("update eec_workflow_run set run_state = '{\"stop\": 5}'")
    ticker.cache.runs.clear()
    assert (await watch(ticker.connection)).timers == 1
    assert (await ticker.tick()).quarantined == 1
    assert not (await Net(0).round(ticker.connection)).woke
    assert (await watch(ticker.connection)).timers == 0
    await books.owner.execute("delete from eec_workflow_wakeup where run_id = $1", run_id)
    assert (await Net(0).round(ticker.connection)).repaired["timers"] == 1
    assert (await watch(ticker.connection)).timers == 1


async def test_a_run_that_waits_for_something_is_not_stuck(books: Books, ticker: Ticker) -> None:
    """Invariant 4: an open attempt is a wake source; without any the net counts the run, page after page."""
    version = await books.publish(chain(2))
    runs = [await books.start(version) for _ in range(3)]
    await ticker.drain()
    net = Net(0)
    assert (await net.round(ticker.connection)).repaired["stuck"] == 0
    await books.owner.execute("delete from eec_workflow_step_attempt where run_id = any($1::uuid[])", runs[:2])
    assert (await net.round(ticker.connection)).repaired["stuck"] == 2


async def test_gj_06_a_compensation_that_nobody_moves_is_found(books: Books, ticker: Ticker, workers: Workers) -> None:
    """GJ-06, C7: a run that has ended and is being undone has an open attempt or a wake-up; if it has neither, the net counts it and wakes it."""
    run_id = await books.start(await books.publish(undoable(2)))
    await ticker.drain()
    await workers.succeed(*await workers.lease())
    await ticker.drain()
    await books.control(run_id, Verb.CANCEL)
    await ticker.drain()
    assert (await books.settled(run_id)).saga.status == "running"
    assert not (await Net(0).round(ticker.connection)).woke
    await books.owner.execute("delete from eec_workflow_step_attempt where kind = 'compensation'")
    assert (await Net(0).round(ticker.connection)).repaired["compensations"] == 1


async def test_due_timers_wake_their_runs_once(books: Books, ticker: Ticker) -> None:
    """A run time-out fires from its timer: one wake-up, and the tick that fires it deletes it."""
    manifest = chain(1)
    version = await books.publish(
        type(manifest)(**{f: getattr(manifest, f) for f in manifest.__struct_fields__} | {"run_timeout_ms": 60_000})
    )
    run_id = await books.start(version)
    await ticker.drain()
    assert (await watch(ticker.connection)).timers == 0
    await books.owner.execute("update eec_workflow_timer set due_time = due_time - interval '61 seconds'")
    assert (await watch(ticker.connection)).timers == 1
    assert (await watch(ticker.connection)).timers == 0
    await ticker.drain()
    run = await books.run(run_id)
    assert run.stop is not None
    assert run.stop.cause == "timed_out"


async def test_the_watch_says_when_to_look_again(books: Books, ticker: Ticker) -> None:
    """When the next timer is due that has woken nobody: not a half-second later (TC-10). Without one there is nothing to say."""
    assert (await watch(ticker.connection)).next_s is None
    version = await books.publish(waiting('step w type=wait wait={"duration": "${{ TRIGGER.payload.for }}"}'))
    for length in ("1h", "5m"):
        await books.start(version, input_=f'{{"for": "{length}"}}')
    await ticker.drain()
    next_s = (await watch(ticker.connection)).next_s
    assert next_s is not None
    assert 290 < next_s < 300
    await books.owner.execute("update eec_workflow_timer set due_time = eec_now() where due_time < eec_now() + interval '10 minutes'")  # fmt: skip
    swept = await watch(ticker.connection)
    assert swept.timers == 1
    assert swept.next_s is not None
    assert 3_500 < swept.next_s <= 3_600, "the one that is due has woken its run"


async def test_f1_the_next_wake_up_is_known(books: Books, ticker: Ticker) -> None:
    """F1: whoever is to begin later is told of by nobody: children with 100 ms between them began ten at a time, once a second."""
    assert await rest(ticker.connection) == (False, None)
    run_id = await books.start(await books.publish(chain(1)), wake=False)
    later = "insert into eec_workflow_wakeup (tenant_id, run_id, due_time) values ($1, $2, eec_now() + $3 * interval '1 second')"
    for tenant, seconds in (("a", 300), ("b", 30), ("b", 60), ("b", -5)):
        await books.owner.execute(later, tenant, run_id, seconds)
    due, next_s = await rest(ticker.connection)
    assert due
    assert 0 < (next_s or 0) <= 30
