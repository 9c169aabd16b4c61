"""What somebody does to a schedule: who, which, why, and its line in the audit trail (C8); and the row that it is done to."""

from typing import Final

import asyncpg

from ductord.db.ids import new_id
from ductord.db.queries import Queries
from ductord.model.errors import Refusal
from ductord.model.ids import canonical
from ductord.model.jsonvalue import dumps
from ductord.rpc.caller import Caller, caller
from ductord.rpc.errors import field_required, refused
from ductord.trigger.shown import Row

_q: Final = Queries("ductord.trigger", "schedules.sql")


class Act:
    """What somebody does to a schedule, and its line in the audit trail (C8). Made before the transaction, which may be done again."""

    def __init__(self, call: Caller, action: str, schedule_id: str, reason: str, request_id: str) -> None:
        self.call = call
        self.schedule_id = schedule_id
        self.reason = reason
        self.request_id = request_id
        self.started: set[str] = set()  # runs that a try of it has started
        self.dropped = 0  # times that a pause or its end let go by
        self._action = action
        self._audit_id = new_id()

    async def write(self, db: asyncpg.Connection, **detail: str | int) -> None:
        """Write it down, in the transaction that does it."""
        await db.execute(
            _q["insert_audit"],
            self.call.tenant,
            self._audit_id,
            self.call.actor,
            self._action,
            self.schedule_id,
            self.reason,
            self.request_id,
            dumps(detail),
        )


def not_found() -> Refusal:
    """The one answer for every id that names no schedule of this tenant's (N1, TN-01)."""
    return refused("SCHEDULE_NOT_FOUND", "there is no such schedule")


def schedule_id_of(text: str) -> str:
    """The schedule id of a request as ids are written. Raises FIELD_REQUIRED, and SCHEDULE_NOT_FOUND for a text that is no id."""
    if not text:
        raise field_required("schedule_id")
    schedule_id = canonical(text)
    if schedule_id is None:
        raise not_found()
    return schedule_id


async def row_of(db: asyncpg.Connection, schedule_id: str) -> asyncpg.Record:
    """The caller's schedule. Raises SCHEDULE_NOT_FOUND."""
    row = await db.fetchrow(_q["schedule"], caller().tenant, schedule_id)
    if row is None:
        raise not_found()
    return row


async def held(db: asyncpg.Connection, schedule_id: str) -> asyncpg.Record:
    """The row, which nobody else changes to the end of the transaction, and a time that is behind everything that anybody did to it before."""
    await db.execute(_q["hold"], caller().tenant, schedule_id)
    return await row_of(db, schedule_id)


async def fire_asked(db: asyncpg.Connection, act: Act) -> asyncpg.Record | None:
    """The fire by hand of the act's request, if there was one."""
    return await db.fetchrow(_q["fire_asked"], act.call.tenant, act.schedule_id, act.request_id)


def retired(row: Row) -> Refusal:
    """Nothing is done with a schedule that has no live trigger (D3)."""
    message = "the newest version of the definition has no such trigger, or is archived"
    ids = {"schedule_id": row["schedule_id"], "definition_id": row["definition_id"]}
    return refused("SCHEDULE_RETIRED", message, **ids)
