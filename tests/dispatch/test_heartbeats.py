"""Heartbeats: renewing, progress, being told to stop (A5). Queues described at a bounded cost."""

from datetime import UTC, datetime

from ductor.workflow.v1 import task_service_pb2 as api
from tests.dispatch.client import OK, Client
from tests.dispatch.conftest import Dispatching
from tests.support.queue import Queue


async def test_a_heartbeat_renews_the_lease(dispatching: Dispatching, queue: Queue) -> None:
    """By database time; without details it is no progress."""
    [run] = await queue.put(1)
    async with dispatching(lease_ms=9_000) as client:
        [task] = await client.poll()
        await queue.shift("lease_expire_time", -8_000)
        assert await client.beat(task) == ["CONTINUE"]
    row = await queue.row(run)
    assert (row["lease_expire_time"] - row["start_time"]).total_seconds() >= 9
    assert row["check_time"] == row["lease_expire_time"]
    assert (row["heartbeat_time"], row["heartbeat_details"]) == (None, None)


async def test_details_are_progress(client: Client, queue: Queue) -> None:
    """A5: they feed the heartbeat time-out and are kept for the next attempt; a renewal alone feeds nothing."""
    [run] = await queue.put(1, heartbeat_timeout_ms=2_000)
    [task] = await client.poll()
    await queue.shift("start_time", -1_500)
    assert await client.beat(task) == ["CONTINUE"]
    row = await queue.row(run)
    assert (row["check_time"] - row["start_time"]).total_seconds() == 2
    assert await client.beat(task, details='{"at":9007199254740993}') == ["CONTINUE"]
    row = await queue.row(run)
    assert row["heartbeat_details"] == '{"at":9007199254740993}'
    assert (row["check_time"] - row["heartbeat_time"]).total_seconds() == 2
    assert await client.beat(task) == ["CONTINUE"]
    assert (await queue.row(run))["heartbeat_details"] == '{"at":9007199254740993}'


async def test_a_lease_never_outlasts_the_deadline(client: Client, queue: Queue) -> None:
    """A3: the sweep looks when the attempt's time is over, whatever the lease."""
    [run] = await queue.put(1, timeout_ms=1_000)
    [task] = await client.poll()
    await client.beat(task)
    row = await queue.row(run)
    assert row["check_time"] == row["deadline_time"]


async def test_a_worker_is_told_to_stop(client: Client, queue: Queue) -> None:
    """The reply says so while the lease is renewed, so that the worker can report."""
    runs = await queue.put(2)
    tasks = {task.run_id: task for task in await client.poll()}
    await queue.owner.execute(
        "update eec_workflow_step_attempt set cancel_requested_time = now() where run_id = $1", runs[0]
    )
    assert await client.beat(tasks[runs[0]], tasks[runs[1]]) == ["CANCEL", "CONTINUE"]
    assert await client.succeed([tasks[runs[0]]]) == [OK]


async def test_a_lost_lease_is_told(client: Client, queue: Queue) -> None:
    """After the sweep, after the report, with a stranger's token, as another tenant."""
    await queue.put(3)
    tasks = await client.poll()
    await queue.owner.execute(
        "update eec_workflow_step_attempt set outcome = 'lost', report_time = now() where run_id = $1", tasks[0].run_id
    )
    await client.succeed(tasks[1:2])
    assert await client.beat(*tasks, api.Task(task_token="nonsense")) == [
        "LEASE_LOST",
        "LEASE_LOST",
        "CONTINUE",
        "LEASE_LOST",
    ]
    assert await client.beat(tasks[2], tenant="other") == ["LEASE_LOST"]


async def test_bad_details_cost_nobody_a_lease(client: Client, queue: Queue) -> None:
    """Details that cannot be carried are no progress; the lease is renewed, and so are the neighbours'."""
    [run] = await queue.put(1)
    [task] = await client.poll()
    for details in ("{oops", '{"a":NaN}', '"\\u0000"', "\0"):
        assert await client.beat(task, details=details) == ["CONTINUE"]
    row = await queue.row(run)
    assert (row["heartbeat_time"], row["heartbeat_details"]) == (None, None)


async def test_queues_are_described_per_tier(client: Client, queue: Queue) -> None:
    """Ready, delayed, leased and the oldest, for one tenant or all; a queue without tasks is not mentioned."""
    await queue.put(3, due_in_ms=-60_000)
    await queue.put(2, due_in_ms=60_000)
    await queue.put(4, tenant="other", tier="bulk", action="core:echo")
    await queue.put(1, queue="gpu", tier="critical")
    await client.poll(1, tenant="acme")
    seen = [(d.queue, d.tier, d.ready_count, d.delayed_count, d.leased_count) for d in await client.describe()]
    assert seen == [("default", 2, 2, 2, 1), ("default", 3, 4, 0, 0), ("gpu", 1, 1, 0, 0)]
    own = await client.describe("default", tenant="acme")
    assert [(d.tier, d.ready_count, d.leased_count) for d in own] == [(2, 2, 1)]
    age = datetime.now(UTC) - own[0].oldest_ready_time.ToDatetime(UTC)
    assert 55 < age.total_seconds() < 120
    assert await client.describe("nothing") == []
