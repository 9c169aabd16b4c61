"""ScheduleService: timetables, looked at and operated by people (T2). What fires is fired by the same code as the coordinator's watch, under the row's lock.

It never decides what a definition says: a schedule is changed by a publish alone.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import asyncpg
from msgspec.structs import replace

from ductor.workflow.v1 import schedule_service_pb2 as api
from ductor.workflow.v1 import schedule_service_pb2_grpc as rpc
from ductord.db.ids import new_id
from ductord.db.pool import OnRetry, retrying, tenant_transaction
from ductord.db.queries import Queries
from ductord.engine.timetable import Gap
from ductord.model.ids import canonical
from ductord.model.starting import OVERLAP_POLICIES
from ductord.rpc.answers import response_metadata
from ductord.rpc.bounds import bounded, reasoned
from ductord.rpc.caller import caller
from ductord.rpc.config import Settings
from ductord.rpc.errors import refused
from ductord.rpc.metrics import Metrics
from ductord.rpc.paging import Page, page_of
from ductord.starting.fires import FIRES, Asked, Fired, Fires, Scheduled, Unfireable
from ductord.starting.versions import Versions
from ductord.trigger import shown, spans
from ductord.trigger.acts import Act, fire_asked, held, retired, row_of, schedule_id_of
from ductord.trigger.event_triggers import FIRST_ID, definition_of

_END: Final = datetime(9999, 12, 31, tzinfo=UTC)
_ALL_KINDS: Final = "~"
"""Behind every kind of fire."""
_INPUTS_S: Final = 10.0
"""Processor time for the inputs of one call, which keeps its schedule's row locked meanwhile, from a publish as from a coordinator."""
_q: Final = Queries("ductord.trigger", "schedules.sql")

T = TypeVar("T")


