"""The two clients of the load test: one that starts runs, one that reads, watches and publishes meanwhile."""

import asyncio
import itertools
import json
import time
from collections import deque
from typing import Any

from bench.soak.timed import Times, at_rate
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1 import workflow_signal_service_pb2_grpc as signals_grpc
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from tests.support.api import Api, chain

STEPS = 10
BATCHES_PER_S = 10
PER_S = {
    "ListRuns": 5,
    "ListRuns active": 2,
    "GetRun": 10,
    "ListRunSteps": 5,
    "GetRunTimeline": 2,
    "WatchRun to the end": 3,
    "TriggerWorkflow": 5,
    "PublishEvent": 5,
    "PublishEvent unmatched": 5,
}
"""Calls a second of the second client."""
PATIENCE_S = 2.0
"""How long a run waits before its event is published."""


class Starting:
    """10-step runs, so many steps a second, in ten batches a second, whatever became of those before. `recent`: those that were started last."""

    def __init__(self, api: Api, times: Times, steps_per_s: float) -> None:
        self._api, self._times = api, times
        self._per_batch = steps_per_s / STEPS / BATCHES_PER_S
        self.recent: deque[str] = deque(maxlen=2_000)
        self.begun = asyncio.Event()
        self.started = 0

    async def run(self, until: float) -> None:
        """Until that moment."""
        definition_id = await self._api.publish(chain("soak", STEPS))

        async def batch(number: int) -> None:
            count = int((number + 1) * self._per_batch) - int(number * self._per_batch)
            if not count:
                return
            items = [triggers.BatchTriggerItem(input_json='{"n": 1}') for _ in range(count)]
            request = triggers.BatchTriggerWorkflowRequest(definition_id=definition_id, items=items)
            answer = await self._api.triggers.BatchTriggerWorkflow(request, metadata=self._api.metadata, timeout=30)
            assert all(result.run_id for result in answer.results), answer
            self.recent.extend(result.run_id for result in answer.results)
            self.started += count
            self.begun.set()

        await at_rate(self._times, "BatchTriggerWorkflow", BATCHES_PER_S, until, batch)


class Others:
    """Everybody else: each kind of call at its own rate. Runs that wait for an event are started, and told it a while later."""

    def __init__(self, api: Api, times: Times, starting: Starting) -> None:
        self._api, self._times, self._recent, self._begun = api, times, starting.recent, starting.begun
        self._signals = signals_grpc.WorkflowSignalServiceStub(api.channel)
        self._waiting: deque[tuple[float, str]] = deque()
        self._ids = itertools.count()
        self._definition_id = ""

    async def run(self, until: float) -> None:
        """Until that moment."""
        wait = {"event": {"event_name": "told", "correlation_key": "TRIGGER.payload.key"}}
        self._definition_id = await self._api.publish(
            {"family_slug": "soak-told", "steps": [{"ref": "wait", "type": "wait", "wait": wait}]}
        )
        await self._begun.wait()
        calls = {
            "ListRuns": self._list,
            "ListRuns active": self._list_active,
            "GetRun": self._get,
            "ListRunSteps": self._steps,
            "GetRunTimeline": self._timeline,
            "WatchRun to the end": self._watch,
            "TriggerWorkflow": self._trigger,
            "PublishEvent": self._publish,
            "PublishEvent unmatched": self._publish_unmatched,
        }
        await asyncio.gather(*(at_rate(self._times, name, PER_S[name], until, call) for name, call in calls.items()))

    def _some(self, number: int) -> str:
        return self._recent[number * 7919 % len(self._recent)]

    async def _list(self, number: int) -> None:
        request = reads.ListRunsRequest(workflow_type="soak" if number % 2 else "", page_size=50)
        answer = await self._api.reads.ListRuns(request, metadata=self._api.metadata, timeout=30)
        assert len(answer.data) == 50 or number < 100

    async def _list_active(self, _: int) -> None:
        request = reads.ListRunsRequest(active_only=True, page_size=50)
        await self._api.reads.ListRuns(request, metadata=self._api.metadata, timeout=30)

    async def _get(self, number: int) -> None:
        request = reads.GetRunRequest(run_id=self._some(number))
        await self._api.reads.GetRun(request, metadata=self._api.metadata, timeout=30)

    async def _steps(self, number: int) -> None:
        request = reads.ListRunStepsRequest(run_id=self._some(number))
        await self._api.reads.ListRunSteps(request, metadata=self._api.metadata, timeout=30)

    async def _timeline(self, number: int) -> None:
        request = reads.GetRunTimelineRequest(run_id=self._some(number))
        await self._api.reads.GetRunTimeline(request, metadata=self._api.metadata, timeout=30)

    async def _watch(self, _: int) -> None:
        """A run that has just been started, to its end; what is timed is how long until the first message."""
        stream = self._api.reads.WatchRun(
            reads.WatchRunRequest(run_id=self._recent[-1]), metadata=self._api.metadata, timeout=60
        )
        begin, first = time.perf_counter(), True
        try:
            async for message in stream:
                if first:
                    await self._times.call("WatchRun, first message", begin, asyncio.sleep(0))
                    first = False
                if message.ended:
                    return
        finally:
            stream.cancel()
        raise AssertionError("the stream ended before the run")

    async def _trigger(self, _: int) -> None:
        key = f"k{next(self._ids)}"
        request = triggers.TriggerWorkflowRequest(
            definition_id=self._definition_id, input_json=json.dumps({"key": key})
        )
        await self._api.triggers.TriggerWorkflow(request, metadata=self._api.metadata, timeout=30)
        self._waiting.append((time.perf_counter() + PATIENCE_S, key))

    async def _publish(self, _: int) -> None:
        if self._waiting and self._waiting[0][0] < time.perf_counter():
            key = self._waiting.popleft()[1]
            assert await self._event(key) == 1, "the run waited for its event"

    async def _publish_unmatched(self, _: int) -> None:
        assert await self._event("nobody") == 0

    async def _event(self, key: str) -> Any:
        event = signals.PublishEventRequest(event_name="told", correlation_key=key, event_id=f"e{next(self._ids)}")
        return (await self._signals.PublishEvent(event, metadata=self._api.metadata, timeout=30)).matched
