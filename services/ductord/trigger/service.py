"""The trigger service as a deployable: WorkflowTriggerService and ScheduleService over gRPC. It gives birth to runs and lets callers wait for checkpoints.

It needs the database and nobody else: a run is accepted while every coordinator is down. It never writes what a run becomes.
"""

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import asyncpg

from ductor.workflow.v1 import run_pb2, schedule_service_pb2_grpc
from ductor.workflow.v1 import workflow_trigger_service_pb2 as api
from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as rpc
from ductord.access.keys import authenticate
from ductord.db.listen import Listener
from ductord.db.outage import answers, is_outage, patient, refusal_of
from ductord.db.pool import PROBES, OnRetry, open_pool, retrying, tenant_transaction
from ductord.db.queries import Queries
from ductord.db.waits import Waits
from ductord.model.enums import CheckpointStatus, RunStatus
from ductord.model.errors import PayloadInvalid, Refusal
from ductord.model.ids import canonical
from ductord.rpc.answers import response_metadata, within
from ductord.rpc.bounds import Limits
from ductord.rpc.caller import caller
from ductord.rpc.config import Settings
from ductord.rpc.errors import field_invalid, field_required, of_payload, refused
from ductord.rpc.host import Scope, Service
from ductord.rpc.metrics import Metrics
from ductord.rpc.paging import page_of
from ductord.rpc.payloads import fill_payload
from ductord.starting.versions import Version, Versions
from ductord.trigger import schedules
from ductord.trigger.asked import Asked, read
from ductord.trigger.birth import Birth, Outcome, Started, bear
from ductord.trigger.event_triggers import list_event_triggers
from ductord.trigger.outputs import after
from ductord.trigger.resolving import not_found
from ductord.trigger.waits import Ended, Key, ended_checkpoints

MAX_BATCH: Final = 500
DEFAULT_WAIT_S: Final = 30
MAX_WAIT_S: Final = 300

_log = logging.getLogger("ductor.trigger")
_q: Final = Queries("ductord.trigger")

_STATUSES: Final = {s: run_pb2.RunStatus.Value(f"RUN_STATUS_{s.name}") for s in RunStatus}
_CHECKPOINTS: Final = {s: run_pb2.CheckpointStatus.Value(f"CHECKPOINT_STATUS_{s.name}") for s in CheckpointStatus}


