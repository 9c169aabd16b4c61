"""Typed functions over `queries.sql`. Each takes the connection of a tenant's transaction and that tenant; none opens or ends a transaction.

Documents are the definition's JSON tree (ruling L1), stored as the text that `model.jsonvalue` writes. Times are the database's.
"""

from datetime import datetime
from typing import Any, Final

import asyncpg
import msgspec
import orjson

from ductord.db.queries import Queries
from ductord.model import jsonvalue
from ductord.model.jsonvalue import JSON

_SQL: Final = Queries("ductord.definition")


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """A family as an id or slug named it. `version_id` and `version` are set where the id was a version's."""

    definition_id: str
    family_slug: str
    latest_version: int
    version_id: str | None = None
    version: int | None = None


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A draft with its document. `version` is the number that it would get (D2), `now` when it was read."""

    definition_id: str
    family_slug: str
    version: int
    draft_revision: int
    document: JSON
    create_time: datetime
    update_time: datetime
    now: datetime


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """A version with its document. `draft_revision` is the revision that it was published from, `now` when it was read."""

    version_id: str
    definition_id: str
    family_slug: str
    version: int
    status: str
    draft_revision: int
    document: JSON
    manifest_hash: str
    publish_time: datetime
    archive_time: datetime | None
    now: datetime

    @property
    def archived(self) -> bool:
        """Whether it is retired: open runs go on, new starts are refused (D3)."""
        return self.status == "archived"


class NewVersion(msgspec.Struct, frozen=True, kw_only=True):
    """What a publish freezes."""

    version_id: str
    version: int
    document: JSON
    manifest: str
    manifest_hash: str
    format_version: int
    engine_level: int
    draft_revision: int


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A draft or a version without its graph, as a list shows it. `create_time` and `id` are its place in the list."""

    id: str
    definition_id: str
    family_slug: str
    title: str
    description: str
    tags: list[str]
    status: str
    version: int
    draft_revision: int
    manifest_hash: str
    create_time: datetime
    update_time: datetime
    publish_time: datetime | None
    archive_time: datetime | None
    step_count: int
    edge_count: int
    now: datetime


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who did what to what and why (C8). `target` is `kind:id`."""

    audit_id: str
    actor: str
    action: str
    target: str
    reason: str
    request_id: str
    detail: dict[str, str | int]


async def find(db: asyncpg.Connection, tenant_id: str, any_id: str) -> Family | None:
    """The family that a definition id or a version id names."""
    row = await db.fetchrow(_SQL["find"], tenant_id, any_id)
    return None if row is None else Family(**row)


async def find_slug(db: asyncpg.Connection, tenant_id: str, family_slug: str) -> Family | None:
    """The family of a slug."""
    row = await db.fetchrow(_SQL["find_slug"], tenant_id, family_slug)
    return None if row is None else Family(**row)


async def insert_family(db: asyncpg.Connection, tenant_id: str, definition_id: str, family_slug: str) -> bool:
    """False when the slug is taken, also by a transaction that has just committed."""
    return await db.fetchval(_SQL["insert_family"], tenant_id, definition_id, family_slug) is not None


async def lock_family(db: asyncpg.Connection, tenant_id: str, definition_id: str) -> tuple[int, int]:
    """Lock a family that exists; its latest version and the last revision of a draft that was deleted."""
    row = await db.fetchrow(_SQL["lock_family"], tenant_id, definition_id)
    return row["latest_version"], row["last_revision"]


async def get_draft(db: asyncpg.Connection, tenant_id: str, definition_id: str) -> Draft | None:
    """The draft of a family, None when it has none."""
    row = await db.fetchrow(_SQL["get_draft"], tenant_id, definition_id)
    if row is None:
        return None
    return Draft(
        definition_id=row["definition_id"],
        family_slug=row["family_slug"],
        version=row["latest_version"] + 1,
        draft_revision=row["draft_revision"],
        document=_read(row["document"]),
        create_time=row["create_time"],
        update_time=row["update_time"],
        now=row["now"],
    )


async def insert_draft(
    db: asyncpg.Connection, tenant_id: str, definition_id: str, draft_revision: int, document: JSON
) -> bool:
    """False when the family has a draft already."""
    return (
        await db.fetchval(
            _SQL["insert_draft"],
            tenant_id,
            definition_id,
            draft_revision,
            *_columns(document),
            jsonvalue.dumps(document),
        )
        is not None
    )


async def update_draft(
    db: asyncpg.Connection, tenant_id: str, definition_id: str, known_revision: int, document: JSON
) -> bool:
    """Replace the document of the draft that still has the revision `known_revision`; False when it has not."""
    return (
        await db.fetchval(
            _SQL["update_draft"],
            tenant_id,
            definition_id,
            known_revision,
            *_columns(document),
            jsonvalue.dumps(document),
        )
        is not None
    )


async def renew_draft(db: asyncpg.Connection, tenant_id: str, definition_id: str, known_revision: int) -> bool:
    """Give the draft a fresh revision with the same content; False when it has no longer the revision `known_revision`."""
    return await db.fetchval(_SQL["renew_draft"], tenant_id, definition_id, known_revision) is not None


async def delete_draft(db: asyncpg.Connection, tenant_id: str, definition_id: str, known_revision: int) -> bool:
    """Delete the draft that still has the revision `known_revision`; False when it has not."""
    return await db.fetchval(_SQL["delete_draft"], tenant_id, definition_id, known_revision) is not None


async def number_version(db: asyncpg.Connection, tenant_id: str, definition_id: str, known_latest: int) -> int | None:
    """The next number of a family, None when another publish has taken it."""
    number: int | None = await db.fetchval(_SQL["number_version"], tenant_id, definition_id, known_latest)
    return number


async def insert_version(db: asyncpg.Connection, tenant_id: str, definition_id: str, new: NewVersion) -> None:
    """Freeze a version under the number that `number_version` gave."""
    await db.execute(
        _SQL["insert_version"],
        tenant_id,
        new.version_id,
        definition_id,
        new.version,
        *_columns(new.document),
        jsonvalue.dumps(new.document),
        new.manifest,
        new.manifest_hash,
        new.format_version,
        new.engine_level,
        new.draft_revision,
    )


async def get_version(db: asyncpg.Connection, tenant_id: str, version_id: str) -> Version | None:
    """A version by its own id."""
    return _version(await db.fetchrow(_SQL["get_version"], tenant_id, version_id))


async def get_newest(db: asyncpg.Connection, tenant_id: str, definition_id: str) -> Version | None:
    """The version of a family with the highest number, archived or not; None when nothing was published."""
    return _version(await db.fetchrow(_SQL["get_newest"], tenant_id, definition_id))


async def archive_version(db: asyncpg.Connection, tenant_id: str, version_id: str) -> bool:
    """Retire a version; False when it was retired before."""
    return await db.fetchval(_SQL["archive_version"], tenant_id, version_id) is not None


async def insert_audit(db: asyncpg.Connection, tenant_id: str, entry: AuditEntry) -> None:
    """Write down who did it, in the transaction that does it."""
    await db.execute(
        _SQL["insert_audit"],
        tenant_id,
        entry.audit_id,
        entry.actor,
        entry.action,
        entry.target,
        entry.reason,
        entry.request_id,
        jsonvalue.dumps(entry.detail),
    )


async def list_entries(
    db: asyncpg.Connection,
    tenant_id: str,
    *,
    status: str,
    text: str,
    tags: list[str],
    family_slug: str,
    after: tuple[datetime, str] | None,
    limit: int,
) -> list[Entry]:
    """At most `limit` drafts and versions after the place `after`, newest first. Empty filters let everything through."""
    time, entry_id = after or (None, None)
    rows = await db.fetch(_SQL["list_entries"], tenant_id, status, text, tags, family_slug, time, entry_id, limit)
    return [Entry(**row) for row in rows]


async def now(db: asyncpg.Connection) -> datetime:
    """The database's time."""
    time: datetime = await db.fetchval(_SQL["now"])
    return time


def _columns(document: JSON) -> tuple[str, str, list[str]]:
    """What lists search in: title, description and tags, which stand in the document too."""
    return document.get("title") or "", document.get("description") or "", list(document.get("tags") or ())


def _version(row: asyncpg.Record | None) -> Version | None:
    if row is None:
        return None
    values: dict[str, Any] = dict(row)
    values["document"] = _read(values["document"])
    return Version(**values)


def _read(text: str) -> JSON:
    # Checked when it was written; each payload in it may be `jsonvalue.MAX_DEPTH` deep, the whole is deeper.
    return orjson.loads(text)
