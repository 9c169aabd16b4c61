"""Workers that lie, repeat themselves and come in thousands."""

import asyncio

import grpc
import pytest

from ductor.workflow.v1 import task_service_pb2 as api
from ductord.rpc.channels import outgoing
from ductord.rpc.errors import refusal_from
from tests.dispatch.client import Client
from tests.dispatch.conftest import Dispatching
from tests.support.queue import Queue


async def test_a5_beats_of_one_lease_in_one_batch_are_one_beat(client: Client, queue: Queue) -> None:
    """The second was answered LEASE_LOST, and the worker gave up work that was its own. The last details are kept."""
    [run] = await queue.put(1)
    [task] = await client.poll()
    beats = [
        api.TaskHeartbeat(task_token=task.task_token, details_json="1"),
        api.TaskHeartbeat(task_token=task.task_token, details_json="2"),
        api.TaskHeartbeat(task_token=task.task_token),
        api.TaskHeartbeat(task_token="stranger"),
    ]
    answer = await client.stub.HeartbeatTasks(
        api.HeartbeatTasksRequest(heartbeats=beats), metadata=outgoing(platform=True)
    )
    going, lost = api.TASK_HEARTBEAT_STATUS_CONTINUE, api.TASK_HEARTBEAT_STATUS_LEASE_LOST
    assert [result.status for result in answer.results] == [going, going, going, lost]
    assert (await queue.row(run))["heartbeat_details"] == "2"


async def test_a4_idle_polls_leave_room_for_reports_and_heartbeats(dispatching: Dispatching, queue: Queue) -> None:
    """2,000 long polls took all calls of the process: nobody's results and heartbeats came in, and busy workers lost their leases."""
    async with dispatching(max_calls=8) as client:
        await queue.put(1)
        [task] = await client.poll()
        polls = [asyncio.create_task(client.poll(wait_ms=20_000)) for _ in range(20)]
        done, idle = await asyncio.wait(polls, timeout=5, return_when=asyncio.FIRST_EXCEPTION)
        while len(idle) > 4:
            more, idle = await asyncio.wait(idle, timeout=5, return_when=asyncio.FIRST_COMPLETED)
            done |= more
        for refused in done:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                refused.result()
            assert refusal_from(caught.value).reason == "OVERLOADED"
        assert await client.beat(task) == ["CONTINUE"]
        assert await client.succeed([task])
        for poll in idle:
            poll.cancel()
        await asyncio.gather(*idle, return_exceptions=True)
