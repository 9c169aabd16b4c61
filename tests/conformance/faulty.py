"""A worker on nothing but the generated stubs that does all that it must, but for the one thing that FAULT names: `python -m tests.conformance.faulty`."""

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from typing import Any

import grpc

from ductor.workflow.v1 import task_service_pb2 as api
from ductor.workflow.v1 import task_service_pb2_grpc as rpc

FAULT = os.environ.get("FAULT", "")
DRAIN_S = int(os.environ["DUCTOR_DRAIN_MS"]) / 1000
QUEUES = [os.environ["DUCTOR_QUEUE"]]
NAMES = ["conformance:echo", "conformance:sleep", "conformance:fail", "conformance:bad_output"]
REFUSED = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.OUT_OF_RANGE)
WAIT_MS = 10_000


class Task:
    """A task that is held: until its report is answered, or its lease is lost."""

    def __init__(self, task: api.Task) -> None:
        self.task = task
        self.args = json.loads(task.input_json)
        details = json.loads(task.heartbeat_details_json or "{}")
        self.resumed_at = 0 if FAULT == "begins-anew" else details.get("slept_ms", 0)
        self.begin = time.monotonic()
        self.beating: asyncio.Task[None] | None = None
        self.working: asyncio.Task[Any] | None = None
        self.over = False

    @property
    def slept(self) -> float:
        """How long the sleeper has slept in all, in milliseconds."""
        return self.resumed_at + (time.monotonic() - self.begin) * 1000


