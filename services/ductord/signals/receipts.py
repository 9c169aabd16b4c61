"""The external events that a step has received: of its last wait, whether it goes on or is over."""

from typing import Final

import asyncpg

from ductor.workflow.v1 import run_pb2
from ductord.db.queries import Queries
from ductord.rpc.answers import timestamp
from ductord.rpc.paging import Page

_q: Final = Queries("ductord.signals")


async def list_receipts(
    db: asyncpg.Connection, tenant_id: str, run_id: str, step_ref: str, page: Page
) -> tuple[list[run_pb2.WaitReceipt], str]:
    """A page of receipts and the token of the next one."""
    after = (None, "", "", "") if page.after is None else page.after
    rows = await db.fetch(_q["list_receipts"], tenant_id, run_id, step_ref, *after, page.fetch)
    shown = rows[: page.size]
    token = ""
    if len(rows) > page.size:
        last = shown[-1]
        token = page.next_token((last["receive_time"], last["event_name"], last["event_id"], last["requirement"]))
    return [
        run_pb2.WaitReceipt(
            event_id=row["event_id"],
            event_name=row["event_name"],
            requirement=row["requirement"],
            receive_time=timestamp(row["receive_time"]),
        )
        for row in shown
    ], token
