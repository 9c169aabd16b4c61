"""What a call that waited for a checkpoint gets: the run's status and, once the checkpoint was reached, the outputs of its steps by ref (G9).

Outputs are read where they live, in their attempts' rows, and put together as text: nothing is parsed that is only passed on. A group too large for one reply
is left out as a whole and flagged; the run keeps every output.
"""

from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductord.db.pool import tenant_transaction
from ductord.db.queries import Queries
from ductord.model.enums import RunStatus
from ductord.model.jsonvalue import dumps
from ductord.trigger.waits import Ended

_q: Final = Queries("ductord.trigger")


class Waited(msgspec.Struct, frozen=True, kw_only=True):
    """What the database says after a wait. `group`: JSON text of an object, None where the checkpoint was not reached or `truncated`."""

    status: RunStatus
    now: datetime
    group: str | None = None
    truncated: bool = False


async def after(pool: asyncpg.Pool, tenant_id: str, run_id: str, ended: Ended | None, max_bytes: int) -> Waited:
    """The status of the run as it is now, and the outputs behind a reached checkpoint if they are at most `max_bytes` together."""
    refs = ended.refs if ended is not None else {}
    async with tenant_transaction(pool, tenant_id) as db:
        rows = await db.fetch(_q["after_wait"], tenant_id, run_id, list(refs), list(refs.values()), max_bytes)
    status, now = RunStatus(rows[0]["status"]), rows[0]["now"]
    if ended is None or ended.status != "reached":
        return Waited(status=status, now=now)
    if (rows[0]["bytes"] or 0) > max_bytes:
        return Waited(status=status, now=now, truncated=True)
    held = {row["step_ref"]: row["output"] for row in rows if row["output"] is not None}
    group = ",".join(f"{dumps(ref)}:{held[ref]}" for ref in refs if ref in held)
    return Waited(status=status, now=now, group=f"{{{group}}}")
