"""KB-01: a worker that is told to stop while the answer to its poll is on its way: nobody saw what it was given, and it is given back all the same."""

import asyncio
from typing import Any

from ductor.workflow.v1 import task_service_pb2 as api
from ductor.workflow.v1 import task_service_pb2_grpc as rpc
from ductord.rpc.config import Settings
from ductord.rpc.host import Scope, Service, hosting
from ductord.worker.service import service
from tests.worker.conftest import FAST


class Slow(rpc.TaskServiceServicer):
    """A dispatcher by hand: it has leased a task to the first poll, and its answer never arrives; who asks again by the same id is told."""

    def __init__(self) -> None:
        self.polls: list[api.PollTasksRequest] = []
        self.reports: list[api.TaskCompletion] = []
        self.asked = asyncio.Event()

    async def PollTasks(self, request: api.PollTasksRequest, context: Any) -> api.PollTasksResponse:  # noqa: N802
        self.polls.append(request)
        self.asked.set()
        if len(self.polls) == 1:
            await asyncio.Event().wait()
        task = api.Task(
            task_token="t", action="core:echo", input_json="{}", lease_ms=30_000, heartbeat_interval_ms=10_000
        )
        again = (request.worker_id, request.poll_id) == (self.polls[0].worker_id, self.polls[0].poll_id)
        return api.PollTasksResponse(tasks=[task] if again else [])

    async def CompleteTasks(self, request: Any, context: Any) -> api.CompleteTasksResponse:  # noqa: N802
        self.reports += request.completions
        status = api.TASK_COMPLETION_STATUS_OK
        results = [api.TaskCompletionResult(task_token=each.task_token, status=status) for each in request.completions]
        return api.CompleteTasksResponse(results=results)


async def test_kb_01_a_poll_that_is_cancelled_gives_back_what_it_was_given() -> None:
    """By the id of its poll, and without asking for anything new: no task has the action that it names."""
    dispatch = Slow()  # type: ignore[abstract]  # what no worker of this test calls

    async def start(scope: Scope) -> None:
        scope.rpcs(rpc.add_TaskServiceServicer_to_server, dispatch)

    async with hosting([Service(name="dispatch", start=start), service()], Settings(**{**FAST, "drain_ms": 20_000})):
        async with asyncio.timeout(60):
            await dispatch.asked.wait()
    assert [(each.task_token, each.WhichOneof("outcome")) for each in dispatch.reports] == [("t", "release")]
    first, again = dispatch.polls
    assert (again.wait_ms, set(again.actions) & set(first.actions)) == (0, set())
