"""ListEventTriggers: which patterns are live, or which an event of a name would meet (T3). It reads the rows that a publish of an event looks up."""

from collections.abc import Sequence
from typing import Final

import asyncpg

from ductor.workflow.v1 import workflow_trigger_service_pb2 as api
from ductord.db.queries import Queries
from ductord.model.ids import canonical
from ductord.model.starting import patterns_of
from ductord.rpc.bounds import bounded
from ductord.rpc.errors import refused
from ductord.rpc.paging import Page
from ductord.trigger.resolving import not_found
from ductord.trigger.shown import event_trigger

FIRST_ID: Final = "00000000-0000-0000-0000-000000000000"
_q: Final = Queries("ductord.trigger", "schedules.sql")


async def list_event_triggers(
    db: asyncpg.Connection,
    tenant_id: str,
    request: api.ListEventTriggersRequest,
    page: Page,
    *,
    wildcards: bool,
    name_bytes: int,
) -> tuple[Sequence[api.EventTrigger], str]:
    """One page and the next page's token. Raises FIELD_INVALID, PAGE_TOKEN_INVALID, and DEFINITION_NOT_FOUND for an id that is none."""
    definition_id = definition_of(request.definition_id)
    bounded("event_name", request.event_name, name_bytes)
    common = (tenant_id, *_after(page), page.fetch)
    if request.event_name:
        patterns = patterns_of(request.event_name, wildcards=wildcards)
        rows = await db.fetch(_q["event_triggers_matching"], *common, patterns, definition_id)
    elif definition_id is not None:
        rows = await db.fetch(_q["event_triggers_of"], *common, definition_id)
    else:
        rows = await db.fetch(_q["event_triggers"], *common)
    shown = rows[: page.size]
    token = ""
    if len(rows) > page.size:
        last = shown[-1]
        token = page.next_token((last["pattern"], last["definition_id"], last["trigger_id"]))
    return [event_trigger(row) for row in shown], token


def definition_of(text: str) -> str | None:
    """A filter by definition; None for none. Raises DEFINITION_NOT_FOUND for a text that is no id: it can name nothing."""
    if not text:
        return None
    definition_id = canonical(text)
    if definition_id is None:
        raise not_found()
    return definition_id


def _after(page: Page) -> tuple[str, str, str]:
    match page.after:
        case None:
            return "", FIRST_ID, ""
        case (str(pattern), str(definition_id), str(trigger_id)) if canonical(definition_id):
            return pattern, definition_id, trigger_id
        case _:
            raise refused("PAGE_TOKEN_INVALID", "page_token is not of this list")
