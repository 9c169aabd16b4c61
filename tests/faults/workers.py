"""Workers that a test starts and does away with: processes with the actions that do harm, and one written by hand on the generated stubs."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc

from ductor.workflow.v1 import task_service_pb2 as api
from ductor.workflow.v1 import task_service_pb2_grpc as rpc
from ductord.db.ids import new_id
from tests.support.api import actions
from tests.support.stack import Member, Stack

PROGRAM = ("tests.faults.worker",)
SUPERVISED = ("tests.faults.worker", "--supervised")
PLATFORM = (("x-ductor-scope", "platform"),)


@asynccontextmanager
async def working(
    stack: Stack,
    queue: str,
    *names: str,
    dispatch: str = "dispatch1",
    program: Sequence[str] = PROGRAM,
    wait: bool = True,
    **environment: str,
) -> AsyncIterator[list[Member]]:
    """Worker processes of one queue, ready; gone when the context ends, whatever is left of them."""
    target = stack[dispatch].target
    members = [
        stack.add(
            name,
            [],
            http=True,
            program=program,
            DUCTOR_DISPATCH_TARGET=target,
            DUCTOR_WORKER_QUEUES=queue,
            **environment,
        )
        for name in names
    ]
    for name in names:  # not one of those that must be there after the test
        stack.members.pop(name)
    try:
        if wait:
            await asyncio.gather(*(asyncio.to_thread(member.wait_ready) for member in members))
        yield members
    finally:
        for member in members:
            if member.alive:
                with suppress(ProcessLookupError):
                    os.killpg(member.pid, signal.SIGKILL)  # the group: a supervisor's child does not die with it
                member.kill()


def single(slug: str, action: str, queue: str, **fields: Any) -> dict[str, Any]:
    """A definition of one step of a worker's own action."""
    return {"family_slug": slug, "steps": actions(["s0"], action, queue=queue, **fields), "edges": []}


class Hand:
    """A worker by hand: it does what a test says, and nothing by itself. `async with`."""

    def __init__(self, member: Member, queue: str, action: str) -> None:
        self._channel = grpc.aio.insecure_channel(
            member.target, options=[("grpc.max_send_message_length", -1), ("grpc.initial_reconnect_backoff_ms", 100)]
        )
        self.stub = rpc.TaskServiceStub(self._channel)
        self._queue, self._action = queue, action

    async def __aenter__(self) -> "Hand":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close(None)

    async def poll(self, *, wait_s: float = 15) -> api.Task:
        """The next task; waits for it, however long."""
        request = api.PollTasksRequest(
            queues=[self._queue], actions=[self._action], worker_id="hand", poll_id=new_id(), max_tasks=1,
            wait_ms=int(wait_s * 1000),
        )  # fmt: skip
        while True:
            reply = await self.stub.PollTasks(request, metadata=PLATFORM, timeout=wait_s + 30)
            if reply.tasks:
                [task] = reply.tasks
                return task

    async def report(self, *completions: api.TaskCompletion) -> list[str]:
        """`OK`, `LEASE_LOST` or `PAYLOAD_INVALID` per completion."""
        request = api.CompleteTasksRequest(completions=completions)
        reply = await self.stub.CompleteTasks(request, metadata=PLATFORM, timeout=60)
        names = [api.TaskCompletionStatus.Name(result.status) for result in reply.results]
        return [name.removeprefix("TASK_COMPLETION_STATUS_") for name in names]


def success(token: str, output: str = "{}") -> api.TaskCompletion:
    """A success."""
    return api.TaskCompletion(task_token=token, success=api.TaskSuccess(output_json=output))
