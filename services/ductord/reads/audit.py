"""The audit trail: who did what, and why (C8). GetRunAudit is a run's story from the begin, ListAudit the tenant's from its end."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.db.queries import Queries
from ductord.rpc.answers import time_of, timestamp
from ductord.rpc.paging import Page
from ductord.rpc.payloads import fill_payload
from ductord.rpc.room import fitting

_FIRST: Final = (None, "00000000-0000-0000-0000-000000000000")
_LAST: Final = (None, "ffffffff-ffff-ffff-ffff-ffffffffffff")
_q: Final = Queries("ductord.reads", "audit.sql")


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """What the lines of a list have in common. Empty, or None: any."""

    target: str
    action: str
    actor: str
    after: datetime | None
    before: datetime | None


def read_filter(request: api.ListAuditRequest) -> Filter:
    """The checked filter. Raises FIELD_INVALID for a time that is none."""
    return Filter(
        target=request.target,
        action=request.action,
        actor=request.actor,
        after=time_of(request.created_after, "created_after") if request.HasField("created_after") else None,
        before=time_of(request.created_before, "created_before") if request.HasField("created_before") else None,
    )


async def list_audit(
    db: asyncpg.Connection, tenant_id: str, wanted: Filter, page: Page, payload_format: int, max_bytes: int
) -> tuple[Sequence[run_pb2.AuditEntry], str]:
    """One page of the tenant's trail, newest first, and the next page's token."""
    after = _LAST if page.after is None else page.after
    rows = await db.fetch(
        _q["list_audit"],
        tenant_id,
        *after,
        wanted.target,
        wanted.action,
        wanted.actor,
        wanted.after,
        wanted.before,
        page.fetch,
    )
    return _page(rows, page, payload_format, max_bytes)


async def run_audit(
    db: asyncpg.Connection, tenant_id: str, run_id: str, page: Page, payload_format: int, max_bytes: int
) -> tuple[Sequence[run_pb2.AuditEntry], str]:
    """One page of a run's trail, oldest first, and the next page's token."""
    after = _FIRST if page.after is None else page.after
    rows = await db.fetch(_q["audit_of"], tenant_id, f"run:{run_id}", *after, page.fetch)
    return _page(rows, page, payload_format, max_bytes)


def _page(
    rows: Sequence[asyncpg.Record], page: Page, payload_format: int, max_bytes: int
) -> tuple[Sequence[run_pb2.AuditEntry], str]:
    entries = (((row["at"], row["audit_id"]), _entry(row, payload_format)) for row in rows)
    shown, last = fitting(entries, page.size, max_bytes)
    return shown, "" if last is None else page.next_token(last)


def _entry(row: asyncpg.Record, payload_format: int) -> run_pb2.AuditEntry:
    entry = run_pb2.AuditEntry(
        audit_id=row["audit_id"],
        audit_time=timestamp(row["at"]),
        actor=row["actor"],
        action=row["action"],
        target=row["target"],
        reason=row["reason"],
        request_id=row["request_id"],
        outcome=row["outcome"],
    )
    fill_payload(entry, "detail", row["detail"], payload_format)
    return entry