class Servicer(rpc.WorkflowTriggerServiceServicer):
    """The RPCs. `context` is only asked how much time the caller has left."""

    def __init__(
        self,
        pool: asyncpg.Pool,
        waits: Waits[Key, Ended],
        versions: Versions,
        settings: Settings,
        metrics: Metrics,
        on_retry: OnRetry,
    ) -> None:
        self._pool = pool
        self._on_retry = on_retry
        self._waits = waits
        self._versions = versions
        self._limits = Limits(payload_bytes=settings.payload_max_bytes, key_bytes=settings.key_max_bytes)
        self._reply_bytes = settings.reply_max_bytes
        self._environment = settings.environment
        self._wildcards = settings.events_wildcards_enabled
        self._starts = metrics.counter("ductor_run_starts", "Starts asked for, by what came of them.", ("result",))

    async def TriggerWorkflow(  # noqa: N802  # the contract's name
        self, request: api.TriggerWorkflowRequest, context: Any
    ) -> api.TriggerWorkflowResponse:
        """Start one run (T1, D3, D4), or find the one started before; then wait if asked to (G9)."""
        wait_s = _wait_s(request)
        given_id = _definition_id(request.definition_id)
        asked = [read(request, self._limits)]

        def admit(version: Version) -> None:
            if request.wait_for_checkpoint:
                version.checkpoint(request.checkpoint)

        (outcome,), now = await self._bear(given_id, asked, admit)
        if isinstance(outcome, Refusal):
            raise outcome
        answer = api.TriggerWorkflowResponse(
            run_id=outcome.run_id, status=_STATUSES[outcome.status], duplicate=outcome.duplicate
        )
        if request.wait_for_checkpoint:
            now = await self._wait(answer, outcome, request, within(wait_s, context)) or now
        answer.metadata.CopyFrom(response_metadata(now))
        return answer

    async def BatchTriggerWorkflow(  # noqa: N802  # the contract's name
        self, request: api.BatchTriggerWorkflowRequest, context: Any
    ) -> api.BatchTriggerWorkflowResponse:
        """Start up to 500 runs in one transaction; an item that is refused touches no other."""
        given_id = _definition_id(request.definition_id)
        if not request.items:
            raise field_required("items")
        if len(request.items) > MAX_BATCH:
            message = f"items has {len(request.items):,} entries, the limit is {MAX_BATCH}"
            raise refused("BATCH_TOO_LARGE", message, field="items", limit=MAX_BATCH)
        read_items = [self._read(item) for item in request.items]
        born, now = await self._bear(given_id, [a for a in read_items if isinstance(a, Asked)], lambda version: None)
        outcomes = iter(born)
        answer = api.BatchTriggerWorkflowResponse(metadata=response_metadata(now))
        for item in read_items:
            _fill(answer.results.add(), item if isinstance(item, Refusal) else next(outcomes))
        self._starts.labels("refused").inc(len(read_items) - len(born))
        return answer

    async def ListEventTriggers(  # noqa: N802
        self, request: api.ListEventTriggersRequest, context: Any
    ) -> api.ListEventTriggersResponse:
        """A page of the live patterns: all, a definition's, or those that an event of a name would meet (T3)."""
        tenant_id = caller().tenant
        page = page_of(request, tenant_id)

        async def look() -> api.ListEventTriggersResponse:
            async with tenant_transaction(self._pool, tenant_id) as db:
                data, token = await list_event_triggers(
                    db, tenant_id, request, page, wildcards=self._wildcards, name_bytes=self._limits.key_bytes
                )
                now = await db.fetchval(_q["now"])
            return api.ListEventTriggersResponse(data=data, next_page_token=token, metadata=response_metadata(now))

        return await retrying(look, on_retry=self._on_retry)

    async def _bear(self, given_id: str, asked: Sequence[Asked], admit: Any) -> tuple[list[Outcome], datetime]:
        call = caller()
        birth = Birth(
            tenant_id=call.tenant,
            given_id=given_id,
            traceparent=call.traceparent,
            actor=call.actor,
            environment=self._environment,
            admit=admit,
        )
        outcomes, now = await bear(self._pool, self._versions, birth, asked, self._on_retry)
        self._account(given_id, asked, outcomes)
        return outcomes, now

    def _account(self, given_id: str, asked: Sequence[Asked], outcomes: Sequence[Outcome]) -> None:
        """Count and log what came of a call."""
        started = [outcome for outcome in outcomes if isinstance(outcome, Started)]
        new = [outcome for outcome in started if not outcome.duplicate]
        self._starts.labels("started").inc(len(new))
        self._starts.labels("duplicate").inc(len(started) - len(new))
        self._starts.labels("refused").inc(len(outcomes) - len(started))
        if new:
            fields = {"definition_id": given_id, "run_id": new[0].run_id, "count": len(new)}
            _log.info("started %s", "a run" if len(new) == 1 else f"{len(new)} runs, this one first", extra=fields)

    def _read(self, item: api.BatchTriggerItem) -> Asked | Refusal:
        try:
            return read(item, self._limits)
        except Refusal as refusal:
            return refusal
        except PayloadInvalid as error:
            return of_payload(error)

    async def _wait(
        self, answer: api.TriggerWorkflowResponse, run: Started, request: api.TriggerWorkflowRequest, wait_s: float
    ) -> datetime | None:
        """Wait for the checkpoint of the run's own version, which a repeated call's run need not share with the definition of today.

        The run is accepted by now: a database that goes away meanwhile must not take the run's id from the caller. It hears then, as when time is up,
        that the checkpoint was not reached so far (None: the time of the answer is that of the start).
        """
        tenant_id = caller().tenant
        version = await self._versions.read(self._pool, tenant_id, run.version_id)
        answer.checkpoint = version.checkpoint(request.checkpoint)
        answer.checkpoint_status = _CHECKPOINTS[CheckpointStatus.PENDING]
        key = run.run_id, answer.checkpoint
        ended = await self._waits.result(tenant_id, key, wait_s, early=not run.duplicate)
        try:
            waited = await retrying(
                lambda: after(self._pool, tenant_id, run.run_id, ended, self._reply_bytes), on_retry=self._on_retry
            )
        except Exception as error:
            if not is_outage(error):
                raise
            _log.warning("the database went away while a call waited", extra={"run_id": run.run_id})
            return None
        answer.status = _STATUSES[waited.status]
        answer.checkpoint_status = _CHECKPOINTS[CheckpointStatus.PENDING if ended is None else ended.status]
        answer.checkpoint_reached = ended is not None and ended.status is CheckpointStatus.REACHED
        answer.response_group_output_truncated = waited.truncated
        fill_payload(answer, "response_group_output", waited.group, request.payload_format, max_bytes=self._reply_bytes)
        return waited.now


