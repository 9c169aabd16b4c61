"""Attempts as the reads service finds them: every row of a run for ListRunEvents, the latest of one step for GetRunStep."""

from collections.abc import Sequence
from typing import Final

import asyncpg

from ductor.workflow.v1 import run_pb2
from ductord.db.queries import Queries
from ductord.rpc.attempts import FIRST, attempts_page
from ductord.rpc.paging import Page
from ductord.rpc.runs import attempt

_q: Final = Queries("ductord.reads")


async def list_attempts(
    db: asyncpg.Connection, tenant_id: str, run_id: str, ref: str, page: Page, payload_format: int, max_bytes: int
) -> tuple[Sequence[run_pb2.Attempt], str]:
    """One page of attempts, oldest first, of one step where `ref` is not empty; and the next page's token."""
    after = FIRST if page.after is None else page.after
    rows = await db.fetch(_q["list_attempts"], tenant_id, run_id, ref, *after, page.fetch, max_bytes)
    return attempts_page(rows, page, payload_format, max_bytes)


async def latest(
    db: asyncpg.Connection, tenant_id: str, run_id: str, ref: str, limit: int
) -> Sequence[run_pb2.Attempt]:
    """The latest attempts of a step, newest first, without outputs."""
    return [attempt(row) for row in await db.fetch(_q["latest_attempts"], tenant_id, run_id, ref, limit)]
