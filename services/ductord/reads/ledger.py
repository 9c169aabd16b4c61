"""The compensation ledger: ListCompensations over runs, and the entries of one run for GetRun (C7)."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.db.queries import Queries
from ductord.rpc.paging import Page
from ductord.rpc.room import fitting
from ductord.rpc.runs import compensation_entry, run_id_of
from ductord.rpc.words import INVERSE_STATUS_WORD

MAX_SHOWN: Final = 1_000
"""Entries that GetRun shows; ListCompensations has them all."""
_LAST: Final = (None, "ffffffff-ffff-ffff-ffff-ffffffffffff", (1 << 31) - 1)
_q: Final = Queries("ductord.reads", "ledger.sql")


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """What the entries of a list have in common. Empty, or None: any."""

    status: str
    family: str
    run_id: str | None


def read_filter(request: api.ListCompensationsRequest) -> Filter:
    """The filter. Raises RUN_NOT_FOUND for a run id that is none."""
    return Filter(
        status=INVERSE_STATUS_WORD[request.status],
        family=request.workflow_type,
        run_id=run_id_of(request.run_id) if request.run_id else None,
    )


async def list_compensations(
    db: asyncpg.Connection, tenant_id: str, wanted: Filter, page: Page, max_bytes: int
) -> tuple[Sequence[run_pb2.CompensationEntry], str]:
    """One page of entries, the one that changed last first, and the next page's token."""
    after = _LAST if page.after is None else page.after
    rows = await db.fetch(
        _q["list_compensations"], tenant_id, *after, wanted.status, wanted.family, wanted.run_id, page.fetch
    )
    shown, last = fitting(((_key(row), compensation_entry(row)) for row in rows), page.size, max_bytes)
    return shown, "" if last is None else page.next_token(last)


async def ledger_of(
    db: asyncpg.Connection, tenant_id: str, run_id: str, max_bytes: int
) -> tuple[Sequence[run_pb2.CompensationEntry], bool]:
    """The entries of a run in the order in which they are worked off, and whether the end of the ledger was left out: at most half of `max_bytes` is for it."""
    rows = await db.fetch(_q["ledger_of_run"], tenant_id, run_id, MAX_SHOWN + 1)
    shown, last = fitting(((row["position"], compensation_entry(row)) for row in rows), MAX_SHOWN, max_bytes // 2)
    return shown, last is not None


def _key(row: asyncpg.Record) -> tuple[datetime, str, int]:
    return row["update_time"], row["run_id"], row["position"]
