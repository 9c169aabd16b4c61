"""The signals service as a deployable: WorkflowSignalService over gRPC. It takes word from outside, durably, and wakes the runs that it concerns.

It needs the database and nobody else: a signal is accepted and an event published while every coordinator is down. It never writes a run.
"""

import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

from ductor.workflow.v1 import control_pb2
from ductor.workflow.v1 import workflow_signal_service_pb2 as api
from ductor.workflow.v1 import workflow_signal_service_pb2_grpc as rpc
from ductord.access.keys import authenticate
from ductord.db.outage import answers, patient, refusal_of
from ductord.db.pool import PROBES, REPLAN_S, OnRetry, open_pool, tenant_transaction
from ductord.db.queries import Queries
from ductord.db.runs import Versions
from ductord.model.enums import SignalVerb
from ductord.model.jsonvalue import storable_text
from ductord.rpc.answers import response_metadata
from ductord.rpc.bounds import Limits
from ductord.rpc.caller import caller
from ductord.rpc.config import Settings
from ductord.rpc.errors import field_required
from ductord.rpc.host import Scope, Service
from ductord.rpc.metrics import Metrics
from ductord.rpc.paging import page_of
from ductord.rpc.runs import run_id_of, run_not_found, step_of
from ductord.signals import asked
from ductord.signals.asked import Event, Word
from ductord.signals.explaining import explain
from ductord.signals.publishing import Publication, Published
from ductord.signals.receipts import list_receipts
from ductord.signals.starting import Rules
from ductord.signals.telling import tell, told_by
from ductord.starting.versions import Versions as Startable

_SHOWN: Final = 300
_TOLD: Final = 1_000
"""Characters of a reason that an answer shows, and how many refused triggers: one event may meet very many, and an answer that the caller's client takes for
too large comes when all is done. The log and the metric count every one."""

_log = logging.getLogger("ductor.signals")
_q: Final = Queries("ductord.signals")


