"""Polls: what a task carries, who gets it, long waits that share one loop, lost replies, bounds."""

import asyncio
import json
from typing import Any

import grpc
import pytest

from ductor.workflow.v1 import task_service_pb2 as api
from ductord.rpc.channels import outgoing
from ductord.rpc.errors import refusal_from
from tests.dispatch.client import Client
from tests.dispatch.conftest import Dispatching
from tests.support.queue import Queue


async def test_a_task_carries_what_the_contract_says(dispatching: Dispatching, queue: Queue) -> None:
    """Every field of the worker protocol, and the lease columns of its row; nothing is due before its time."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    [run] = await queue.put(
        args={"id": 9007199254740993}, tier="critical", timeout_ms=60_000, heartbeat_timeout_ms=1_500,
        previous_details='{"at":7}', traceparent=trace,
    )  # fmt: skip
    async with dispatching(lease_ms=9_000, heartbeat_ms=5_000) as client:
        [task] = await client.poll(worker_id="w1", poll_id="p1")
    assert (task.tenant_id, task.run_id, task.step_ref, task.attempt) == ("acme", run, "s", 1)
    assert not task.HasField("item_index")
    assert (task.kind, task.tier, task.queue, task.action) == (1, 1, "default", "noop:noop")
    assert task.input_json == '{"id": 9007199254740993}'
    assert (task.remaining_ms, task.lease_ms, task.heartbeat_interval_ms) == (60_000, 9_000, 500)
    assert (task.idempotency_key, task.heartbeat_details_json, task.traceparent) == ("key", '{"at":7}', trace)
    row = await queue.row(run)
    assert (row["worker_id"], row["poll_id"], row["heartbeat_time"]) == ("w1", "p1", None)
    assert (row["deadline_time"] - row["start_time"]).total_seconds() == 60
    assert (row["lease_expire_time"] - row["start_time"]).total_seconds() == 9
    assert (row["check_time"] - row["start_time"]).total_seconds() == 1.5


async def test_a_worker_gets_only_what_it_asked_for(client: Client, queue: Queue) -> None:
    """Its queues, its actions, its tenant (N2); the platform scope gets all tenants'."""
    await queue.put(1, queue="gpu")
    await queue.put(1, action="core:echo")
    await queue.put(1, tenant="other")
    [own] = await queue.put(1)
    assert [task.run_id for task in await client.poll(tenant="acme")] == [own]
    assert await client.poll(tenant="acme") == []
    assert len(await client.poll(queues=["default", "gpu"], actions=["noop:noop", "core:echo"])) == 3


async def test_oldest_first_within_a_tenant(client: Client, queue: Queue) -> None:
    """First come, first served, across queues and actions."""
    late = await queue.put(1, due_in_ms=-1_000, action="core:echo")
    early = await queue.put(1, due_in_ms=-3_000, queue="b")
    middle = await queue.put(1, due_in_ms=-2_000)
    served = []
    for _ in range(3):
        served += [t.run_id for t in await client.poll(1, queues=["default", "b"], actions=["noop:noop", "core:echo"])]
    assert served == early + middle + late


async def test_a_task_asked_to_stop_is_not_handed_out(client: Client, queue: Queue) -> None:
    """New work does not begin under a stop; the coordinator ends such an attempt."""
    await queue.put(5, cancel_requested_time=await queue.owner.fetchval("select now()"))
    [run] = await queue.put(1)
    assert [task.run_id for task in await client.poll(10)] == [run]


@pytest.mark.parametrize("notify", [True, False])
async def test_a_waiting_poll_gets_a_task_when_it_comes(dispatching: Dispatching, queue: Queue, notify: bool) -> None:
    """By NOTIFY at once, by polling alone within the interval (PG-02)."""
    async with dispatching(notify=notify, poll_ms=60_000 if notify else 50) as client:
        poll = asyncio.create_task(client.poll(wait_ms=30_000))
        await _waiting(client, 1)
        await queue.put(1)
        assert len(await asyncio.wait_for(poll, 20)) == 1


async def test_a_delayed_task_comes_when_it_is_due(dispatching: Dispatching, queue: Queue) -> None:
    """The loop rests until the next task that it saw comes due, not until the next interval."""
    async with dispatching(poll_ms=60_000) as client:
        await queue.put(1, due_in_ms=300)
        assert len(await asyncio.wait_for(client.poll(wait_ms=30_000), 20)) == 1


