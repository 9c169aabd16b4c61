"""`TaskService`: hands tasks to workers and takes their results. Ours is one worker among many; all speak this protocol and nothing else.

A method reads its request as values, calls one module and writes the answer. The database judges every lease; nothing here keeps one in memory.
"""

import functools
import logging
from datetime import datetime
from typing import Any, Final

import asyncpg

from ductor.workflow.v1 import common_pb2, run_pb2, task_service_pb2_grpc
from ductor.workflow.v1 import task_service_pb2 as api
from ductord.access.keys import authenticate
from ductord.db.listen import Listener
from ductord.db.outage import answers, patient, refusal_of
from ductord.db.pool import PROBES, REPLAN_S, open_pool
from ductord.dispatch import queues, requests, token
from ductord.dispatch.leases import LeasedTask, Leases
from ductord.dispatch.measures import Measures
from ductord.dispatch.outcomes import Outcomes, Settled, Verdict
from ductord.dispatch.waiting import QUIET_S, Taken, Waiting
from ductord.rpc.answers import response_metadata, timestamp_or_none
from ductord.rpc.caller import caller
from ductord.rpc.config import Settings
from ductord.rpc.errors import draining, refused
from ductord.rpc.host import Scope, Service

REPLY_MARGIN_S: Final = 0.25
"""A poll answers so much before its caller's deadline: an answer that comes after it is a lost one."""
MIN_BEAT_MS: Final = 20

_TIER: Final = {name.removeprefix("TIER_").lower(): value for name, value in common_pb2.Tier.items()}
_KIND: Final = {name.removeprefix("TASK_KIND_").lower(): value for name, value in run_pb2.TaskKind.items()}
_ANSWERS: Final = {
    Verdict.ACCEPTED: api.TASK_COMPLETION_STATUS_OK,
    Verdict.REPEATED: api.TASK_COMPLETION_STATUS_OK,
    Verdict.TIMED_OUT: api.TASK_COMPLETION_STATUS_LEASE_LOST,
    Verdict.STALE: api.TASK_COMPLETION_STATUS_LEASE_LOST,
}
_LOST: Final = "the task is no longer yours; the report changes nothing"
_LATE: Final = "the attempt's time-out had passed"
_MESSAGES: Final = {Verdict.TIMED_OUT: _LATE, Verdict.STALE: _LOST}

_log = logging.getLogger("ductor.dispatch")


