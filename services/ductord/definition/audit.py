"""Who and why (ruling C8): one row per publish, archive, deletion and override, in the transaction that does it.

What it was done to is the family; the version is detail.
"""

import asyncpg
import msgspec

from ductord.db.ids import new_id
from ductord.definition import store
from ductord.rpc.caller import Caller
from ductord.rpc.errors import field_invalid

MAX_REASON = 1_000


class Act(msgspec.Struct, frozen=True, kw_only=True):
    """Who does something, why, and in which call. It is written down once, whatever has to be repeated."""

    audit_id: str
    actor: str
    reason: str
    request_id: str

    async def write(
        self, db: asyncpg.Connection, tenant_id: str, action: str, definition_id: str, **detail: str | int
    ) -> None:
        """Write it down."""
        entry = store.AuditEntry(
            audit_id=self.audit_id,
            actor=self.actor,
            action=action,
            target=f"definition:{definition_id}",
            reason=self.reason,
            request_id=self.request_id,
            detail=detail,
        )
        await store.insert_audit(db, tenant_id, entry)


def act_of(caller: Caller, reason: str) -> Act:
    """The act of a call. Raises FIELD_INVALID for a reason that is too long."""
    if len(reason) > MAX_REASON:
        raise field_invalid("reason", f"has {len(reason):,} characters, the limit is {MAX_REASON:,}")
    return Act(audit_id=new_id(), actor=caller.actor, reason=reason, request_id=caller.request_id)