async def test_an_empty_wait_ends_in_time(client: Client) -> None:
    """`wait_ms` 0 looks once; a short wait ends without a task; a wait ends before its caller's deadline."""
    loop = asyncio.get_running_loop()
    begin = loop.time()
    assert await client.poll() == []
    assert await client.poll(wait_ms=100) == []
    assert await client.poll(wait_ms=60_000, timeout=2) == []
    assert loop.time() - begin < 20


async def test_many_waiting_polls_cost_as_little_as_one(dispatching: Dispatching, queue: Queue) -> None:
    """40 waiting polls of one filter: one empty claim answers for all; each task wakes one of them."""
    async with dispatching(poll_ms=60_000) as client:
        polls = [asyncio.create_task(client.poll(1, wait_ms=20_000)) for _ in range(40)]
        await _waiting(client, 40)
        await queue.put(40)
        batches = await asyncio.gather(*polls)
    assert sorted(len(batch) for batch in batches) == [1] * 40
    assert len({batch[0].run_id for batch in batches}) == 40


async def test_many_filters_are_asked_for_at_once(dispatching: Dispatching, queue: Queue) -> None:
    """With 30 different filters waiting, each gets what is its own."""
    async with dispatching(poll_ms=50) as client:
        polls = [asyncio.create_task(client.poll(1, tenant=f"t{n}", wait_ms=20_000)) for n in range(30)]
        await _waiting(client, 30)
        for n in range(30):
            await queue.put(1, tenant=f"t{n}", notify=False)
        batches = await asyncio.gather(*polls)
    assert [batch[0].tenant_id for batch in batches] == [f"t{n}" for n in range(30)]


async def test_a_repeated_poll_redelivers_a_lost_reply(client: Client, queue: Queue) -> None:
    """The same poll id gets the leases that are still held, under new tokens; the old tokens are fenced."""
    await queue.put(5)
    lost = await client.poll(2, poll_id="p", worker_id="w")
    again = await client.poll(2, poll_id="p", worker_id="w")
    assert {task.run_id for task in again} == {task.run_id for task in lost}
    assert await client.beat(*lost) == ["LEASE_LOST"] * 2
    assert await client.beat(*again) == ["CONTINUE"] * 2
    await client.succeed(again[:1])
    assert [task.run_id for task in await client.poll(2, poll_id="p", worker_id="w")] == [again[1].run_id]
    # A worker that drains wants no other task, and names an action that nobody has.
    assert [task.run_id for task in await client.poll(poll_id="p", worker_id="w", actions=["-"])] == [again[1].run_id]
    assert await client.poll(poll_id="q", worker_id="w", actions=["-"]) == []


async def test_a_poll_id_is_no_key_to_others_tasks(client: Client, queue: Queue) -> None:
    """N3: another worker or tenant with the same poll id gets new tasks or none."""
    await queue.put(1)
    [mine] = await client.poll(1, poll_id="p", worker_id="w")
    assert await client.poll(1, poll_id="p", worker_id="other") == []
    assert await client.poll(1, poll_id="p", worker_id="w", tenant="other") == []
    assert await client.beat(mine) == ["CONTINUE"]


async def test_calls_that_break_while_tasks_come_lose_none(dispatching: Dispatching, queue: Queue) -> None:
    """Polls are cut off just as tasks arrive; who repeats its poll id gets what the lost replies held, and no task is leased to nobody."""
    async with dispatching(poll_ms=60_000) as client:
        taken: list[api.Task] = []
        for n in range(10):
            gone = [
                asyncio.create_task(client.poll(5, tenant=f"t{n}", poll_id=f"p{n}.{i}", wait_ms=20_000))
                for i in range(5)
            ]
            await _waiting(client, 5)
            put = asyncio.create_task(queue.put(5, tenant=f"t{n}"))
            for each in gone:
                each.cancel()
            answers = await asyncio.gather(*gone, return_exceptions=True)
            taken += [task for answer in answers if isinstance(answer, list) for task in answer]
            await put
            await _waiting(client, 0)
        for n in range(10):
            for i in range(5):
                taken += await client.poll(5, tenant=f"t{n}", poll_id=f"p{n}.{i}")
    assert len({task.run_id for task in taken}) == 50


