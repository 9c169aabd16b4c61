"""The pages of ListWorkflowDefinitions: drafts and versions, each an entry of its own, newest first."""

from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductor.workflow.v1 import definition_pb2 as pb
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductord.definition import convert, render, store
from ductord.definition.transactions import in_transaction
from ductord.model.authored.words import FAMILY_SLUG_PATTERN
from ductord.model.ids import canonical
from ductord.rpc.errors import field_invalid, refused
from ductord.rpc.paging import Key, page_of

MAX_TEXT: Final = 256
MAX_TAGS: Final = 100


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One page. `now` is None when it has no entry."""

    entries: list[pb.WorkflowDefinitionSummary]
    next_page_token: str
    now: datetime | None


async def list_page(
    pool: asyncpg.Pool, tenant_id: str, request: api.ListWorkflowDefinitionsRequest, max_bytes: int
) -> Listed:
    """The page that the request asks for, cut where the reply would be larger than `max_bytes` (L7).

    Raises FIELD_INVALID, PAGE_TOKEN_INVALID.
    """
    page = page_of(request, tenant_id)
    for field, length, limit in (("q", len(request.q), MAX_TEXT), ("tags", len(request.tags), MAX_TAGS)):
        if length > limit:
            raise field_invalid(field, f"is {length:,} long, the limit is {limit}")
    if len(request.family_slug) > MAX_TEXT:
        raise field_invalid("family_slug", f"does not match {FAMILY_SLUG_PATTERN}")
    after = _place(page.after)

    async def read(db: asyncpg.Connection, again: bool) -> list[store.Entry]:
        return await store.list_entries(
            db,
            tenant_id,
            status=convert.short_name(pb.DefinitionStatus.DESCRIPTOR, request.status),
            text=request.q,
            tags=list(request.tags),
            family_slug=request.family_slug,
            after=after,
            limit=page.fetch,
        )

    rows = await in_transaction(pool, tenant_id, read)
    entries: list[pb.WorkflowDefinitionSummary] = []
    size = 0
    for row in rows[: page.size]:
        entry = render.summary(row)
        size += entry.ByteSize() + 8
        if size > max_bytes and entries:
            break
        entries.append(entry)
    last = rows[len(entries) - 1] if entries else None
    token = page.next_token((last.create_time, last.id)) if last is not None and len(entries) < len(rows) else ""
    return Listed(entries=entries, next_page_token=token, now=last.now if last is not None else None)


def _place(after: tuple[Key, ...] | None) -> tuple[datetime, str] | None:
    match after:
        case None:
            return None
        case (datetime(tzinfo=zone) as time, str(entry_id)) if zone is not None and canonical(entry_id):
            return time, entry_id
        case _:
            raise refused("PAGE_TOKEN_INVALID", "page_token is not of this list")