class Servicer(rpc.WorkflowSignalServiceServicer):
    """The RPCs: check the request, record or look, answer."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings, metrics: Metrics, on_retry: OnRetry) -> None:
        self._pool = pool
        self._on_retry = on_retry
        self._versions = Versions(_q["load_manifest"], "signals")
        self._limits = Limits(payload_bytes=settings.payload_max_bytes, key_bytes=settings.key_max_bytes)
        self._signals = metrics.counter("ductor_signals", "Signals accepted, by verb.", ("verb", "result"))
        self._events = metrics.counter("ductor_external_events", "External events published.", ("result",))
        self._matched = metrics.counter("ductor_external_events_matched", "Waits that external events matched.")
        self._started = metrics.counter("ductor_external_events_started", "Runs that external events started.")
        self._refused = metrics.counter(
            "ductor_event_triggers_refused", "Event triggers that matched and could not start a run.", ("code",)
        )
        self._startable = Startable()
        self._rules = Rules(
            environment=settings.environment,
            wildcards=settings.events_wildcards_enabled,
            payload_bytes=settings.payload_max_bytes,
        )

    async def ApproveStep(self, request: api.ApproveStepRequest, context: Any) -> api.ApproveStepResponse:  # noqa: N802
        """Approve a step (E2)."""
        word = asked.decided(SignalVerb.APPROVE, request, self._limits)
        return api.ApproveStepResponse(**await self._tell(word))

    async def RejectStep(self, request: api.RejectStepRequest, context: Any) -> api.RejectStepResponse:  # noqa: N802
        """Reject it (E2)."""
        word = asked.decided(SignalVerb.REJECT, request, self._limits)
        return api.RejectStepResponse(**await self._tell(word))

    async def ResolveInteraction(  # noqa: N802
        self, request: api.ResolveInteractionRequest, context: Any
    ) -> api.ResolveInteractionResponse:
        """Resolve an interaction, or move its case on (E6)."""
        return api.ResolveInteractionResponse(**await self._tell(asked.resolved(request, self._limits)))

    async def PublishEvent(self, request: api.PublishEventRequest, context: Any) -> api.PublishEventResponse:  # noqa: N802
        """Publish an external event (E3, T3)."""
        event = asked.published(request, self._limits)
        call = caller()
        published = await Publication(
            self._pool,
            call.tenant,
            event,
            self._on_retry,
            versions=self._startable,
            rules=self._rules,
            traceparent=call.traceparent,
        ).publish()
        self._account(event, published)
        return api.PublishEventResponse(
            matched=published.matched,
            duplicate=published.duplicate,
            started_run_ids=published.started,
            event_id=event.event_id,
            metadata=response_metadata(published.now),
            refused_triggers=[
                api.RefusedTrigger(
                    definition_id=trigger.definition_id,
                    trigger_id=trigger.trigger_id,
                    code=trigger.fault.code,
                    message=storable_text(trigger.fault.message, max_chars=_SHOWN),
                )
                for trigger in published.refused[:_TOLD]
            ],
        )

    async def ExplainWorkflowEventSetMatch(  # noqa: N802
        self, request: api.ExplainWorkflowEventSetMatchRequest, context: Any
    ) -> api.ExplainWorkflowEventSetMatchResponse:
        """Tell what an event would do."""
        event = asked.sample(request, self._limits)
        run_id = run_id_of(request.run_id) if request.run_id else None
        return await explain(self._pool, caller().tenant, event, run_id)

    async def ListWaitReceipts(  # noqa: N802
        self, request: api.ListWaitReceiptsRequest, context: Any
    ) -> api.ListWaitReceiptsResponse:
        """The events that a step has received, oldest first."""
        run_id, ref = run_id_of(request.run_id), request.step_ref
        if not ref:
            raise field_required("step_ref")
        page = page_of(request, caller().tenant)
        async with self._looking() as (db, tenant_id):
            row = await db.fetchrow(_q["load_run"], tenant_id, run_id)
            if row is None:
                raise run_not_found()
            step_of(await self._versions.manifest(db, tenant_id, row["version_id"]), ref)
            data, token = await list_receipts(db, tenant_id, run_id, ref, page)
        return api.ListWaitReceiptsResponse(data=data, next_page_token=token, metadata=response_metadata(row["now"]))

    async def _tell(self, word: Word) -> dict[str, Any]:
        """Accept a signal; the fields of its answer."""
        who = told_by(caller(), word)
        told = await tell(self._pool, self._versions, who, word, self._on_retry)
        self._signals.labels(word.verb.value, told.result).inc()
        if told.result != "repeated":
            fields = {"run_id": word.run_id, "step_ref": word.step_ref, "verb": word.verb.value, "actor": who.actor}
            _log.info("%s %s", told.result, word.verb.value, extra=fields)
        return {
            "status": control_pb2.ACCEPT_STATUS_ACCEPTED,
            "run_id": word.run_id,
            "request_id": word.request_id,
            "metadata": response_metadata(told.now),
        }

    def _account(self, event: Event, published: Published) -> None:
        """Count and log what an event did."""
        self._matched.inc(published.matched)
        self._started.inc(len(published.started))
        if published.duplicate:
            result = "duplicate"
        elif published.matched:
            result = "matched"
        elif event.keep:
            result = "kept"
        else:
            result = "started" if published.started else "unmatched"
        self._events.labels(result).inc()
        fields = {"event_name": event.event_name, "event_id": event.event_id}
        if count := len(published.started):
            what = "a run" if count == 1 else f"{count} runs, this one first"
            _log.info("an event started %s", what, extra={**fields, "run_id": published.started[0]})
        for code, count in Counter(trigger.fault.code for trigger in published.refused).items():
            self._refused.labels(code).inc(count)
            first = next(trigger for trigger in published.refused if trigger.fault.code == code)
            about = {"definition_id": first.definition_id, "trigger_id": first.trigger_id, "code": code, "count": count}
            _log.warning("an event matched triggers that start no run, this one first", extra={**fields, **about})

    @asynccontextmanager
    async def _looking(self) -> AsyncIterator[tuple[asyncpg.Connection, str]]:
        """The caller's tenant's rows, and who that is."""
        tenant_id = caller().tenant
        async with tenant_transaction(self._pool, tenant_id) as db:
            yield db, tenant_id


async def start(scope: Scope) -> None:
    """Open the pool, register the RPCs."""
    settings = scope.settings
    scope.translate(refusal_of)
    options = settings.pool("signals")
    pool = await patient(
        lambda: open_pool(**options, settings=PROBES, replan_s=REPLAN_S), settings.database_start_wait_ms
    )
    scope.at_stop(pool.close)
    scope.pooled(pool)
    scope.ready_when("database", lambda: answers(pool))
    authenticate(scope, pool)
    servicer = Servicer(pool, settings, scope.metrics, scope.retried)
    scope.rpcs(rpc.add_WorkflowSignalServiceServicer_to_server, servicer)


SERVICE = Service(name="signals", start=start)
