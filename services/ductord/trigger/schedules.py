"""ScheduleService: timetables, operated by people (T2); those of its RPCs that only look are in `schedule_looks`. What fires is fired by the same code as the
coordinator's watch, under the row's lock.

It never decides what a definition says: a schedule is changed by a publish alone.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import asyncpg
from msgspec.structs import replace

from ductor.workflow.v1 import schedule_service_pb2 as api
from ductord.db.ids import new_id
from ductord.db.pool import OnRetry
from ductord.db.queries import Queries
from ductord.engine.timetable import Gap
from ductord.model.starting import OVERLAP_POLICIES
from ductord.rpc.answers import response_metadata
from ductord.rpc.bounds import bounded, reasoned
from ductord.rpc.caller import caller
from ductord.rpc.config import Settings
from ductord.rpc.errors import refused
from ductord.rpc.metrics import Metrics
from ductord.starting.fires import FIRES, Asked, Fired, Fires, Scheduled, Unfireable
from ductord.starting.versions import Versions
from ductord.trigger import shown, spans
from ductord.trigger.acts import Act, fire_asked, held, retired, row_of, schedule_id_of
from ductord.trigger.schedule_looks import Looks

_INPUTS_S: Final = 10.0
"""Processor time for the inputs of one call, which keeps its schedule's row locked meanwhile, from a publish as from a coordinator."""
_q: Final = Queries("ductord.trigger", "schedules.sql")


class Servicer(Looks):
    """The RPCs; those that only look are `Looks`'."""

    def __init__(
        self, pool: asyncpg.Pool, versions: Versions, settings: Settings, metrics: Metrics, on_retry: OnRetry
    ) -> None:
        super().__init__(pool, settings.key_max_bytes, on_retry)
        self._fires = Fires(versions, environment=settings.environment, payload_max_bytes=settings.payload_max_bytes)
        self._counted = metrics.counter(*FIRES)

    async def PauseSchedule(  # noqa: N802  # the contract's name
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
