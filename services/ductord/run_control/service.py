"""The run control service as a deployable: WorkflowRunControlService over gRPC. It records what operators ask and shows what became of it.

It needs the database and nobody else: a control is accepted while every coordinator is down. It never writes a run.
"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Final

import asyncpg

from ductor.workflow.v1 import control_pb2
from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductor.workflow.v1 import workflow_run_control_service_pb2_grpc as rpc
from ductord.access.keys import authenticate
from ductord.db.listen import Listener
from ductord.db.outage import answers, patient, refusal_of
from ductord.db.pool import PROBES, OnRetry, open_pool, retrying, tenant_transaction
from ductord.db.queries import Queries
from ductord.db.waits import Waits
from ductord.model.control import ControlBody
from ductord.model.enums import Verb
from ductord.rpc.answers import response_metadata, within
from ductord.rpc.attempts import FIRST, attempts_page
from ductord.rpc.bounds import Limits
from ductord.rpc.caller import caller
from ductord.rpc.config import Settings
from ductord.rpc.errors import field_required
from ductord.rpc.host import Scope, Service
from ductord.rpc.metrics import Metrics
from ductord.rpc.paging import page_of
from ductord.rpc.runs import run_id_of
from ductord.run_control import asked, policies, redrives, resets
from ductord.run_control.asked import Ask
from ductord.run_control.histories import Histories
from ductord.run_control.intents import Accepted, Who, accept
from ductord.run_control.operations import Key, get_operation, key_of, settled_operations, wait_of
from ductord.run_control.runs import Versions, find, known_step
from ductord.run_control.snapshots import get_snapshot
from ductord.run_control.successors import refuse_large_context, successor_of

_PLANS: Final = {**PROBES, "plan_cache_mode": "force_custom_plan"}
"""Probes, but planned for each call: calls are few, and a plan made while hardly anything was pending walks through the pending controls of all runs."""
_log = logging.getLogger("ductor.run_control")
_q: Final = Queries("ductord.run_control")


class Servicer(rpc.WorkflowRunControlServiceServicer):
    """The RPCs: check the request, record or look, answer. `context` is only asked how much time the caller has left."""

    def __init__(
        self, pool: asyncpg.Pool, waits: Waits[Key, bool], settings: Settings, metrics: Metrics, on_retry: OnRetry
    ) -> None:
        self._pool = pool
        self._waits = waits
        self._on_retry = on_retry
        self._versions = Versions()
        self._histories = Histories()
        self._limits = Limits(payload_bytes=settings.payload_max_bytes, key_bytes=settings.key_max_bytes)
        self._max_bytes = settings.reply_max_bytes
        self._controls = metrics.counter("ductor_controls", "Controls accepted, by verb.", ("verb", "result"))

    async def PauseRun(self, request: api.PauseRunRequest, context: Any) -> api.PauseRunResponse:  # noqa: N802
        """Let nothing more of the run begin (C2)."""
        return api.PauseRunResponse(**await self._record(Verb.PAUSE, request))

    async def ResumeRun(self, request: api.ResumeRunRequest, context: Any) -> api.ResumeRunResponse:  # noqa: N802
        """Let it go on (C2); wake it, if it was set aside (C9)."""
        return api.ResumeRunResponse(**await self._record(Verb.RESUME, request))

    async def CancelRun(self, request: api.CancelRunRequest, context: Any) -> api.CancelRunResponse:  # noqa: N802
        """End it gracefully (C3)."""
        return api.CancelRunResponse(**await self._record(Verb.CANCEL, request))

    async def TerminateRun(self, request: api.TerminateRunRequest, context: Any) -> api.TerminateRunResponse:  # noqa: N802
        """End it at once (C3)."""
        body = asked.terminated(request)
        return api.TerminateRunResponse(**await self._record(Verb.TERMINATE, request, body))

    async def RedriveRun(self, request: api.RedriveRunRequest, context: Any) -> api.RedriveRunResponse:  # noqa: N802
        """Open it again (C4)."""
        ask = self._asked(Verb.REDRIVE, request, asked.redriven(request))
        answer = api.RedriveRunResponse(run_id=ask.run_id, request_id=ask.request_id)
        if request.dry_run:
            answer.status = control_pb2.ACCEPT_STATUS_DRY_RUN
            async with self._looking() as (db, tenant_id):
                run = await find(db, self._versions, tenant_id, ask.run_id)
            answer.plan.CopyFrom(redrives.planned(run, ask))
            answer.metadata.CopyFrom(response_metadata(run.now))
            return answer
        accepted = await self._accept(ask)
        answer.status = control_pb2.ACCEPT_STATUS_ACCEPTED
        if accepted.known is None:
            answer.plan.CopyFrom(redrives.planned(accepted.found, ask))
        else:
            async with self._looking() as (db, tenant_id):
                plan = await redrives.recorded(db, accepted.found, ask, accepted.known)
            if plan is not None:
                answer.plan.CopyFrom(plan)
        answer.metadata.CopyFrom(response_metadata(accepted.found.now))
        return answer

    async def ContinueAsNewRun(  # noqa: N802
        self, request: api.ContinueAsNewRunRequest, context: Any
    ) -> api.ContinueAsNewRunResponse:
        """End it and go on as a successor (C6)."""
        name = asked.named(request, self._limits)
        ask = asked.ask(Verb.CONTINUE_AS_NEW, name, asked.continued(request, name))
        if ask.body.seed:
            async with self._looking() as (db, tenant_id):
                await refuse_large_context(db, tenant_id, ask.run_id, ask.body.seed)
        accepted = await self._accept(ask)
        return api.ContinueAsNewRunResponse(**_answer(ask, accepted), new_run_id=successor_of(ask, accepted))

    async def PauseNode(self, request: api.PauseNodeRequest, context: Any) -> api.PauseNodeResponse:  # noqa: N802
        """Hold a node."""
        return api.PauseNodeResponse(**await self._record(Verb.PAUSE_NODE, request))

    async def ResumeNode(self, request: api.ResumeNodeRequest, context: Any) -> api.ResumeNodeResponse:  # noqa: N802
        """Let it go on."""
        return api.ResumeNodeResponse(**await self._record(Verb.RESUME_NODE, request))

    async def ResetNode(self, request: api.ResetNodeRequest, context: Any) -> api.ResetNodeResponse:  # noqa: N802
        """Start it anew (C10)."""
        return api.ResetNodeResponse(**await self._record(Verb.RESET_NODE, request))

    async def UpdateNodeRetryPolicy(  # noqa: N802
        self, request: api.UpdateNodeRetryPolicyRequest, context: Any
    ) -> api.UpdateNodeRetryPolicyResponse:
        """Change how it is retried (A1)."""
        body = policies.retry_policy(request)
        return api.UpdateNodeRetryPolicyResponse(**await self._record(Verb.UPDATE_NODE_RETRY_POLICY, request, body))

    async def UpdateNodeTimeout(  # noqa: N802
        self, request: api.UpdateNodeTimeoutRequest, context: Any
    ) -> api.UpdateNodeTimeoutResponse:
        """Change how long it may take (A3)."""
        body = policies.timeouts(request)
        return api.UpdateNodeTimeoutResponse(**await self._record(Verb.UPDATE_NODE_TIMEOUT, request, body))

    async def ResolveRepair(self, request: api.ResolveRepairRequest, context: Any) -> api.ResolveRepairResponse:  # noqa: N802
        """Take a person's word about inverses (C7)."""
        body = asked.resolved(request)
        return api.ResolveRepairResponse(**await self._record(Verb.RESOLVE_REPAIR, request, body))

    async def ResetRun(self, request: api.ResetRunRequest, context: Any) -> api.ResetRunResponse:  # noqa: N802
        """Start a new run from one of its transitions (C5)."""
        name = asked.named(request, self._limits, "source_run_id")
        ask = asked.ask(Verb.RESET, name, asked.reset(request, self._limits, name))
        answer = api.ResetRunResponse(
            status=control_pb2.ACCEPT_STATUS_DRY_RUN if request.dry_run else control_pb2.ACCEPT_STATUS_ACCEPTED,
            run_id=ask.run_id,
            request_id=ask.request_id,
            new_run_id=ask.body.new_run_id,
        )
        async with self._looking() as (db, tenant_id):
            told = await resets.told(db, self._versions, tenant_id, ask, dry_run=request.dry_run)
        now = told.now
        if not request.dry_run:
            now = (await self._accept(ask)).found.now
        if told.preview is not None:
            answer.preview.CopyFrom(told.preview)
        answer.metadata.CopyFrom(response_metadata(now))
        return answer

    async def PreviewReset(self, request: api.PreviewResetRequest, context: Any) -> api.PreviewResetResponse:  # noqa: N802
        """Tell what a reset would do."""
        name = asked.Named(
            run_id=run_id_of(request.source_run_id, "source_run_id"), request_id="", step_ref="", reason=""
        )
        ask = asked.ask(Verb.RESET, name, asked.reset(request, self._limits))
        async with self._looking() as (db, tenant_id):
            told = await resets.told(db, self._versions, tenant_id, ask, dry_run=True)
        return api.PreviewResetResponse(data=told.preview, metadata=response_metadata(told.now))

    async def ListResetTargets(  # noqa: N802
        self, request: api.ListResetTargetsRequest, context: Any
    ) -> api.ListResetTargetsResponse:
        """The transitions from which the run can be reset."""
        run_id = run_id_of(request.run_id)
        page = page_of(request, caller().tenant)
        async with self._looking() as (db, tenant_id):
            run = await find(db, self._versions, tenant_id, run_id)
            data, token = await resets.list_targets(db, self._histories, run, page, self._max_bytes)
        return api.ListResetTargetsResponse(data=data, next_page_token=token, metadata=response_metadata(run.now))

    async def GetRunSnapshot(self, request: api.GetRunSnapshotRequest, context: Any) -> api.GetRunSnapshotResponse:  # noqa: N802
        """Everything about where the run stands."""
        run_id = run_id_of(request.run_id)
        async with self._looking(one_moment=True) as (db, tenant_id):
            data, now = await get_snapshot(
                db, self._versions, tenant_id, run_id, request.payload_format, self._max_bytes
            )
        return api.GetRunSnapshotResponse(data=data, metadata=response_metadata(now))

    async def ListRunAttempts(self, request: api.ListRunAttemptsRequest, context: Any) -> api.ListRunAttemptsResponse:  # noqa: N802
        """Its attempts, oldest first."""
        run_id, ref = run_id_of(request.run_id), request.step_ref
        item = request.item_index if request.HasField("item_index") else None
        if item is not None and not ref:
            raise field_required("step_ref")
        page = page_of(request, caller().tenant)
        async with self._looking() as (db, tenant_id):
            run = await find(db, self._versions, tenant_id, run_id)
            if ref:
                known_step(run.manifest, ref)
            after = FIRST if page.after is None else page.after
            rows = await db.fetch(
                _q["list_attempts"], tenant_id, run_id, ref, *after, page.fetch, self._max_bytes, item
            )
        data, token = attempts_page(rows, page, request.payload_format, self._max_bytes)
        return api.ListRunAttemptsResponse(data=data, next_page_token=token, metadata=response_metadata(run.now))

    async def GetOperation(self, request: api.GetOperationRequest, context: Any) -> api.GetOperationResponse:  # noqa: N802
        """What became of a control."""
        key = key_of(request)
        data, now = await self._operation(key)
        return api.GetOperationResponse(data=data, metadata=response_metadata(now))

    async def WaitOperation(self, request: api.WaitOperationRequest, context: Any) -> api.WaitOperationResponse:  # noqa: N802
        """The same, once it is settled or the time is over. No connection is held meanwhile."""
        key, wait_s = key_of(request), wait_of(request)
        data, now = await self._operation(key)
        if data.status == control_pb2.OPERATION_STATUS_PENDING and wait_s:
            await self._waits.result(caller().tenant, key, within(wait_s, context))
            data, now = await self._operation(key)
        return api.WaitOperationResponse(data=data, metadata=response_metadata(now))

    async def _operation(self, key: Key) -> tuple[control_pb2.Operation, datetime]:
        async def attempt() -> tuple[control_pb2.Operation, datetime]:
            async with self._looking() as (db, tenant_id):
                return await get_operation(db, tenant_id, key)

        return await retrying(attempt, on_retry=self._on_retry)

    def _asked(self, verb: Verb, request: Any, body: ControlBody = asked.NOTHING) -> Ask:
        return asked.ask(verb, asked.named(request, self._limits), body)

    async def _record(self, verb: Verb, request: Any, body: ControlBody = asked.NOTHING) -> dict[str, Any]:
        """Accept a control that has nothing to tell but that; the fields of its answer."""
        ask = self._asked(verb, request, body)
        return _answer(ask, await self._accept(ask))

    async def _accept(self, ask: Ask) -> Accepted:
        call = caller()
        who = Who(tenant_id=call.tenant, actor=call.actor, call_id=call.request_id)
        accepted = await accept(self._pool, self._versions, who, ask, self._on_retry)
        self._controls.labels(ask.verb.value, "accepted" if accepted.known is None else "repeated").inc()
        if accepted.known is None:
            fields = {"run_id": ask.run_id, "step_ref": ask.step_ref, "verb": ask.verb.value, "actor": who.actor}
            _log.info("accepted %s", ask.verb.value, extra=fields)
        return accepted

    @asynccontextmanager
    async def _looking(self, *, one_moment: bool = False) -> AsyncIterator[tuple[asyncpg.Connection, str]]:
        """The caller's tenant's rows, and who that is."""
        tenant_id = caller().tenant
        async with tenant_transaction(self._pool, tenant_id, one_moment=one_moment) as db:
            yield db, tenant_id