async def test_a_reply_stays_under_three_mebibytes(dispatching: Dispatching, queue: Queue) -> None:
    """L7: ten tasks of 900 kB come in several replies; text that compresses well counts with its true size; what does not fit is not leased."""
    await queue.put(6, args={"x": "a" * 900_000})
    async with dispatching() as client:
        first = await client.poll(10)
        assert len(first) == 3
        assert sum(task.ByteSize() for task in first) < 3 << 20
        assert await queue.leased() == 3
        assert len(await client.poll(10)) == 3
    async with dispatching(reply_max_bytes=1_000) as small:
        await queue.put(2, args={"x": "a" * 50_000})
        assert len(await small.poll(10)) == 1


async def test_a_draining_process_gives_no_work(dispatching: Dispatching, queue: Queue) -> None:
    """Waiting polls are answered at once with nothing, new ones are refused as SERVICE_DRAINING."""
    async with dispatching(poll_ms=60_000) as client:
        waiting = asyncio.create_task(client.poll(wait_ms=30_000))
        await _waiting(client, 1)
        [(_, scope)] = client.host._scopes
        for drain in scope.drains:
            await drain()
        assert await asyncio.wait_for(waiting, 20) == []
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await client.poll()
        assert refusal_from(refused.value).reason == "SERVICE_DRAINING"


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"queues": []}, "FIELD_REQUIRED", "queues"),
        ({"actions": []}, "FIELD_REQUIRED", "actions"),
        ({"queues": [""]}, "FIELD_INVALID", "queues"),
        ({"queues": ["q" * 300]}, "FIELD_INVALID", "queues"),
        ({"queues": [f"q{n}" for n in range(40)], "actions": [f"a{n}" for n in range(40)]}, "FIELD_INVALID", "actions"),
        ({"queues": [f"q{n}" for n in range(2_000)]}, "BATCH_TOO_LARGE", "queues"),
        ({"max_tasks": -1}, "FIELD_INVALID", "max_tasks"),
        ({"wait_ms": -1}, "FIELD_INVALID", "wait_ms"),
        ({"poll_id": "p" * 300}, "FIELD_INVALID", "poll_id"),
        ({"worker_id": "w\0"}, "FIELD_INVALID", "worker_id"),
    ],
)
async def test_bad_polls_are_refused(client: Client, fields: dict[str, Any], reason: str, field: str) -> None:
    """A coded error that names the field."""
    good = {"queues": ["default"], "actions": ["noop:noop"], "worker_id": "w", "poll_id": "p", "max_tasks": 1}
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.stub.PollTasks(api.PollTasksRequest(**{**good, **fields}), metadata=outgoing(platform=True))
    refusal = refusal_from(refused.value)
    assert (refusal.reason, refusal.metadata["field"]) == (reason, field)


async def test_an_empty_poll_id_and_zero_tasks_mean_one_task(client: Client, queue: Queue) -> None:
    """grpcurl can be a worker: the least request is answered with a task."""
    await queue.put(2, args={"n": 1})
    request = api.PollTasksRequest(queues=["default"], actions=["noop:noop"])
    answer = await client.stub.PollTasks(request, metadata=outgoing(tenant_id="acme"))
    assert [json.loads(task.input_json) for task in answer.tasks] == [{"n": 1}]
    assert answer.metadata.fetched_at.seconds > 0


async def test_without_a_tenant_there_is_no_answer(client: Client) -> None:
    """N1: no tenant and no platform scope is TENANT_REQUIRED."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await client.stub.PollTasks(api.PollTasksRequest(queues=["q"], actions=["a"]), metadata=outgoing())
    assert refusal_from(refused.value).reason == "TENANT_REQUIRED"


async def _waiting(client: Client, count: int) -> None:
    """Wait until so many polls wait in the process."""

    def waiting() -> float:
        lines = client.host.metrics.exposition().decode().splitlines()
        return float(next(line.split()[1] for line in lines if line.startswith("ductor_waiting_polls ")))

    async with asyncio.timeout(60):
        while waiting() != count:  # noqa: ASYNC110  # a gauge has no event
            await asyncio.sleep(0.005)
