"""A worker as small as can be: the generated stub and the metadata of a caller. Everything that it does, grpcurl could."""

from collections.abc import Iterable, Sequence
from typing import Any

import grpc

from ductor.workflow.v1 import task_service_pb2 as api
from ductor.workflow.v1 import task_service_pb2_grpc as rpc
from ductord.db.ids import new_id
from ductord.rpc.channels import outgoing
from ductord.rpc.host import Host

OK = api.TASK_COMPLETION_STATUS_OK
LOST = api.TASK_COMPLETION_STATUS_LEASE_LOST
INVALID = api.TASK_COMPLETION_STATUS_PAYLOAD_INVALID


class Client:
    """Calls of one dispatch process, for all tenants (`tenant` None) or one."""

    def __init__(self, channel: grpc.aio.Channel, host: Host) -> None:
        self.stub = rpc.TaskServiceStub(channel)
        self.host = host

    async def poll(
        self,
        max_tasks: int = 10,
        *,
        tenant: str | None = None,
        queues: Sequence[str] = ("default",),
        actions: Sequence[str] = ("noop:noop",),
        wait_ms: int = 0,
        poll_id: str | None = None,
        worker_id: str = "w",
        timeout: float | None = None,
    ) -> list[api.Task]:
        """One poll; a random poll id where none is given."""
        request = api.PollTasksRequest(
            queues=queues, actions=actions, worker_id=worker_id, poll_id=new_id() if poll_id is None else poll_id,
            max_tasks=max_tasks, wait_ms=wait_ms,
        )  # fmt: skip
        return list((await self.stub.PollTasks(request, metadata=_metadata(tenant), timeout=timeout)).tasks)

    async def complete(self, *completions: api.TaskCompletion, tenant: str | None = None) -> list[Any]:
        """The status of each completion."""
        request = api.CompleteTasksRequest(completions=completions)
        answer = await self.stub.CompleteTasks(request, metadata=_metadata(tenant))
        assert [r.task_token for r in answer.results] == [c.task_token for c in completions]
        return [result.status for result in answer.results]

    async def succeed(self, tasks: Iterable[api.Task], output: str = "{}", tenant: str | None = None) -> list[Any]:
        """All tasks succeed."""
        return await self.complete(*(success(task, output) for task in tasks), tenant=tenant)

    async def beat(self, *tasks: api.Task, details: str | None = None, tenant: str | None = None) -> list[str]:
        """`CONTINUE`, `CANCEL` or `LEASE_LOST` per task."""
        beats = [api.TaskHeartbeat(task_token=task.task_token, details_json=details) for task in tasks]
        answer = await self.stub.HeartbeatTasks(api.HeartbeatTasksRequest(heartbeats=beats), metadata=_metadata(tenant))
        return [api.TaskHeartbeatStatus.Name(r.status).removeprefix("TASK_HEARTBEAT_STATUS_") for r in answer.results]

    async def describe(self, *queues: str, tenant: str | None = None) -> list[api.QueueDescription]:
        """The state of queues."""
        answer = await self.stub.DescribeQueues(api.DescribeQueuesRequest(queues=queues), metadata=_metadata(tenant))
        return list(answer.data)


def success(task: api.Task, output: str = "{}") -> api.TaskCompletion:
    """A success."""
    return api.TaskCompletion(task_token=task.task_token, success=api.TaskSuccess(output_json=output))


def failure(task: api.Task, code: str = "", message: str = "", **fields: Any) -> api.TaskCompletion:
    """A failure."""
    return api.TaskCompletion(task_token=task.task_token, failure=api.TaskFailure(code=code, message=message, **fields))


def release(task: api.Task, reason: str = "draining") -> api.TaskCompletion:
    """A task given back."""
    return api.TaskCompletion(task_token=task.task_token, release=api.TaskRelease(reason=reason))


def _metadata(tenant: str | None) -> tuple[tuple[str, str], ...]:
    return outgoing(tenant_id=tenant, platform=tenant is None)
