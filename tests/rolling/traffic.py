"""What a suite is used for while it is being rolled: runs are started one by one, in batches and over REST, followed, approved, told of events, paused and
read, and timetables come due.

`Traffic` keeps a book of what was accepted, for `audit`; it judges nothing.
"""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self

import asyncpg
import grpc

from ductor.workflow.v1 import admin_service_pb2 as admin
from ductor.workflow.v1 import control_pb2, schedule_service_pb2, task_service_pb2
from ductor.workflow.v1 import workflow_definition_service_pb2 as definitions
from ductor.workflow.v1 import workflow_run_control_service_pb2 as control
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.model.starting import event_run_id
from tests.rolling.caller import Caller
from tests.rolling.following import follow
from tests.support.api import actions, chain, message
from tests.support.recorder import Recorder

STEPS = 3
MINUTES = 5
"""How many minutes a timetable is set back, and so has to catch up."""


class Traffic:
    """All of a tenant's traffic. `starting`: also what a release from before engine level 5 knows nothing of, starts by schedules and events among it."""

    def __init__(self, caller: Caller, owner: asyncpg.Connection, recorder: Recorder, *, starting: bool) -> None:
        self.caller = caller
        self.owner = owner
        self.recorder = recorder
        self.starting = starting
        self._over = asyncio.Event()
        self.started: dict[str, set[str]] = {"effects": set(), "asks": set(), "ticks": set(), "born": set()}
        """Run ids by definition, of every start that was accepted."""
        self.resumed = 0
        """Streams that ended with their process and were taken up behind the last message."""
        self._ids: dict[str, str] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, error: object, trace: object) -> None:
        """Nothing of it goes on when its test is over, whatever became of the test."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def publish(self) -> None:
        """The definitions: a chain of effects, one with a person and an event in between, and two that are started by something else than a call."""
        args = {"method": "POST", "url": f"{self.recorder.url}/ok"}
        event = {"event_name": "paid", "correlation_key": "TRIGGER.payload.key"}
        asks = [
            *actions(["before"], "http:request", args=args),
            {"ref": "person", "type": "approval"},
            {"ref": "event", "type": "wait", "wait": {"event": event}},
            *actions(["after"], "http:request", args=args),
        ]
        edges = [
            {"source_ref": a["ref"], "target_ref": b["ref"], "type": "success"} for a, b in itertools.pairwise(asks)
        ]
        one = {"title": "one", "steps": actions(["only"], "http:request", args=args), "edges": []}
        schedule = {"cron_expression": "* * * * *", "catchup_window_ms": 86_400_000, "overlap_policy": "allow_all"}
        trees: dict[str, dict[str, Any]] = {
            "effects": chain("effects", STEPS, "http:request", args=args),
            "asks": {"family_slug": "asks", "title": "asks", "steps": asks, "edges": edges},
        }
        if self.starting:
            trees["ticks"] = {
                **one,
                "family_slug": "ticks",
                "triggers": [{"id": "t", "type": "schedule", "schedule": schedule}],
            }
            trees["born"] = {
                **one,
                "family_slug": "born",
                "triggers": [{"id": "on", "type": "event", "patterns": ["birth"]}],
            }
        for slug, tree in trees.items():
            self._ids[slug] = await self._published(tree)

    async def _published(self, tree: dict[str, Any]) -> str:
        """Neither call has a key: an orderly stop costs neither."""
        call, stub = self.caller.call, self.caller.definitions
        created = await call(stub.CreateWorkflowDefinition, message(definitions.CreateWorkflowDefinitionRequest, tree))
        await call(stub.PublishWorkflowDefinition, definitions.PublishWorkflowDefinitionRequest(id=created.data.id))
        return str(created.data.id)

    def begin(self) -> None:
        """Let it flow."""
        kinds: list[tuple[Callable[[int], Awaitable[None]], float]] = [
            (self._trigger, 0.15),
            (self._batch, 0.5),
            (self._rest, 0.2),
            (self._read, 0.1),
            (self._journey, 0.3),
            (self._journey_held, 0.7),
        ]
        if self.starting:
            # Without a key: a process of this release that stops answers what has reached it. (One of before cancelled what it had not looked at.)
            kinds += [(self._draft, 0.7), (self._event, 0.25), (self._fire, 0.5), (self._policy, 0.3)]
        self._tasks = [asyncio.create_task(self._every(each, pause)) for each, pause in kinds]

    async def end(self) -> None:
        """Let nothing new begin and wait until every run has ended."""
        self._over.set()
        await asyncio.gather(*self._tasks)
        async with asyncio.timeout(60):
            while await self._open():  # noqa: ASYNC110  # rows have no event
                await asyncio.sleep(0.1)

    async def catch_up(self) -> None:
        """Set the timetable back: its coordinator finds minutes that are due."""
        await self.owner.execute(
            f"update eec_workflow_schedule set next_time = next_time - interval '{MINUTES} minutes' where tenant_id = $1",
            self.caller.tenant,
        )

    async def _every(self, each: Callable[[int], Awaitable[None]], pause: float) -> None:
        """One after the other until it is over; what one of them raises is in the caller's book already, or the test's end."""
        running: set[asyncio.Task[None]] = set()
        try:
            for number in itertools.count():
                running.add(asyncio.ensure_future(self._one(each, number)))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._over.wait(), pause)
                if self._over.is_set():
                    await asyncio.gather(*running)
                    return
        finally:
            for one in running:
                one.cancel()

    async def _one(self, each: Callable[[int], Awaitable[None]], number: int) -> None:
        with suppress(grpc.aio.AioRpcError, ConnectionError):
            await each(number)

    async def _trigger(self, number: int) -> None:
        await self._start("effects", f"one-{number}")

    async def _start(self, slug: str, key: str, input_: Any = None) -> str:
        request = triggers.TriggerWorkflowRequest(
            definition_id=self._ids[slug], idempotency_key=key, input_json=json.dumps(input_ or {})
        )
        run_id: str = (await self.caller.call(self.caller.triggers.TriggerWorkflow, request, keyed=True)).run_id
        self.started[slug].add(run_id)
        return run_id

    async def _batch(self, number: int) -> None:
        items = [triggers.BatchTriggerItem(input_json="{}", idempotency_key=f"batch-{number}-{i}") for i in range(3)]
        request = triggers.BatchTriggerWorkflowRequest(definition_id=self._ids["effects"], items=items)
        answer = await self.caller.call(self.caller.triggers.BatchTriggerWorkflow, request, keyed=True)
        self.started["effects"] |= {result.run_id for result in answer.results}

    async def _rest(self, number: int) -> None:
        path = f"/api/v2/workflow-definitions/{self._ids['effects']}:trigger"
        answer = await self.caller.rest("POST", path, json={"idempotency_key": f"rest-{number}", "input": {}})
        run_id = answer.get("run_id") or answer["runId"]
        self.started["effects"].add(run_id)
        await self.caller.rest("GET", f"/api/workflows/runs/{run_id}")

    async def _read(self, number: int) -> None:
        call = self.caller.call
        listed = await call(self.caller.reads.ListRuns, reads.ListRunsRequest(page_size=5))
        await call(self.caller.tasks.DescribeQueues, task_service_pb2.DescribeQueuesRequest())
        await call(self.caller.definitions.ListWorkflowDefinitions, definitions.ListWorkflowDefinitionsRequest())
        for run in listed.data[:1]:
            await call(self.caller.reads.GetRun, reads.GetRunRequest(run_id=run.run_id))
            await call(self.caller.control.GetRunSnapshot, control.GetRunSnapshotRequest(run_id=run.run_id))
            await call(
                self.caller.signals.ListWaitReceipts,
                signals.ListWaitReceiptsRequest(run_id=run.run_id, step_ref="event"),
            ) if run.run_id in self.started["asks"] else None

    async def _policy(self, number: int) -> None:
        await self.caller.call(self.caller.admin.GetReleasePolicy, admin.GetReleasePolicyRequest())

    async def _draft(self, number: int) -> None:
        await self._published(chain(f"draft-{number}", 1))

    async def _event(self, number: int) -> None:
        event = signals.PublishEventRequest(event_name="birth", event_id=f"e{number}", payload_json="{}")
        await self.caller.call(self.caller.signals.PublishEvent, event, keyed=True)
        self.started["born"].add(event_run_id(self._ids["born"], "on", "birth", f"e{number}"))

    async def _fire(self, number: int) -> None:
        listed = await self.caller.call(
            self.caller.schedules.ListSchedules, schedule_service_pb2.ListSchedulesRequest(workflow_type="ticks")
        )
        request = schedule_service_pb2.TriggerScheduleNowRequest(
            schedule_id=listed.data[0].schedule_id, request_id=f"now-{number}"
        )
        answer = await self.caller.call(self.caller.schedules.TriggerScheduleNow, request, keyed=True)
        self.started["ticks"].add(answer.data.run_id)

    async def _journey(self, number: int) -> None:
        run_id = await self._start("asks", f"ask-{number}", {"key": f"k{number}"})
        await self._follow(run_id, f"k{number}")

    async def _journey_held(self, number: int) -> None:
        """As a journey, and an operator holds it for a while."""
        run_id = await self._start("asks", f"held-{number}", {"key": f"h{number}"})
        for rpc, request in (
            (self.caller.control.PauseRun, control.PauseRunRequest(run_id=run_id, request_id="hold")),
            (self.caller.control.ResumeRun, control.ResumeRunRequest(run_id=run_id, request_id="go")),
        ):
            await self.caller.call(rpc, request, keyed=True)
            wait = control.WaitOperationRequest(run_id=run_id, request_id=request.request_id, timeout_seconds=20)
            while True:
                answer = await self.caller.call(self.caller.control.WaitOperation, wait)
                if answer.data.status != control_pb2.OPERATION_STATUS_PENDING:
                    break
        await self._follow(run_id, f"h{number}")

    async def _follow(self, run_id: str, key: str) -> None:
        resumed = await follow(self.caller, run_id, key)
        self.resumed += resumed

    async def _open(self) -> int:
        count: int = await self.owner.fetchval(
            "select count(*) from eec_workflow_run_start s left join eec_workflow_run r using (tenant_id, run_id)"
            " where s.tenant_id = $1 and r.end_time is null",
            self.caller.tenant,
        )
        return count
