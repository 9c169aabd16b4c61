"""What a given definition id stands for (D1): read from the database for every call, so that a publish or an archiving counts at once."""

from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductord.db.queries import Queries
from ductord.model.errors import Refusal
from ductord.rpc.errors import refused
from ductord.starting.versions import Version, Versions

_q: Final = Queries("ductord.trigger")


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """The version that a given id stands for at this moment. `live_release_ids`: the releases whose callers may start it; None: any caller may."""

    definition_id: str
    number: int
    version: Version
    now: datetime
    live_release_ids: frozenset[str] | None = None

    def release_fault(self, release: str) -> Refusal | None:
        """RELEASE_MISMATCH if the tenant demands a live release and the caller's is none (T4)."""
        if self.live_release_ids is None or release in self.live_release_ids:
            return None
        said = "is not live" if release else "is missing"
        message = f"external_deployment_id {said}: the tenant's release policy admits live releases alone"
        return refused("RELEASE_MISMATCH", message, external_deployment_id=release)


async def resolve(versions: Versions, db: asyncpg.Connection, tenant_id: str, given_id: str) -> Resolved:
    """The version that a start by hand runs (D1, D3, D4), inside the caller's transaction of that tenant.

    Raises DEFINITION_NOT_FOUND, DEFINITION_NOT_PUBLISHED, DEFINITION_ARCHIVED, MANUAL_TRIGGER_NOT_ALLOWED.
    """
    row = await db.fetchrow(_q["resolve"], tenant_id, given_id)
    if row is None:
        raise not_found()
    definition_id, number = row["definition_id"], row["version"]
    if row["version_id"] is None:
        message = "the definition has no published version"
        raise refused("DEFINITION_NOT_PUBLISHED", message, definition_id=definition_id)
    if row["status"] == "archived":
        message = f"version {number} is archived; its open runs go on, new ones are not started"
        raise refused("DEFINITION_ARCHIVED", message, definition_id=definition_id, version=number)
    version = await versions.version(db, tenant_id, row["version_id"])
    if not version.manual_start:
        message = "the definition declares triggers and none of them is manual"
        raise refused("MANUAL_TRIGGER_NOT_ALLOWED", message, definition_id=definition_id, version=number)
    live = row["live_release_ids"]
    return Resolved(
        definition_id=definition_id,
        number=number,
        version=version,
        now=row["now"],
        live_release_ids=None if live is None else frozenset(live),
    )


def not_found() -> Refusal:
    """The one answer for every id that names nothing of this tenant's (N1, TN-01)."""
    return refused("DEFINITION_NOT_FOUND", "there is no such definition or version")