class TaskServicer(task_service_pb2_grpc.TaskServiceServicer):
    """The four RPCs."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        leases: Leases,
        outcomes: Outcomes,
        waiting: Waiting,
        measures: Measures,
        settings: Settings,
    ) -> None:
        self._pool = pool
        self._leases = leases
        self._outcomes = outcomes
        self._waiting = waiting
        self._measures = measures
        self._settings = settings
        # Reports and heartbeats have room beside the polls, however many wait: no lease shall end because other workers are idle.
        self._max_polls = max(settings.max_calls // 2, 1)
        self._polls = 0
        self._beat_ms = min(settings.heartbeat_ms, max(settings.lease_ms // 3, MIN_BEAT_MS))

    async def PollTasks(self, request: api.PollTasksRequest, context: Any) -> api.PollTasksResponse:  # noqa: N802  # the contract's name
        """Lease due tasks, waiting for the first; a repeated poll id gets what an earlier reply lost."""
        poll = requests.poll(request, caller().tenant_id, self._settings)
        if self._waiting.closed:
            raise draining()
        if self._polls >= self._max_polls:
            message = "more polls wait than this process takes: poll for more tasks at once, or add dispatchers"
            raise refused("OVERLOADED", message, retry_after_ms=500)
        wait_s = min(request.wait_ms, self._settings.poll_wait_max_ms) / 1000
        left = context.time_remaining()
        if left is not None:
            wait_s = min(wait_s, max(left - REPLY_MARGIN_S, 0.0))
        self._polls += 1
        try:
            again = await self._leases.redeliver(poll) if request.poll_id else None
            taken = Taken(again.tasks, again.now) if again else await self._waiting.take(poll, wait_s)
        finally:
            self._polls -= 1
        self._measures.leased(taken.tasks)
        answer = api.PollTasksResponse(metadata=_metadata(taken.looked))
        for task in taken.tasks:
            self._add(answer, task)
        return answer

    async def CompleteTasks(self, request: api.CompleteTasksRequest, context: Any) -> api.CompleteTasksResponse:  # noqa: N802
        """Take outcomes, each on its own."""
        reports = requests.completions(request, caller().tenant_id, self._settings)
        settled, now = await self._outcomes.complete(reports)
        self._measures.reported(settled)
        results = {each.report.number: _result(each) for each in settled}
        lost = (api.TASK_COMPLETION_STATUS_LEASE_LOST, _LOST)
        answer = api.CompleteTasksResponse(metadata=_metadata(now))
        for number, completion in enumerate(request.completions):
            status, message = results.get(number, lost)
            answer.results.add(task_token=completion.task_token, status=status, message=message)
        return answer

    async def HeartbeatTasks(self, request: api.HeartbeatTasksRequest, context: Any) -> api.HeartbeatTasksResponse:  # noqa: N802
        """Renew leases, and tell which tasks to stop."""
        beats, faults = requests.beats(request, caller().tenant_id, self._settings)
        for fault in faults:
            _log.warning("heartbeat details are not kept: %s", fault)
        held, now = await self._outcomes.heartbeat(beats)
        results = []
        for number, beat in enumerate(request.heartbeats):
            cancel = held.get(number)
            status = api.TASK_HEARTBEAT_STATUS_LEASE_LOST
            if cancel is not None:
                status = api.TASK_HEARTBEAT_STATUS_CANCEL if cancel else api.TASK_HEARTBEAT_STATUS_CONTINUE
            results.append(api.TaskHeartbeatResult(task_token=beat.task_token, status=status))
        self._measures.beaten(_beat_name(result.status) for result in results)
        return api.HeartbeatTasksResponse(results=results, metadata=_metadata(now))

    async def DescribeQueues(self, request: api.DescribeQueuesRequest, context: Any) -> api.DescribeQueuesResponse:  # noqa: N802
        """Count what waits and runs, at a bounded cost."""
        states, now = await queues.describe(
            self._pool, caller().tenant_id, requests.queue_names(request, self._settings)
        )
        data = [
            api.QueueDescription(
                queue=state.queue,
                tier=_TIER[state.tier],
                ready_count=state.ready,
                delayed_count=state.delayed,
                leased_count=state.leased,
                oldest_ready_time=timestamp_or_none(state.oldest),
            )
            for state in states
        ]
        return api.DescribeQueuesResponse(data=data, metadata=_metadata(now))

    def _add(self, answer: api.PollTasksResponse, task: LeasedTask) -> None:
        key = task.key
        beat_ms = self._beat_ms
        if task.heartbeat_timeout_ms is not None:
            beat_ms = max(min(beat_ms, task.heartbeat_timeout_ms // 3), MIN_BEAT_MS)
        answer.tasks.add(  # in place: a message that is handed over is copied
            task_token=token.written(key),
            tenant_id=key.tenant_id,
            run_id=key.run_id,
            kind=_KIND[key.kind],
            step_ref=key.step_ref,
            item_index=None if key.item_index < 0 else key.item_index,
            attempt=key.attempt,
            action=task.action,
            input_json=task.input,
            remaining_ms=None if task.remaining_ms is None else max(task.remaining_ms, 0),
            lease_ms=self._settings.lease_ms,
            heartbeat_interval_ms=beat_ms,
            idempotency_key=task.idempotency_key,
            heartbeat_details_json=task.previous_details,
            traceparent=task.traceparent,
            tier=_TIER[task.tier],
            queue=task.queue,
        )


def _result(settled: Settled) -> tuple[api.TaskCompletionStatus.ValueType, str]:
    report = settled.report.report
    status = _ANSWERS[settled.verdict]
    if report.payload_refused and status == api.TASK_COMPLETION_STATUS_OK:
        return api.TASK_COMPLETION_STATUS_PAYLOAD_INVALID, report.error_message or ""
    return status, _MESSAGES.get(settled.verdict, "")


def _beat_name(status: api.TaskHeartbeatStatus.ValueType) -> str:
    return api.TaskHeartbeatStatus.Name(status).removeprefix("TASK_HEARTBEAT_STATUS_").lower()


def _metadata(now: datetime | None) -> common_pb2.ResponseMetadata:
    if now is not None:
        return response_metadata(now)
    call = caller()
    return common_pb2.ResponseMetadata(trace_id=call.trace_id, request_id=call.request_id)


async def start(scope: Scope) -> None:
    """Open the pool, begin to listen, serve."""
    settings = scope.settings
    scope.translate(refusal_of)
    pool = await patient(
        lambda: open_pool(**settings.pool("dispatch"), settings=PROBES, replan_s=REPLAN_S),
        settings.database_start_wait_ms,
    )
    scope.at_stop(pool.close)
    scope.pooled(pool)
    scope.ready_when("database", lambda: answers(pool))
    authenticate(scope, pool)
    leases = Leases(pool, lease_ms=settings.lease_ms, max_bytes=settings.reply_max_bytes, on_retry=scope.retried)
    waiting = Waiting(leases, interval_ms=settings.poll_ms, quiet_s=QUIET_S if settings.notify else 0.0)
    measures = Measures(scope.metrics, lambda: len(waiting))
    waiting.wake = scope.loop("claims", waiting.turn, interval_ms=settings.poll_ms).wake
    scope.loop("gauges", functools.partial(_gauges, pool, measures), interval_ms=settings.sweep_ms)
    scope.on_drain(waiting.drain)
    if settings.notify:
        listener = Listener(settings.pool("dispatch")["dsn"], {"ductor_task": waiting.hint})
        scope.at_stop(listener.stop)
        listener.start()
    outcomes = Outcomes(pool, lease_ms=settings.lease_ms, on_retry=scope.retried)
    servicer = TaskServicer(pool, leases, outcomes, waiting, measures, settings)
    scope.rpcs(task_service_pb2_grpc.add_TaskServiceServicer_to_server, servicer)


async def _gauges(pool: asyncpg.Pool, measures: Measures) -> None:
    states, now = await queues.describe(pool, None, ())
    measures.queues(states, now.timestamp())


SERVICE = Service(name="dispatch", start=start)