class Servicer(rpc.ScheduleServiceServicer):
    """The RPCs."""

    def __init__(
        self, pool: asyncpg.Pool, versions: Versions, settings: Settings, metrics: Metrics, on_retry: OnRetry
    ) -> None:
        self._pool = pool
        self._on_retry = on_retry
        self._key_bytes = settings.key_max_bytes
        self._fires = Fires(versions, environment=settings.environment, payload_max_bytes=settings.payload_max_bytes)
        self._counted = metrics.counter(*FIRES)

    async def ListSchedules(  # noqa: N802  # the contract's name
        self, request: api.ListSchedulesRequest, context: Any
    ) -> api.ListSchedulesResponse:
        """A page. Raises FIELD_INVALID, PAGE_TOKEN_INVALID, and DEFINITION_NOT_FOUND for an id that is none."""
        tenant_id = caller().tenant
        page = page_of(request, tenant_id)
        definition_id = definition_of(request.definition_id)
        bounded("workflow_type", request.workflow_type, self._key_bytes)
        common = (tenant_id, shown.STATUS_WORD[request.status], *_schedule_after(page), page.fetch)

        async def look(db: asyncpg.Connection) -> tuple[list[asyncpg.Record], datetime]:
            if definition_id is None and not request.workflow_type:
                rows = await db.fetch(_q["schedules"], *common)
            else:
                rows = await db.fetch(_q["schedules_of"], *common, request.workflow_type, definition_id)
            return rows, await db.fetchval(_q["now"])

        rows, now = await self._in_transaction(look)
        entries, token = _cut(page, rows, lambda row: (row["family_slug"], row["trigger_id"], row["schedule_id"]))
        data = [shown.schedule(row) for row in entries]
        return api.ListSchedulesResponse(data=data, next_page_token=token, metadata=response_metadata(now))

    async def GetSchedule(  # noqa: N802
        self, request: api.GetScheduleRequest, context: Any
    ) -> api.GetScheduleResponse:
        """One schedule, retired ones too. Raises SCHEDULE_NOT_FOUND."""
        schedule_id = schedule_id_of(request.schedule_id)
        row = await self._in_transaction(lambda db: row_of(db, schedule_id))
        return api.GetScheduleResponse(data=shown.schedule(row), metadata=response_metadata(row["now"]))

    async def PauseSchedule(  # noqa: N802
        self, request: api.PauseScheduleRequest, context: Any
    ) -> api.PauseScheduleResponse:
        """Keep it from firing. What is due by then and has not fired is dropped. Raises SCHEDULE_NOT_FOUND, SCHEDULE_RETIRED."""
        act = self._act(request, "pause_schedule")

        async def pause(db: asyncpg.Connection) -> asyncpg.Record:
            row = await held(db, act.schedule_id)
            if not row["live"]:
                raise retired(row)
            if row["pause_time"] is not None:
                return row
            now = row["now"]
            gap = spans.due_at_pause(row, now)
            await db.execute(
                _q["pause"], act.call.tenant, act.schedule_id, now, act.call.actor, act.reason, *_gap_columns(gap)
            )
            act.dropped = gap.count if gap else 0
            await act.write(db, dropped=act.dropped)
            return await row_of(db, act.schedule_id)

        row = await self._in_transaction(pause)
        self._counted.labels("dropped", "timetable").inc(act.dropped)
        return api.PauseScheduleResponse(data=shown.schedule(row), metadata=response_metadata(row["now"]))

    async def ResumeSchedule(  # noqa: N802
        self, request: api.ResumeScheduleRequest, context: Any
    ) -> api.ResumeScheduleResponse:
        """Let it fire again from its next time on; what fell due meanwhile is dropped (TC-06). Raises SCHEDULE_NOT_FOUND, SCHEDULE_RETIRED."""
        act = self._act(request, "resume_schedule")

        async def resume(db: asyncpg.Connection) -> asyncpg.Record:
            row = await held(db, act.schedule_id)
            if not row["live"]:
                raise retired(row)
            if row["pause_time"] is None:
                return row
            gap = spans.fallen_in_pause(row, row["now"])
            stands = spans.first_after(row, row["now"])
            await db.execute(_q["resume"], act.call.tenant, act.schedule_id, *stands, *_gap_columns(gap))
            act.dropped = gap.count if gap else 0
            await act.write(db, dropped=act.dropped)
            return await row_of(db, act.schedule_id)

        row = await self._in_transaction(resume)
        self._counted.labels("dropped", "timetable").inc(act.dropped)
        return api.ResumeScheduleResponse(data=shown.schedule(row), metadata=response_metadata(row["now"]))

    async def TriggerScheduleNow(  # noqa: N802
        self, request: api.TriggerScheduleNowRequest, context: Any
    ) -> api.TriggerScheduleNowResponse:
        """Fire it once, paused or not. A request that was made before finds its fire, whatever has become of the schedule since.

        Raises SCHEDULE_NOT_FOUND, SCHEDULE_RETIRED, SCHEDULE_BROKEN.
        """
        act = self._act(request, "trigger_schedule")

        async def fire(db: asyncpg.Connection) -> tuple[asyncpg.Record, bool, datetime, Sequence[Fired]]:
            row = await held(db, act.schedule_id)
            known = await fire_asked(db, act)
            if known is not None:
                return known, known["run_id"] is None or known["run_id"] not in act.started, row["now"], ()
            if not row["live"]:
                raise retired(row)
            asked = Asked(
                schedule=Scheduled.of(row),
                times=(row["now"],),
                source="manual",
                overlap_policy=shown.POLICY_WORD[request.overlap_policy],
                request_id=act.request_id,
            )
            fired = await self._fire(db, act, asked)
            await act.write(db, outcome=fired[0].outcome, run_id=fired[0].run_id)
            return await fire_asked(db, act), False, row["now"], fired

        row, duplicate, now, fired = await self._in_transaction(fire)
        self._count("manual", fired)
        return api.TriggerScheduleNowResponse(
            data=shown.fire(row), duplicate=duplicate, metadata=response_metadata(now)
        )

    async def BackfillSchedule(  # noqa: N802
        self, request: api.BackfillScheduleRequest, context: Any
    ) -> api.BackfillScheduleResponse:
        """Fire the times of (from_time, to_time] that have started no run, all in one transaction; paused or not.

        Raises SCHEDULE_NOT_FOUND, SCHEDULE_RETIRED, SCHEDULE_BROKEN, BACKFILL_TOO_LARGE, FIELD_REQUIRED, FIELD_INVALID.
        """
        act = self._act(request, "backfill_schedule")
        span = spans.asked_span(request)
        policy = shown.POLICY_WORD[request.overlap_policy] or OVERLAP_POLICIES[1]

        async def fire(db: asyncpg.Connection) -> tuple[Sequence[Fired], datetime]:
            row = await held(db, act.schedule_id)
            if not row["live"]:
                raise retired(row)
            times = spans.backfilled(row, span, row["now"])
            asked = Asked(schedule=Scheduled.of(row), times=times, source="backfill", overlap_policy=policy)
            fired = await self._fire(db, act, asked)
            begin, end = (time.isoformat() for time in span)
            await act.write(db, from_time=begin, to_time=end, overlap_policy=policy, **_counts(fired))
            return fired, row["now"]

        fired, now = await self._in_transaction(fire)
        self._count("backfill", fired)
        counts = _counts(fired)
        return api.BackfillScheduleResponse(
            started_run_ids=[one.run_id for one in fired if one.outcome == "started"],
            already_started_count=counts["already"],
            skipped_count=counts["skipped"],
            failed_count=counts["failed"],
            metadata=response_metadata(now),
        )

    async def PreviewSchedule(  # noqa: N802
        self, request: api.PreviewScheduleRequest, context: Any
    ) -> api.PreviewScheduleResponse:
        """The times to come, whether it fires or not. Raises SCHEDULE_NOT_FOUND, SCHEDULE_BROKEN, FIELD_INVALID."""
        schedule_id = schedule_id_of(request.schedule_id)
        row = await self._in_transaction(lambda db: row_of(db, schedule_id))
        data = spans.previewed(request, row)
        return api.PreviewScheduleResponse(data=data, metadata=response_metadata(row["now"]))

    async def ListScheduleFires(  # noqa: N802
        self, request: api.ListScheduleFiresRequest, context: Any
    ) -> api.ListScheduleFiresResponse:
        """A page, newest time first. Raises SCHEDULE_NOT_FOUND, FIELD_INVALID, PAGE_TOKEN_INVALID."""
        tenant_id = caller().tenant
        schedule_id = schedule_id_of(request.schedule_id)
        page = page_of(request, tenant_id)
        after = _fire_after(page)

        async def look(db: asyncpg.Connection) -> tuple[list[asyncpg.Record], datetime]:
            row = await row_of(db, schedule_id)
            outcome = shown.OUTCOME_WORD[request.outcome]
            of = _q["fires" if outcome in ("", "started") else "fires_passed"]
            return await db.fetch(of, tenant_id, schedule_id, outcome, *after, page.fetch), row["now"]

        rows, now = await self._in_transaction(look)
        entries, token = _cut(page, rows, lambda row: (row["nominal_time"], row["kind"]))
        data = [shown.fire(row) for row in entries]
        return api.ListScheduleFiresResponse(data=data, next_page_token=token, metadata=response_metadata(now))

    async def _fire(self, db: asyncpg.Connection, act: Act, asked: Asked) -> Sequence[Fired]:
        """What became of the times; what an earlier try of this call has started, whose commit went unheard, it has started.

        Raises SCHEDULE_BROKEN for a version that cannot be read, BACKFILL_TOO_LARGE for what takes too long.
        """
        try:
            [fired] = await self._fires.fire(db, [asked], traceparent=act.call.traceparent, inputs_s=_INPUTS_S)
        except Unfireable as error:
            message = f"the schedule cannot fire: {error.fault.message}"
            raise refused("SCHEDULE_BROKEN", message, schedule_id=act.schedule_id) from None
        if len(fired) < len(asked.times):
            message = "the inputs of the runs take more processor time than one call has; ask for the span in parts"
            raise refused("BACKFILL_TOO_LARGE", message, field="to_time", limit=len(fired))
        fired = [replace(one, outcome="started") if one.run_id in act.started else one for one in fired]
        act.started.update(one.run_id for one in fired if one.outcome == "started")
        return fired

    async def _in_transaction(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """What `work` gives, in a transaction of the caller's tenant. It may be done again."""
        tenant_id = caller().tenant

        async def attempt() -> T:
            async with tenant_transaction(self._pool, tenant_id) as db:
                return await work(db)

        return await retrying(attempt, on_retry=self._on_retry)

    def _act(self, request: Any, action: str) -> Act:
        schedule_id = schedule_id_of(request.schedule_id)
        bounded("request_id", request.request_id, self._key_bytes)
        reason = reasoned("reason", request.reason)
        return Act(caller(), action, schedule_id, reason, request.request_id or new_id())

    def _count(self, source: str, fired: Sequence[Fired]) -> None:
        for one in fired:
            if one.outcome != "already":
                self._counted.labels(one.outcome, source).inc()


def _gap_columns(gap: Gap | None) -> tuple[datetime | None, datetime | None, int | None]:
    return (None, None, None) if gap is None else (gap.first, gap.last, gap.count)


def _counts(fired: Sequence[Fired]) -> dict[str, int]:
    return {
        outcome: sum(one.outcome == outcome for one in fired) for outcome in ("started", "already", "skipped", "failed")
    }


def _cut(
    page: Page, rows: Sequence[asyncpg.Record], key: Callable[[asyncpg.Record], tuple[Any, ...]]
) -> tuple[Sequence[asyncpg.Record], str]:
    """The rows of the page, and the token of the next one."""
    entries = rows[: page.size]
    return entries, page.next_token(key(entries[-1])) if len(rows) > page.size else ""


def _schedule_after(page: Page) -> tuple[str, str, str]:
    match page.after:
        case None:
            return "", "", FIRST_ID
        case (str(family), str(trigger_id), str(schedule_id)) if canonical(schedule_id):
            return family, trigger_id, schedule_id
        case _:
            raise refused("PAGE_TOKEN_INVALID", "page_token is not of this list")


def _fire_after(page: Page) -> tuple[datetime, str]:
    match page.after:
        case None:
            return _END, _ALL_KINDS
        case (datetime(tzinfo=zone) as time, str(kind)) if zone is not None:
            return time, kind
        case _:
            raise refused("PAGE_TOKEN_INVALID", "page_token is not of this list")
