"""ListRuns: filters, the statement that serves them best, one page. Newest first; the run id breaks ties, so equal times are neither lost nor doubled."""

import heapq
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

import asyncpg
import msgspec

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.db.queries import Queries
from ductord.model.enums import RunStatus
from ductord.rpc.answers import time_of
from ductord.rpc.errors import field_invalid, refused
from ductord.rpc.paging import Page
from ductord.rpc.runs import run_id_of, summary
from ductord.rpc.words import COMPENSATION_STATUS_WORD, RUN_STATUS_WORD

MAX_LABELS: Final = 8
_LAST_ID: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_q: Final = Queries("ductord.reads")


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """What the runs of a list have in common. A status that is empty: any."""

    family: str
    status: str
    compensation_status: str
    subject_type: str
    subject_id: str
    active_only: bool
    has_errors: bool | None
    after: datetime | None
    before: datetime | None
    labels: tuple[str, ...]
    parent: str | None
    root: str | None
    journey: str | None


def read_filter(request: api.ListRunsRequest) -> Filter:
    """The checked filter. Raises FIELD_INVALID, BATCH_TOO_LARGE, RUN_NOT_FOUND for a run id that is none."""
    if len(request.label) > MAX_LABELS:
        message = f"label has {len(request.label)} values, the limit is {MAX_LABELS}"
        raise refused("BATCH_TOO_LARGE", message, field="label", limit=MAX_LABELS)
    for index, label in enumerate(request.label):
        key, colon, value = label.partition(":")
        if not (key and colon and value):
            raise field_invalid(f"label[{index}]", "is written key:id")
    return Filter(
        family=request.workflow_type,
        status=RUN_STATUS_WORD[request.status],
        compensation_status=COMPENSATION_STATUS_WORD[request.compensation_status],
        subject_type=request.subject_type,
        subject_id=request.subject_id,
        active_only=request.active_only,
        has_errors=request.has_errors if request.HasField("has_errors") else None,
        after=time_of(request.created_after, "created_after") if request.HasField("created_after") else None,
        before=time_of(request.created_before, "created_before") if request.HasField("created_before") else None,
        labels=tuple(request.label),
        parent=_id(request.parent_run_id, "parent_run_id"),
        root=_id(request.root_run_id, "root_run_id"),
        journey=_id(request.journey_id, "journey_id"),
    )


def _id(text: str, field: str) -> str | None:
    return run_id_of(text, field) if text else None


async def list_runs(
    db: asyncpg.Connection, tenant_id: str, wanted: Filter, page: Page
) -> tuple[Sequence[run_pb2.RunSummary], str]:
    """One page of summaries and the next page's token."""
    rows = await _rows(db, tenant_id, wanted, page)
    token = ""
    if len(rows) > page.size:
        rows = rows[: page.size]
        token = page.next_token((rows[-1]["create_time"], rows[-1]["run_id"]))
    return [summary(row) for row in rows], token


async def _rows(db: asyncpg.Connection, tenant_id: str, wanted: Filter, page: Page) -> list[Any]:
    """At most `page.fetch` rows, from the statement whose index knows the rarest of what is wanted."""
    common = (
        tenant_id,
        *_position(page),
        wanted.family,
        wanted.subject_type,
        wanted.subject_id,
        wanted.after,
        wanted.before,
        wanted.has_errors,
        page.fetch,
        wanted.compensation_status,
    )
    if wanted.active_only and wanted.status and RunStatus(wanted.status).terminal:
        return []
    status = wanted.status or ("active" if wanted.active_only else "")
    if wanted.parent or wanted.root or wanted.journey:
        kin = (*common, status, wanted.labels)
        found = await db.fetch(_q["list_runs_kin"], *kin, wanted.parent, wanted.root, wanted.journey, None)
        if wanted.parent or wanted.root:
            return list(found)
        first = await db.fetch(_q["list_runs_kin"], *kin, None, None, None, wanted.journey)
        return _merged(found, first)[: page.fetch]
    if wanted.labels:
        return list(await db.fetch(_q["list_runs_labelled"], *common, status, wanted.labels))
    if wanted.status == RunStatus.PENDING:
        return list(await db.fetch(_q["list_runs_pending"], *common))
    if wanted.status in (RunStatus.RUNNING, RunStatus.PAUSED):
        return list(await db.fetch(_q["list_runs_open"], *common, wanted.status))
    if wanted.active_only:
        # In this order: a run that starts between the two looks is seen twice, and not never.
        pending = await db.fetch(_q["list_runs_pending"], *common)
        started = await db.fetch(_q["list_runs_open"], *common, "")
        return _merged(started, pending)[: page.fetch]
    return list(await db.fetch(_q["list_runs"], *common, wanted.status))


def _merged(first: Sequence[Any], second: Sequence[Any]) -> list[Any]:
    """Both, in the order of the list; a run in both is as `first` says."""
    known = {row["run_id"] for row in first}
    others = [row for row in second if row["run_id"] not in known]
    return list(heapq.merge(first, others, key=lambda row: (row["create_time"], row["run_id"]), reverse=True))


def _position(page: Page) -> tuple[datetime | None, str]:
    if page.after is None:
        return None, _LAST_ID
    create_time, run_id = page.after
    assert isinstance(create_time, datetime)
    return create_time, str(run_id)
