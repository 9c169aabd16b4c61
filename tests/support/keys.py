"""Keys for tests: made as the command line makes the first ones, and shown as callers show them."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from ductord.access import drafts, minting
from ductord.access.minting import By, Minted
from ductord.db.pool import open_pool
from ductord.model.keys import PLATFORM_SCOPES, PLATFORM_TENANT, TENANT_SCOPES
from tests.conftest import Database

BY = By(actor="test", reason="a test", request_id="t")


async def minted(database: Database, tenant_id: str, *scopes: str, name: str = "", **fields: Any) -> Minted:
    """A key of a tenant, or of the platform (`*`); without scopes named, all that it may have."""
    every: Sequence[str] = PLATFORM_SCOPES if tenant_id == PLATFORM_TENANT else TENANT_SCOPES
    pool = await open_pool(database.dsn("admin"), "admin", max_size=1)
    try:
        draft = drafts.drafted(tenant_id, name=name or drafts.new_token("t").key_id, scopes=scopes or every, **fields)
        return await minting.bootstrap(pool, draft, BY)
    finally:
        await pool.close()


def bearer(token: str, tenant_id: str = "") -> tuple[tuple[str, str], ...]:
    """The metadata of a call with a key, which names a tenant where one is given."""
    named = (("x-tenant-id", tenant_id),) if tenant_id else ()
    return (("authorization", f"Bearer {token}"), *named)


async def as_owner(database: Database, statement: str, *values: Any) -> list[asyncpg.Record]:
    """Run a statement as the schema's owner."""
    owner = await asyncpg.connect(database.owner)
    try:
        return list(await owner.fetch(statement, *values))
    finally:
        await owner.close()
