"""Reports that dispatch does not take: what passes is said again, what never will fails its attempt (PL-06)."""

import asyncio
from typing import Any

import pytest

from ductor.workflow.v1 import task_service_pb2 as api
from ductor.workflow.v1 import task_service_pb2_grpc as rpc
from ductord.rpc.config import Settings
from ductord.rpc.errors import refused
from ductord.rpc.host import Scope, Service, hosting
from ductord.worker.service import service
from tests.worker.conftest import FAST


class Dispatch(rpc.TaskServiceServicer):
    """A dispatcher by hand: hands out one task and answers its reports with `answers`, one after the other; None takes them."""

    def __init__(self, *answers: Any) -> None:
        self.reports: list[api.TaskCompletion] = []
        self.taken = asyncio.Event()
        self._answers = list(answers)
        self._tasks = [
            api.Task(
                task_token="t", action="core:echo", input_json='{"a": 1}', lease_ms=30_000, heartbeat_interval_ms=10_000
            )
        ]

    async def PollTasks(self, request: Any, context: Any) -> api.PollTasksResponse:  # noqa: N802
        tasks, self._tasks = self._tasks, []
        return api.PollTasksResponse(tasks=tasks)

    async def CompleteTasks(self, request: Any, context: Any) -> api.CompleteTasksResponse:  # noqa: N802
        self.reports += request.completions
        answer = self._answers.pop(0)
        if answer is not None:
            raise answer
        self.taken.set()
        return api.CompleteTasksResponse(
            results=[api.TaskCompletionResult(task_token="t", status=api.TASK_COMPLETION_STATUS_OK)]
        )


async def _reported(*answers: Any) -> list[api.TaskCompletion]:
    dispatch = Dispatch(*answers)  # type: ignore[abstract]  # what no worker of this test calls

    async def start(scope: Scope) -> None:
        scope.rpcs(rpc.add_TaskServiceServicer_to_server, dispatch)

    async with hosting([Service(name="dispatch", start=start), service()], Settings(**FAST)):
        async with asyncio.timeout(60):
            await dispatch.taken.wait()
    return dispatch.reports


async def test_an_overloaded_dispatch_hears_the_report_again() -> None:
    """RESOURCE_EXHAUSTED with a time to try again is no verdict on the report: it is not dropped."""
    first, second = await _reported(refused("OVERLOADED", "too many calls", retry_after_ms=10), None)
    assert first == second
    assert second.success.output_json == '{"a":1}'


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (refused("REQUEST_TOO_LARGE", "too large", limit_bytes=1), "payload_too_large"),
        (refused("FIELD_INVALID", "no", field="completions"), "payload_invalid"),
    ],
)
async def test_pl_06_an_output_that_is_refused_fails_its_attempt(answer: Exception, code: str) -> None:
    """PL-06: dispatch takes less than the worker thought. The attempt fails for good instead of being lost and made again."""
    _, report = await _reported(answer, None)
    assert (report.failure.code, report.failure.non_retryable) == (code, True)
    assert "output of 7 characters" in report.failure.message
