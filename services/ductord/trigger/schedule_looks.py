"""Timetables, their times and their fires, looked at (T2): the RPCs of ScheduleService that change nothing."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import asyncpg

from ductor.workflow.v1 import schedule_service_pb2 as api
from ductor.workflow.v1 import schedule_service_pb2_grpc as rpc
from ductord.db.pool import OnRetry, in_tenant_transaction
from ductord.db.queries import Queries
from ductord.model.ids import canonical
from ductord.rpc.answers import response_metadata
from ductord.rpc.bounds import bounded
from ductord.rpc.caller import caller
from ductord.rpc.errors import refused
from ductord.rpc.paging import Page, page_of
from ductord.trigger import shown, spans
from ductord.trigger.acts import row_of, schedule_id_of
from ductord.trigger.event_triggers import FIRST_ID, definition_of

_END: Final = datetime(9999, 12, 31, tzinfo=UTC)
_ALL_KINDS: Final = "~"
"""Behind every kind of fire."""
_q: Final = Queries("ductord.trigger", "schedules.sql")

T = TypeVar("T")


class Looks(rpc.ScheduleServiceServicer):
    """The RPCs, over transactions of the caller's tenant."""

    def __init__(self, pool: asyncpg.Pool, key_bytes: int, on_retry: OnRetry) -> None:
        self._pool = pool
        self._key_bytes = key_bytes
        self._on_retry = on_retry

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

    async def _in_transaction(self, work: Callable[[asyncpg.Connection], Awaitable[T]]) -> T:
        """What `work` gives, in a transaction of the caller's tenant. It may be done again."""
        return await in_tenant_transaction(self._pool, caller().tenant, work, on_retry=self._on_retry)


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
