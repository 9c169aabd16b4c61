"""The worker's loop: batches, slots, time-outs, being told to stop, lost leases, outages, drains."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from ductord.rpc.config import Settings
from ductord.rpc.host import Host, hosting
from ductord.worker.context import ActionContext
from ductord.worker.service import service
from tests.conftest import Database
from tests.support.queue import Queue
from tests.worker.conftest import FAST, Working


class Gate:
    """An action that waits until it is let go, and tells what happened to it."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.begun: list[ActionContext] = []
        self.cancelled = 0
        self.stubborn = False

    async def run(self, args: Any, context: ActionContext) -> Any:
        """Waits for the gate."""
        self.begun.append(context)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            if self.stubborn:
                await self.open.wait()
                return "late"
            raise
        return context.attempt


def _all(queue: Queue, **counts: int) -> Callable[[], Awaitable[bool]]:
    """Whether the outcomes are just these."""

    async def check() -> bool:
        return await queue.outcomes() == counts

    return check


async def _begun(gate: Gate, count: int) -> None:
    async with asyncio.timeout(60):
        while len(gate.begun) < count:  # noqa: ASYNC110  # the gate is closed
            await asyncio.sleep(0.005)


async def test_many_tasks_are_done_in_batches(working: Working, queue: Queue) -> None:
    """2,000 noops: each once, in far fewer calls than tasks."""
    await queue.put(2_000, notify=False)
    async with working() as host:
        await queue.wait_for(_all(queue, succeeded=2_000))
        calls = _calls(host)
    assert calls["TaskService/PollTasks"] < 60
    assert calls["TaskService/CompleteTasks"] < 60
    assert len(set(await queue.wakeups())) == 2_000


async def test_no_more_at_once_than_slots(working: Working, queue: Queue) -> None:
    """Three slots: the fourth task stays in the queue for other workers until one is free."""
    gate = Gate()
    await queue.put(5, action="t:gate")
    async with working({"t:gate": gate.run}, worker_slots=3):
        await _begun(gate, 3)
        await queue.put(20)
        assert await queue.leased() == 3
        gate.open.set()
        await queue.wait_for(_all(queue, succeeded=25))


async def test_an_attempt_knows_its_context(working: Working, queue: Queue) -> None:
    """Ids, key, trace and the progress of the attempt before."""
    gate = Gate()
    gate.open.set()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    [run] = await queue.put(1, action="t:gate", previous_details='{"page":3}', traceparent=trace)
    async with working({"t:gate": gate.run}):
        await queue.wait_for(_all(queue, succeeded=1))
    [context] = gate.begun
    assert (context.tenant_id, context.run_id, context.step_ref, context.item_index, context.attempt) == (
        "acme",
        run,
        "s",
        None,
        1,
    )
    assert (context.idempotency_key, context.previous_details) == ("key", {"page": 3})
    assert context.traceparent.split("-")[1] == trace.split("-")[1]


async def test_a_long_action_keeps_its_lease(working: Working, queue: Queue) -> None:
    """A4 (RT-03, dispatch's part): leases live by heartbeat; an action of many leases' length is one attempt."""
    gate = Gate()
    [run] = await queue.put(1, action="t:gate")
    async with working({"t:gate": gate.run}, lease_ms=600, heartbeat_ms=100):
        await _begun(gate, 1)
        first = (await queue.row(run))["lease_expire_time"]

        async def renewed() -> bool:
            return bool((await queue.row(run))["lease_expire_time"] > first)

        await queue.wait_for(renewed)
        gate.open.set()
        await queue.wait_for(_all(queue, succeeded=1))


async def test_progress_reaches_the_row(working: Working, queue: Queue) -> None:
    """A5: details go with a heartbeat, the last of several."""
    told = asyncio.Event()

    async def tells(args: Any, context: ActionContext) -> Any:
        context.progress({"page": 1})
        context.progress({"page": 2})
        await told.wait()
        return None

    [run] = await queue.put(1, action="t:tells", heartbeat_timeout_ms=1_000)
    async with working({"t:tells": tells}):

        async def progress() -> bool:
            return bool((await queue.row(run))["heartbeat_details"] == '{"page":2}')

        await queue.wait_for(progress)
        told.set()
        await queue.wait_for(_all(queue, succeeded=1))


async def test_a_timeout_is_reported_by_the_worker(working: Working, queue: Queue) -> None:
    """A3, RT-02: the action is cancelled at its time-out and the attempt has failed, by whoever is first to say so."""
    gate = Gate()
    [run] = await queue.put(1, action="t:gate", timeout_ms=300)
    async with working({"t:gate": gate.run}):

        async def reported() -> bool:
            return (await queue.row(run))["report_time"] is not None

        await queue.wait_for(reported)
    row = await queue.row(run)
    assert gate.cancelled == 1
    assert row["outcome"] == "timed_out"
    assert row["stale_error_code"] == "DEADLINE_EXCEEDED"


async def test_a_timeout_does_not_wait_for_a_stubborn_action(working: Working, queue: Queue) -> None:
    """The report goes out at once; the slot stays taken until the action ends, and its late success is nobody's."""
    gate = Gate()
    gate.stubborn = True
    [run] = await queue.put(1, action="t:gate", timeout_ms=200)
    async with working({"t:gate": gate.run}, worker_slots=1):

        async def reported() -> bool:
            return (await queue.row(run))["report_time"] is not None

        await queue.wait_for(reported)
        [second] = await queue.put(1)
        assert (await queue.row(second))["lease_secret"] is None
        gate.open.set()

        async def done() -> bool:
            return bool((await queue.row(second))["outcome"] == "succeeded")

        await queue.wait_for(done)
    assert (await queue.row(run))["outcome"] == "timed_out"