def _wait_s(request: api.TriggerWorkflowRequest) -> int:
    """Seconds to wait; 0 stands for the default, as an absent number does in most languages. Raises FIELD_INVALID."""
    if not 0 <= request.checkpoint_timeout_seconds <= MAX_WAIT_S:
        raise field_invalid(
            "checkpoint_timeout_seconds", f"is between 0 and {MAX_WAIT_S}; 0 stands for {DEFAULT_WAIT_S}"
        )
    if request.checkpoint and not request.wait_for_checkpoint:
        raise field_invalid("checkpoint", "is only waited for with wait_for_checkpoint")
    return request.checkpoint_timeout_seconds or DEFAULT_WAIT_S


def _definition_id(text: str) -> str:
    if not text:
        raise field_required("definition_id")
    given_id = canonical(text)
    if given_id is None:
        raise not_found()
    return given_id


def _fill(result: api.BatchTriggerResult, outcome: Outcome) -> None:
    if isinstance(outcome, Started):
        result.run_id = outcome.run_id
        result.status = _STATUSES[outcome.status]
        result.duplicate = outcome.duplicate
        return
    result.error.code = outcome.code
    result.error.reason = outcome.reason
    result.error.message = outcome.message
    result.error.metadata.update(outcome.metadata)


async def start(scope: Scope) -> None:
    """Open the pool, register the RPCs and the loop behind checkpoint waits."""
    settings = scope.settings
    scope.translate(refusal_of)
    options = settings.pool("trigger")
    pool = await patient(lambda: open_pool(**options, settings=PROBES), settings.database_start_wait_ms)
    scope.at_stop(pool.close)
    scope.pooled(pool)
    scope.ready_when("database", lambda: answers(pool))
    authenticate(scope, pool)
    waits = Waits(ended_checkpoints(pool))
    loop = scope.loop("checkpoints", waits.turn, interval_ms=settings.poll_ms)
    waits.wake = loop.wake
    scope.on_drain(waits.give_up)
    if settings.notify:
        listener = Listener(options["dsn"], {"ductor_run": loop.wake})
        scope.at_stop(listener.stop)
        listener.start()
    scope.metrics.gauge("ductor_checkpoint_waits", "Calls that wait for a checkpoint.").set_function(lambda: len(waits))
    versions = Versions()
    servicer = Servicer(pool, waits, versions, settings, scope.metrics, scope.retried)
    scope.rpcs(rpc.add_WorkflowTriggerServiceServicer_to_server, servicer)
    operated = schedules.Servicer(pool, versions, settings, scope.metrics, scope.retried)
    scope.rpcs(schedule_service_pb2_grpc.add_ScheduleServiceServicer_to_server, operated)


SERVICE = Service(name="trigger", start=start)
