"""The reads service as a deployable: WorkflowService over gRPC. It looks and never touches: its login may SELECT and nothing else.

Every id is looked up with its tenant; a foreign id, a random one and a text that is none get the same answer (N1, TN-01). It holds no state but the outlines
of versions, so any number of replicas may run.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from datetime import datetime
from typing import Any, Final

import asyncpg

from ductor.workflow.v1 import workflow_service_pb2 as api
from ductor.workflow.v1 import workflow_service_pb2_grpc as rpc
from ductord.access.keys import authenticate
from ductord.db.listen import Listener
from ductord.db.outage import answers, patient, refusal_of
from ductord.db.pool import open_pool, tenant_transaction
from ductord.db.queries import Queries
from ductord.db.waits import Waits
from ductord.reads import audit, ledger
from ductord.reads.attempts import list_attempts
from ductord.reads.audit import list_audit, run_audit
from ductord.reads.children import get_child, list_children, read_wanted
from ductord.reads.export import export_run
from ductord.reads.ledger import list_compensations
from ductord.reads.listing import list_runs, read_filter
from ductord.reads.runs import expect_run, get_run, last_successor
from ductord.reads.steps import get_step, known_step, list_steps, look
from ductord.reads.timeline import get_timeline
from ductord.reads.unified import get_unified_timeline
from ductord.reads.versions import Outlines
from ductord.reads.watching import GAP_S, Watches, moved
from ductord.rpc.answers import response_metadata
from ductord.rpc.caller import caller
from ductord.rpc.config import Settings
from ductord.rpc.errors import field_required
from ductord.rpc.host import Scope, Service
from ductord.rpc.paging import page_of, token_of
from ductord.rpc.runs import run_id_of

_PLANS: Final = {"plan_cache_mode": "force_custom_plan", "max_parallel_workers_per_gather": "0"}
"""Lists have filters that may or may not be given: each is planned with the values at hand. And none is worth more than one core of those that drive runs."""
_q: Final = Queries("ductord.reads")


class Servicer(rpc.WorkflowServiceServicer):
    """The RPCs: check the request, look, answer."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings, outlines: Outlines, watches: Watches) -> None:
        self._pool = pool
        self._outlines = outlines
        self._watches = watches
        self._settings = settings
        self._max_bytes = settings.reply_max_bytes

    async def ListRuns(self, request: api.ListRunsRequest, context: Any) -> api.ListRunsResponse:  # noqa: N802
        """Runs, newest first."""
        tenant_id = caller().tenant
        wanted, page = read_filter(request), page_of(request, tenant_id)
        async with self._looking(tenant_id) as (db, now):
            data, token = await list_runs(db, tenant_id, wanted, page)
        return api.ListRunsResponse(data=data, next_page_token=token, metadata=response_metadata(now))

    async def GetRun(self, request: api.GetRunRequest, context: Any) -> api.GetRunResponse:  # noqa: N802
        """One run with its payloads."""
        tenant_id, run_id = caller().tenant, run_id_of(request.run_id)
        async with self._looking(tenant_id) as (db, now):
            if request.follow_successors:
                run_id = await last_successor(db, tenant_id, run_id)
            form, tree = request.payload_format, request.include_tree
            data = await get_run(db, self._outlines, tenant_id, run_id, form, self._max_bytes, tree=tree)
        return api.GetRunResponse(data=data, metadata=response_metadata(now))

    async def ListRunSteps(self, request: api.ListRunStepsRequest, context: Any) -> api.ListRunStepsResponse:  # noqa: N802
        """The nodes of a run in graph order, or the children of one."""
        tenant_id, run_id = caller().tenant, run_id_of(request.run_id)
        page, ref, form = page_of(request, tenant_id), request.step_ref, request.payload_format
        wanted = read_wanted(request)
        async with self._looking(tenant_id) as (db, now):
            run = await look(db, self._outlines, tenant_id, run_id, now)
            if ref:
                data, token = await list_children(db, run, ref, wanted, page, form, self._max_bytes)
            else:
                data, token = await list_steps(db, run, wanted.status, page, form, self._max_bytes)
        return api.ListRunStepsResponse(data=data, next_page_token=token, metadata=response_metadata(now))

    async def GetRunStep(self, request: api.GetRunStepRequest, context: Any) -> api.GetRunStepResponse:  # noqa: N802
        """One node, or one child of a node, with its input and attempts."""
        tenant_id, run_id = caller().tenant, run_id_of(request.run_id)
        ref, form = request.step_id, request.payload_format
        if not request.step_id:
            raise field_required("step_id")
        async with self._looking(tenant_id) as (db, now):
            run = await look(db, self._outlines, tenant_id, run_id, now)
            if request.HasField("item_index"):
                data = await get_child(db, run, ref, request.item_index, form, self._max_bytes)
            else:
                data = await get_step(db, run, ref, form, self._max_bytes)
        return api.GetRunStepResponse(data=data, metadata=response_metadata(now))

    async def WatchRun(self, request: api.WatchRunRequest, context: Any) -> AsyncIterator[api.WatchRunResponse]:  # noqa: N802
        """A run, message by message, to its end."""
        async with aclosing(self._watches.follow(caller().tenant, request)) as messages:
            async for message in messages:
                yield message

    async def GetRunTimeline(  # noqa: N802
        self, request: api.GetRunTimelineRequest, context: Any
    ) -> api.GetRunTimelineResponse:
        """The history of a run; `unified` weaves in what was asked of it."""
        tenant_id, run_id = caller().tenant, run_id_of(request.run_id)
        page = page_of(request, tenant_id)
        async with self._looking(tenant_id) as (db, now):
            run = await look(db, self._outlines, tenant_id, run_id, now)
            shown = get_unified_timeline if request.unified else get_timeline
            data, token = await shown(db, run, page, request.payload_format, self._max_bytes)
        return api.GetRunTimelineResponse(data=data, next_page_token=token, metadata=response_metadata(now))

    async def ListRunEvents(self, request: api.ListRunEventsRequest, context: Any) -> api.ListRunEventsResponse:  # noqa: N802
        """The attempts of a run."""
        tenant_id, run_id = caller().tenant, run_id_of(request.run_id)
        page, ref = page_of(request, tenant_id), request.step_ref
        async with self._looking(tenant_id) as (db, now):
            run = await look(db, self._outlines, tenant_id, run_id, now)
            if ref:
                known_step(run.outline, ref)
            data, token = await list_attempts(db, tenant_id, run_id, ref, page, request.payload_format, self._max_bytes)
        return api.ListRunEventsResponse(data=data, next_page_token=token, metadata=response_metadata(now))

    async def GetRunAudit(self, request: api.GetRunAuditRequest, context: Any) -> api.GetRunAuditResponse:  # noqa: N802
        """Who did what to a run, and why."""
        tenant_id, run_id = caller().tenant, run_id_of(request.run_id)
        page = page_of(request, tenant_id)
        async with self._looking(tenant_id) as (db, now):
            await expect_run(db, tenant_id, run_id)
            data, token = await run_audit(db, tenant_id, run_id, page, request.payload_format, self._max_bytes)
        return api.GetRunAuditResponse(data=data, next_page_token=token, metadata=response_metadata(now))

    async def ListAudit(self, request: api.ListAuditRequest, context: Any) -> api.ListAuditResponse:  # noqa: N802
        """Who did what in a tenant, and why."""
        tenant_id = caller().tenant
        wanted, page = audit.read_filter(request), page_of(request, tenant_id)
        async with self._looking(tenant_id) as (db, now):
            data, token = await list_audit(db, tenant_id, wanted, page, request.payload_format, self._max_bytes)
        return api.ListAuditResponse(data=data, next_page_token=token, metadata=response_metadata(now))

    async def ListCompensations(  # noqa: N802
        self, request: api.ListCompensationsRequest, context: Any
    ) -> api.ListCompensationsResponse:
        """What is owed, or was, over runs."""
        tenant_id = caller().tenant
        wanted, page = ledger.read_filter(request), page_of(request, tenant_id)
        async with self._looking(tenant_id) as (db, now):
            if wanted.run_id is not None:
                await expect_run(db, tenant_id, wanted.run_id)
            data, token = await list_compensations(db, tenant_id, wanted, page, self._max_bytes)
        return api.ListCompensationsResponse(data=data, next_page_token=token, metadata=response_metadata(now))

    async def ExportRun(self, request: api.ExportRunRequest, context: Any) -> api.ExportRunResponse:  # noqa: N802
        """The recorded facts of a run."""
        tenant_id, run_id = caller().tenant, run_id_of(request.run_id)
        page = token_of(request, tenant_id)
        async with self._looking(tenant_id) as (db, now):
            lines, token = await export_run(db, tenant_id, run_id, page, self._settings)
        return api.ExportRunResponse(lines=lines, next_page_token=token, metadata=response_metadata(now))

    @asynccontextmanager
    async def _looking(self, tenant_id: str) -> AsyncIterator[tuple[asyncpg.Connection, datetime]]:
        """The tenant's rows, and the database's time before they are read."""
        async with tenant_transaction(self._pool, tenant_id) as db:
            yield db, await db.fetchval(_q["now"])


async def start(scope: Scope) -> None:
    """Open the pool, register the RPCs and the loop behind the runs that are watched."""
    settings = scope.settings
    scope.translate(refusal_of)
    options = settings.pool("reads")
    pool = await patient(lambda: open_pool(**options, settings=_PLANS, writes=False), settings.database_start_wait_ms)
    scope.at_stop(pool.close)
    scope.pooled(pool)
    scope.ready_when("database", lambda: answers(pool, writes=False))
    authenticate(scope, pool)
    outlines, waits = Outlines(), Waits(moved(pool), gap_s=GAP_S)
    loop = scope.loop("watches", waits.turn, interval_ms=settings.poll_ms)
    waits.wake = loop.wake
    scope.on_drain(waits.give_up)
    if settings.notify:
        listener = Listener(options["dsn"], {"ductor_run": loop.wake})
        scope.at_stop(listener.stop)
        listener.start()
    watches = Watches(pool, waits, outlines, settings, scope.draining)
    scope.metrics.gauge("ductor_watches", "Runs that are being watched.").set_function(lambda: len(watches))
    scope.rpcs(rpc.add_WorkflowServiceServicer_to_server, Servicer(pool, settings, outlines, watches))


SERVICE = Service(name="reads", start=start)
