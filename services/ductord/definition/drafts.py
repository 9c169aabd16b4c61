"""Drafts: created, reopened, copied, edited, deleted (rulings D1, D2).

A draft may be unfinished, so it is judged twice: `judging.refuse_draft` says what not even a draft may be and stops the write, `judging.judge`
says what would stop a publish and only warns. Every edit is guarded by the revision that was read; nothing is merged silently.
"""

import asyncpg

from ductord.db.ids import new_id
from ductord.definition import lookup, store
from ductord.definition.audit import Act
from ductord.definition.store import Draft
from ductord.definition.transactions import in_transaction
from ductord.model.errors import Refusal
from ductord.model.jsonvalue import JSON
from ductord.rpc.errors import refused

NAMES = ("family_slug", "title", "description", "tags")
"""What a creation may say of a family without saying anything of its graph."""


async def create(pool: asyncpg.Pool, tenant_id: str, document: JSON, *, reopen: bool = True) -> Draft:
    """The draft of a new family; or, with `reopen`, of a family that has none at present, from its newest version (D1).

    A reopening that brings a graph of its own is that graph; one that only names things changes these names. Raises FAMILY_SLUG_TAKEN.
    """
    family_slug = document["family_slug"]
    new_family = new_id()

    async def work(db: asyncpg.Connection, again: bool) -> Draft:
        if await store.insert_family(db, tenant_id, new_family, family_slug):
            await store.insert_draft(db, tenant_id, new_family, 1, document)
            return await _read(db, tenant_id, new_family)
        definition_id = (await lookup.family_of_slug(db, tenant_id, family_slug)).definition_id
        if again and definition_id == new_family:
            return await _read(db, tenant_id, definition_id)
        _, last_revision = await store.lock_family(db, tenant_id, definition_id)
        if not reopen:
            raise _taken(family_slug, definition_id)
        content = await _reopened(db, tenant_id, definition_id, document)
        if not await store.insert_draft(db, tenant_id, definition_id, last_revision + 1, content):
            raise _taken(family_slug, definition_id)
        return await _read(db, tenant_id, definition_id)

    return await in_transaction(pool, tenant_id, work)


def copy_of(document: JSON, family_slug: str, title: str | None) -> JSON:
    """A document under another family, and another title where one is given."""
    copy = {**document, "family_slug": family_slug}
    if title is not None:
        copy["title"] = title
    return copy


async def replace(pool: asyncpg.Pool, tenant_id: str, known: Draft, document: JSON) -> Draft:
    """The draft with another document and its next revision. Raises DRAFT_REVISION_MISMATCH, DRAFT_NOT_FOUND."""
    definition_id, revision = known.definition_id, known.draft_revision

    async def work(db: asyncpg.Connection, again: bool) -> Draft:
        changed = await store.update_draft(db, tenant_id, definition_id, revision, document)
        draft = await _read(db, tenant_id, definition_id)
        if not changed and not (again and draft.draft_revision == revision + 1 and draft.document == document):
            raise mismatch(revision, draft.draft_revision)
        return draft

    return await in_transaction(pool, tenant_id, work)


async def delete(pool: asyncpg.Pool, tenant_id: str, any_id: str, expected: int | None, act: Act) -> None:
    """Delete a draft; the family and its versions stay (D1). Raises as `lookup.editable_draft`, and DRAFT_REVISION_MISMATCH."""

    async def work(db: asyncpg.Connection, again: bool) -> None:
        draft = await lookup.editable_draft(db, tenant_id, any_id)
        expect(expected, draft.draft_revision)
        await store.lock_family(db, tenant_id, draft.definition_id)
        if not await store.delete_draft(db, tenant_id, draft.definition_id, draft.draft_revision):
            # Edited between the look and the lock: nobody has seen what would be deleted.
            raise mismatch(draft.draft_revision, (await _read(db, tenant_id, draft.definition_id)).draft_revision)
        await act.write(
            db,
            tenant_id,
            "delete_draft",
            draft.definition_id,
            family_slug=draft.family_slug,
            draft_revision=draft.draft_revision,
        )

    await in_transaction(pool, tenant_id, work)


def expect(expected: int | None, current: int) -> None:
    """Raise DRAFT_REVISION_MISMATCH unless `expected` is the current revision, or nothing was expected."""
    if expected is not None and expected != current:
        raise mismatch(expected, current)


def mismatch(expected: int, current: int) -> Refusal:
    """Somebody was faster."""
    return refused(
        "DRAFT_REVISION_MISMATCH",
        f"the draft is at revision {current}, not {expected}: read it again, reconcile and repeat",
        expected_draft_revision=expected,
        draft_revision=current,
    )


def no_draft(definition_id: str) -> Refusal:
    """The draft is gone."""
    return refused("DRAFT_NOT_FOUND", "the definition has no draft at present", definition_id=definition_id)


async def _reopened(db: asyncpg.Connection, tenant_id: str, definition_id: str, document: JSON) -> JSON:
    if any(name not in NAMES for name in document):
        return document
    newest = await store.get_newest(db, tenant_id, definition_id)
    return document if newest is None else {**newest.document, **document}


async def _read(db: asyncpg.Connection, tenant_id: str, definition_id: str) -> Draft:
    draft = await store.get_draft(db, tenant_id, definition_id)
    if draft is None:
        raise no_draft(definition_id)
    return draft


def _taken(family_slug: str, definition_id: str) -> Refusal:
    return refused(
        "FAMILY_SLUG_TAKEN",
        f"the family {family_slug} exists already",
        family_slug=family_slug,
        definition_id=definition_id,
    )
