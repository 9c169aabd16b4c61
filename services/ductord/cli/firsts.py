"""The keys that `ductor dev` makes at its first start where keys are asked for: the platform's, which its worker calls with, and one of its tenant that may do
everything.

They are files of the data directory that only their owner can read. A file that is gone, or whose key is no good any more, is made anew. Never for anything but
`dev`: elsewhere an operator makes keys, each for what it is needed for.
"""

from pathlib import Path
from typing import Final
from uuid import UUID

import asyncpg

from ductord.access import drafts, minting
from ductord.access.minting import By
from ductord.cli.ending import CommandFailed
from ductord.cli.keys import write_token
from ductord.db.pool import in_tenant_transaction, open_pool
from ductord.model.errors import Refusal
from ductord.model.keys import PLATFORM_SCOPES, PLATFORM_TENANT, TENANT_SCOPES, Token, parse_token
from ductord.rpc.config import Settings

FOLDER: Final = "keys"
NAME: Final = "dev"

_BY: Final = By(actor="system:dev", reason="the first start of dev")


def file_of(folder: Path, tenant_id: str) -> Path:
    """Where the key of a tenant, or the platform's, is in a data directory."""
    return folder / FOLDER / ("platform" if tenant_id == PLATFORM_TENANT else f"tenant-{tenant_id}")


async def keyed(folder: Path, settings: Settings) -> Settings:
    """The settings with the key that the worker calls with, both keys being there. Unchanged where no keys are asked for. Raises `CommandFailed`."""
    if settings.auth != "keys":
        return settings
    options = settings.pool("admin")
    options["min_size"] = options["max_size"] = 1
    pool = await open_pool(**options)
    try:
        (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
        for tenant_id in (PLATFORM_TENANT, settings.workflows_tenant):
            await _see_to(pool, tenant_id, file_of(folder, tenant_id))
    except OSError as error:
        raise CommandFailed(f"the keys in {folder / FOLDER}: {error.strerror}") from None
    finally:
        await pool.close()
    return settings.model_copy(update={"api_key_file": str(file_of(folder, PLATFORM_TENANT))})


async def _see_to(pool: asyncpg.Pool, tenant_id: str, file: Path) -> None:
    there = _kept(file)
    draft = drafts.drafted(
        tenant_id, name=NAME, scopes=PLATFORM_SCOPES if tenant_id == PLATFORM_TENANT else TENANT_SCOPES
    )

    async def made(db: asyncpg.Connection) -> str:
        if there is not None and await _good(db, tenant_id, there):
            return ""
        if (before := await minting.named(db, tenant_id, NAME)) is not None and before.key_id != draft.key_id:
            await minting.revoke(db, tenant_id, before.key_id, _BY)
        return (await minting.make(db, draft, _BY)).token

    if token := await in_tenant_transaction(pool, tenant_id, made):
        write_token(file, token)


def _kept(file: Path) -> Token | None:
    return parse_token(file.read_text(errors="replace").strip()) if file.exists() else None


async def _good(db: asyncpg.Connection, tenant_id: str, token: Token) -> bool:
    try:
        return (await minting.find(db, tenant_id, str(UUID(token.key_id)))).status == "active"
    except Refusal:
        return False
