"""What an id names (ruling D1): a definition id its draft or its current version, a version id that version and nothing else.

Ids are looked up with their tenant. A foreign id, a random one and a text that is no id at all get the same answer (N1, TN-01).
"""

import re
from typing import Final

import asyncpg

from ductord.definition import store
from ductord.definition.store import Draft, Family, Version
from ductord.model.authored.words import FAMILY_SLUG_PATTERN
from ductord.model.errors import Refusal
from ductord.model.ids import canonical
from ductord.rpc.errors import field_required, refused

_SLUG: Final = re.compile(FAMILY_SLUG_PATTERN)


async def family(db: asyncpg.Connection, tenant_id: str, any_id: str, *, field: str = "id") -> Family:
    """The family that a definition id or a version id names, which the request has in `field`. Raises FIELD_REQUIRED, DEFINITION_NOT_FOUND."""
    if not any_id:
        raise field_required(field)
    known = canonical(any_id)
    found = await store.find(db, tenant_id, known) if known else None
    if found is None:
        raise not_found()
    return found


async def family_or_slug(db: asyncpg.Connection, tenant_id: str, name: str) -> Family:
    """The same, where a family slug is a name too; an id wins over a slug that looks like one. Raises as `family`."""
    if not name:
        raise field_required("id")
    known = canonical(name)
    found = await store.find(db, tenant_id, known) if known else None
    if found is None and _SLUG.fullmatch(name):
        found = await store.find_slug(db, tenant_id, name)
    if found is None:
        raise not_found()
    return found


async def family_of_slug(db: asyncpg.Connection, tenant_id: str, family_slug: str) -> Family:
    """The family of a slug. Raises DEFINITION_NOT_FOUND."""
    found = await store.find_slug(db, tenant_id, family_slug)
    if found is None:
        raise not_found()
    return found


async def editable_draft(db: asyncpg.Connection, tenant_id: str, any_id: str) -> Draft:
    """The draft that an edit, a deletion or a publish is meant for. Raises as `family` and VERSION_IMMUTABLE, DRAFT_NOT_FOUND."""
    found = await family(db, tenant_id, any_id)
    if found.version_id is not None:
        raise refused(
            "VERSION_IMMUTABLE",
            "the id names a published version, and versions are never edited; use the definition id",
            definition_id=found.definition_id,
            version=found.version or 0,
        )
    return await draft(db, tenant_id, found)


async def draft(db: asyncpg.Connection, tenant_id: str, of: Family) -> Draft:
    """The draft of a family. Raises DRAFT_NOT_FOUND."""
    found = await store.get_draft(db, tenant_id, of.definition_id)
    if found is None:
        raise refused("DRAFT_NOT_FOUND", "the definition has no draft at present", definition_id=of.definition_id)
    return found


async def copied(db: asyncpg.Connection, tenant_id: str, any_id: str) -> Draft | Version:
    """What a copy is made of: the pinned version, else the draft, else the newest version, archived or not. Raises DRAFT_NOT_FOUND."""
    of = await family(db, tenant_id, any_id)
    if of.version_id is not None:
        return await pinned(db, tenant_id, of.version_id)
    found = await store.get_draft(db, tenant_id, of.definition_id)
    return found or await store.get_newest(db, tenant_id, of.definition_id) or await draft(db, tenant_id, of)


async def pinned_or_current(db: asyncpg.Connection, tenant_id: str, of: Family) -> Version:
    """The version that the id pins, archived or not, else the current one: the highest number unless it is archived (D1, D3).

    Raises DEFINITION_NOT_PUBLISHED, DEFINITION_ARCHIVED.
    """
    version = await pinned_or_newest(db, tenant_id, of)
    if of.version_id is None and version.archived:
        raise archived(version)
    return version


async def pinned_or_newest(db: asyncpg.Connection, tenant_id: str, of: Family) -> Version:
    """The same, where an archived version will do. Raises DEFINITION_NOT_PUBLISHED."""
    if of.version_id is not None:
        return await pinned(db, tenant_id, of.version_id)
    newest = await store.get_newest(db, tenant_id, of.definition_id)
    if newest is None:
        message = "the definition has no published version"
        raise refused("DEFINITION_NOT_PUBLISHED", message, definition_id=of.definition_id)
    return newest


async def pinned(db: asyncpg.Connection, tenant_id: str, version_id: str) -> Version:
    """A version by its own id. Raises DEFINITION_NOT_FOUND."""
    version = await store.get_version(db, tenant_id, version_id)
    if version is None:
        raise not_found()
    return version


async def named(db: asyncpg.Connection, tenant_id: str, of: Family, *, published: bool) -> Draft | Version:
    """The pinned version, else the current version (`published`) or the draft. Raises as the functions above."""
    if of.version_id is not None or published:
        return await pinned_or_current(db, tenant_id, of)
    return await draft(db, tenant_id, of)


def not_found() -> Refusal:
    """The one answer for every id that names nothing of this tenant's; it repeats nothing that the caller said."""
    return refused("DEFINITION_NOT_FOUND", "there is no such definition or version")


def archived(version: Version) -> Refusal:
    """The answer where a version had to be live and is retired."""
    return refused(
        "DEFINITION_ARCHIVED",
        f"version {version.version} is archived",
        definition_id=version.definition_id,
        version=version.version,
    )