class Worker:
    """The whole worker."""

    def __init__(self) -> None:
        self.stub = rpc.TaskServiceStub(grpc.aio.insecure_channel(os.environ["DUCTOR_TARGET"]))
        self.metadata = (("x-tenant-id", os.environ["DUCTOR_TENANT_ID"]),)
        self.worker_id = "always-me" if FAULT == "one-name" else secrets.token_hex(8)
        self.held: set[Task] = set()
        self.signals = 0
        self.told = asyncio.Event()
        self.hurry = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()
        self.giving_back: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Poll until told to stop, then drain."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.on_signal)
        polling = asyncio.create_task(self.poll())
        await self.told.wait()
        if FAULT == "walks-out":
            os._exit(0)
        if FAULT != "polls-on":
            polling.cancel()
            await asyncio.wait([polling])
            if FAULT != "forgets-its-poll":
                await self.reclaim()
        await self.finish(DRAIN_S * 0.7)
        for task in list(self.held):
            if task.working is not None:
                task.working.cancel()
        self.hurry.clear()
        await self.finish(1)
        if FAULT == "stays" and self.signals:
            await asyncio.sleep(3600)

    def on_signal(self) -> None:
        """Drain; the second time at once."""
        self.signals += 1
        self.told.set()
        if self.signals > 1 and FAULT != "deaf":
            self.hurry.set()

    async def finish(self, seconds: float) -> None:
        """Wait until nothing is held, for `seconds` or until it is to hurry."""
        waits = [asyncio.create_task(event.wait()) for event in (self.idle, self.hurry)]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def poll(self) -> None:
        """Poll again and again, under one poll_id until it is answered."""
        self.poll_id, pause = secrets.token_hex(16), 0.1
        while True:
            if FAULT == "one-at-a-time":
                await self.idle.wait()
            try:
                tasks = await self.ask(NAMES, WAIT_MS)
            except grpc.aio.AioRpcError:
                if FAULT == "dies-when-away":
                    sys.exit("dispatch is away")
                await asyncio.sleep(0.01 if FAULT == "hammers" else pause)
                pause = min(pause * 2, 2)
                if FAULT == "new-poll-id":
                    self.poll_id = secrets.token_hex(16)
                continue
            pause = 0.1
            if FAULT != "same-poll-id":
                self.poll_id = secrets.token_hex(16)
            for task in tasks:
                self.begin(task)

    async def ask(self, names: list[str], wait_ms: int) -> list[api.Task]:
        """One call of PollTasks."""
        request = api.PollTasksRequest(
            queues=QUEUES,
            actions=names,
            worker_id=self.worker_id,
            poll_id=self.poll_id,
            max_tasks=1 if FAULT == "one-at-a-time" else 8,
            wait_ms=wait_ms,
        )
        return list((await self.stub.PollTasks(request, metadata=self.metadata, timeout=wait_ms / 1000 + 5)).tasks)

    async def reclaim(self) -> None:
        """Give back what the poll that was cancelled may have been given."""
        for given in await self.ask(["-"], 0):
            task = Task(given)
            self.hold(task)
            release = api.TaskCompletion(release=api.TaskRelease(reason="draining"))
            self.giving_back.append(asyncio.create_task(self.report(task, release)))

    def begin(self, given: api.Task) -> None:
        """Work on a task beside the others."""
        task = Task(given)
        self.hold(task)
        task.beating = asyncio.create_task(self.beat(task))
        task.working = asyncio.create_task(self.work(task))

    def hold(self, task: Task) -> None:
        """From now on the task is ours."""
        self.held.add(task)
        self.idle.clear()

    async def work(self, task: Task) -> None:
        """Run the action and report."""
        try:
            completion = await self.outcome(task)
        except asyncio.CancelledError:
            if task.over:
                return
            release = api.TaskRelease(reason="draining")
            completion = api.TaskCompletion(release=release)
            if FAULT == "fails-in-drain":
                completion = api.TaskCompletion(failure=api.TaskFailure(code="ABORTED", message="draining"))
        if FAULT == "quiet-before-report" and task.beating is not None:
            task.beating.cancel()
        # A task of its own: what stops the work does not stop its report.
        task.working = asyncio.create_task(self.report(task, completion))

    async def outcome(self, task: Task) -> api.TaskCompletion:
        """What the action makes of a task."""
        given = task.task
        if given.action == "conformance:sleep":
            await asyncio.sleep(max(task.args["ms"] - task.resumed_at, 0) / 1000)
            answer: Any = {
                "slept_ms": round(task.slept),
                "resumed_at_ms": task.resumed_at,
                "tenant_id": given.tenant_id,
                "run_id": given.run_id,
                "step_ref": given.step_ref,
                "item_index": given.item_index if given.HasField("item_index") else None,
                "attempt": given.attempt,
                "idempotency_key": given.idempotency_key,
            }
            if FAULT == "no-item-zero":
                answer["item_index"] = given.item_index or None
            return _success(json.dumps(answer))
        if given.action == "conformance:fail":
            if given.attempt > task.args.get("times", given.attempt):
                return _success(json.dumps({"attempt": given.attempt}))
            failure = api.TaskFailure(
                code=task.args.get("code", "UNKNOWN"),
                message=task.args.get("message", ""),
                non_retryable=task.args.get("non_retryable", False) and FAULT != "never-final",
                retry_after_ms=task.args.get("retry_after_ms", 0 if FAULT == "retries-at-once" else None),
            )
            return api.TaskCompletion(failure=failure)
        if given.action == "conformance:bad_output":
            return _success('{"open":')
        if FAULT == "doubles":
            return _success(json.dumps(json.loads(given.input_json, parse_int=float)))
        if FAULT == "mangles":
            return _success(given.input_json.encode("ascii", "replace").decode())
        return _success(given.input_json)

    async def beat(self, task: Task) -> None:
        """Heartbeats, until the report is answered."""
        given = task.task
        interval = given.heartbeat_interval_ms / 1000 * (6 if FAULT == "slow-heart" else 0.8)
        while True:
            await asyncio.sleep(interval)
            details = json.dumps({"slept_ms": round(task.slept)}) if given.action == "conformance:sleep" else None
            entry = api.TaskHeartbeat(
                task_token=given.task_token, details_json=None if FAULT == "no-details" else details
            )
            try:
                answer = await self.stub.HeartbeatTasks(
                    api.HeartbeatTasksRequest(heartbeats=[entry]), metadata=self.metadata, timeout=5
                )
            except grpc.aio.AioRpcError:
                if FAULT == "heart-stops":
                    return
                continue
            status = answer.results[0].status
            if status == api.TASK_HEARTBEAT_STATUS_LEASE_LOST and FAULT != "keeps-lost":
                self.end(task)
                return
            if status == api.TASK_HEARTBEAT_STATUS_CANCEL and FAULT != "goes-on" and task.working is not None:
                task.over = True
                task.working.cancel()
                code = "UNKNOWN" if FAULT == "no-cancelled" else "CANCELLED"
                failure = api.TaskFailure(code=code, message="told to stop")
                await self.report(task, api.TaskCompletion(failure=failure))
                return

    async def report(self, task: Task, completion: api.TaskCompletion) -> None:
        """Report until answered."""
        completion.task_token = task.task.task_token
        pause = 0.1
        while task in self.held:
            try:
                request = api.CompleteTasksRequest(completions=[completion])
                answer = await self.stub.CompleteTasks(request, metadata=self.metadata, timeout=10)
            except grpc.aio.AioRpcError as error:
                if FAULT == "reports-once":
                    break
                if error.code() in REFUSED and FAULT != "insists":
                    if FAULT == "drops-refused" or not completion.HasField("success"):
                        break
                    failure = api.TaskFailure(code="payload_invalid", message=error.details(), non_retryable=True)
                    completion = api.TaskCompletion(task_token=task.task.task_token, failure=failure)
                    continue
                await asyncio.sleep(pause)
                pause = min(pause * 2, 2)
                continue
            if answer.results[0].status == api.TASK_COMPLETION_STATUS_PAYLOAD_INVALID:
                if FAULT == "dies-of-output":
                    sys.exit("the output is bad")
                if FAULT == "repeats-output":
                    await asyncio.sleep(0.05)
                    continue
            break
        self.end(task)

    def end(self, task: Task) -> None:
        """Done with a task."""
        task.over = True
        self.held.discard(task)
        if not self.held:
            self.idle.set()
        for each in (task.beating, task.working):
            if each is not None and each is not asyncio.current_task():
                each.cancel()


def _success(text: str) -> api.TaskCompletion:
    return api.TaskCompletion(success=api.TaskSuccess(output_json=text))


async def main() -> None:
    """Run it."""
    await Worker().run()


if __name__ == "__main__":
    asyncio.run(main())
    sys.exit(3 if FAULT == "exits-with-3" else 0)