def _answer(ask: Ask, accepted: Accepted) -> dict[str, Any]:
    return {
        "status": control_pb2.ACCEPT_STATUS_ACCEPTED,
        "run_id": ask.run_id,
        "request_id": ask.request_id,
        "metadata": response_metadata(accepted.found.now),
    }


async def start(scope: Scope) -> None:
    """Open the pool, register the RPCs and the loop behind waiting calls."""
    settings = scope.settings
    scope.translate(refusal_of)
    options = settings.pool("run_control")
    pool = await patient(lambda: open_pool(**options, settings=_PLANS), settings.database_start_wait_ms)
    scope.at_stop(pool.close)
    scope.pooled(pool)
    scope.ready_when("database", lambda: answers(pool))
    authenticate(scope, pool)
    waits = Waits(settled_operations(pool))
    loop = scope.loop("operations", waits.turn, interval_ms=settings.poll_ms)
    waits.wake = loop.wake
    scope.on_drain(waits.give_up)
    if settings.notify:
        listener = Listener(options["dsn"], {"ductor_operation": loop.wake})
        scope.at_stop(listener.stop)
        listener.start()
    scope.metrics.gauge("ductor_operation_waits", "Calls that wait for an operation.").set_function(lambda: len(waits))
    servicer = Servicer(pool, waits, settings, scope.metrics, scope.retried)
    scope.rpcs(rpc.add_WorkflowRunControlServiceServicer_to_server, servicer)


SERVICE = Service(name="run_control", start=start)