async def test_a_run_that_asks_stops_its_actions(working: Working, queue: Queue) -> None:
    """The heartbeat's reply cancels the action, which is reported as CANCELLED."""
    gate = Gate()
    [run] = await queue.put(1, action="t:gate")
    async with working({"t:gate": gate.run}):
        await _begun(gate, 1)
        await queue.owner.execute("update eec_workflow_step_attempt set cancel_requested_time = now()")
        await queue.wait_for(_all(queue, failed=1))
    assert (await queue.row(run))["error_code"] == "CANCELLED"


async def test_a_lost_lease_ends_its_action(working: Working, queue: Queue) -> None:
    """A4: somebody else has the work; the action is cancelled and its slot is free."""
    gate = Gate()
    await queue.put(1, action="t:gate")
    async with working({"t:gate": gate.run}, worker_slots=1):
        await _begun(gate, 1)
        await queue.owner.execute("update eec_workflow_step_attempt set outcome = 'lost', report_time = now()")
        await queue.put(1)
        await queue.wait_for(_all(queue, lost=1, succeeded=1))
    assert gate.cancelled == 1


async def test_reports_survive_an_outage_of_dispatch(dispatching: Working, database: Database, queue: Queue) -> None:
    """Dispatch goes away while actions run: the worker goes on, reports when it is back, and no task is lost or done twice."""
    gate = Gate()
    await queue.put(10, action="t:gate")
    async with dispatching() as first:
        address = str(first.grpc_address)
        settings = Settings(dispatch_target=address, **FAST)
        worker = hosting([service({"t:gate": gate.run})], settings)
        await worker.__aenter__()
        await _begun(gate, 10)
    try:
        gate.open.set()
        async with dispatching(grpc_address=address):
            await queue.wait_for(_all(queue, succeeded=10))
            await queue.put(3)
            await queue.wait_for(_all(queue, succeeded=13))
    finally:
        await worker.__aexit__(None, None, None)
    assert len(gate.begun) == 10


async def test_kb_01_a_drain_finishes_what_it_can_and_gives_back_the_rest(working: Working, queue: Queue) -> None:
    """KB-01: ten at work, five finish in time, five are released; nothing new is begun; a successor gets new tasks at once."""
    quick, slow = Gate(), Gate()
    await queue.put(5, action="t:quick")
    await queue.put(5, action="t:slow")
    process = working({"t:quick": quick.run, "t:slow": slow.run}, drain_ms=4_000)
    host = await process.__aenter__()
    await _begun(quick, 5)
    await _begun(slow, 5)
    loop = asyncio.get_running_loop()
    begin = loop.time()
    stop = asyncio.create_task(process.__aexit__(None, None, None))
    await host.draining.wait()
    await queue.put(7)
    quick.open.set()
    await stop
    assert loop.time() - begin < 4 + 30
    outcomes = await queue.outcomes()
    on_its_way = (
        outcomes["released"] - 5
    )  # a poll that crossed the stop may have been given new ones: they go back, and are not begun
    assert 0 <= on_its_way <= 7
    assert (outcomes["succeeded"], outcomes.get(None, 0)) == (5, 7 - on_its_way)
    assert await queue.leased() == 0
    assert slow.cancelled == 5
    assert len(await queue.wakeups()) == 10 + on_its_way


async def test_kb_01_a_drain_with_nothing_at_work_is_quick(working: Working, queue: Queue) -> None:
    """The waiting poll does not hold up the stop."""
    begin = asyncio.get_running_loop().time()
    async with working(drain_ms=100_000):
        await queue.put(1)
        await queue.wait_for(_all(queue, succeeded=1))
    assert asyncio.get_running_loop().time() - begin < 90


async def test_kb_01_a_second_signal_gives_back_at_once(working: Working, queue: Queue) -> None:
    """KB-01: the second SIGTERM cuts the drain short; also an action that ignores its cancellation is given back."""
    gate = Gate()
    gate.stubborn = True
    await queue.put(4, action="t:gate")
    loop = asyncio.get_running_loop()
    async with working({"t:gate": gate.run}, drain_ms=100_000) as host:
        await _begun(gate, 4)
        host.hurry.set()
        begin = loop.time()
    assert loop.time() - begin < 60
    assert await queue.outcomes() == {"released": 4}
    gate.open.set()


async def test_two_workers_share_the_work(working: Working, database: Database, queue: Queue) -> None:
    """Acceptance 5, this part: two dispatchers, two workers, each task once."""
    done: Counter[str] = Counter()
    gate = asyncio.Event()

    async def counts(args: Any, context: ActionContext) -> Any:
        done[context.run_id] += 1
        await gate.wait()
        return None

    async def both() -> bool:
        return await queue.leased() == 20

    await queue.put(300, action="t:counts", notify=False)
    async with working({"t:counts": counts}, worker_slots=10), working({"t:counts": counts}, worker_slots=10):
        await queue.wait_for(both)
        gate.set()
        await queue.wait_for(_all(queue, succeeded=300))
    assert len(done) == 300
    assert set(done.values()) == {1}
    assert await queue.owner.fetchval("select count(distinct worker_id) from eec_workflow_step_attempt") == 2


def _calls(host: Host) -> Counter[str]:
    """RPCs served, by method."""
    counts: Counter[str] = Counter()
    for line in host.metrics.exposition().decode().splitlines():
        if line.startswith("ductor_grpc_calls_total{"):
            labels, value = line.split("} ")
            counts[labels.split('method="')[1].split('"')[0]] += int(float(value))
    return counts
