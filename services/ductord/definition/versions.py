"""Versions: frozen by a publish, retired by an archive (rulings D2, D3). Nothing else ever changes one.

A publish reads the draft, judges it outside of any transaction (compiling takes its time), and then takes the family's lock: if another publish
or an edit came in between, what was judged is not what is there, and nothing is written. What starts runs by itself follows in the same transaction (`live`).
"""

import asyncpg
import msgspec

from ductord.db.ids import new_id
from ductord.definition import drafts, live, lookup, store
from ductord.definition.audit import Act
from ductord.definition.judging import Judge, Verdict
from ductord.definition.store import Draft, NewVersion, Version
from ductord.definition.transactions import in_transaction
from ductord.model import manifest as manifests
from ductord.model.errors import Violation
from ductord.model.manifest import Manifest
from ductord.rpc.errors import refused

EDITED_TRIES = 5
"""How often a publish that expects no revision starts again because the draft was edited under it."""


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """A new version, the fresh draft beside it, and what the author should know."""

    version: Version
    draft: Draft
    warnings: tuple[Violation, ...]


class _Edited(Exception):
    """The draft is no longer the one that was judged."""

    def __init__(self, current: int) -> None:
        super().__init__()
        self.current = current


async def publish(
    pool: asyncpg.Pool, tenant_id: str, any_id: str, expected: int | None, act: Act, judge: Judge
) -> Published:
    """Freeze the draft as the family's next version.

    Raises as `lookup.editable_draft`, DRAFT_REVISION_MISMATCH, DEFINITION_INVALID with every violation, WILDCARDS_DISABLED, and PUBLISH_CONFLICT when another
    publish came first.
    """
    for _ in range(EDITED_TRIES):
        draft = await in_transaction(pool, tenant_id, lambda db, _: lookup.editable_draft(db, tenant_id, any_id))
        drafts.expect(expected, draft.draft_revision)
        verdict = await judge.judge(draft.document)
        manifest = verdict.publishable()
        new = NewVersion(
            version_id=new_id(),
            version=draft.version,
            document=draft.document,
            manifest=manifests.encode(manifest),
            manifest_hash=verdict.manifest_hash,
            format_version=manifest.format_version,
            engine_level=manifest.engine_level,
            draft_revision=draft.draft_revision,
        )
        try:
            return await _freeze(pool, tenant_id, draft, new, manifest, act, verdict)
        except _Edited as edited:
            drafts.expect(expected, edited.current)
    raise refused(
        "TRANSACTION_CONFLICT", "the draft is edited again and again while it is published", retry_after_ms=100
    )


async def archive(pool: asyncpg.Pool, tenant_id: str, any_id: str, act: Act) -> Version:
    """Retire a version; a definition id stands for the current one (D1). Raises as `lookup.pinned_or_newest`, and DEFINITION_ARCHIVED."""
    meant: str | None = None

    async def work(db: asyncpg.Connection, again: bool) -> Version:
        nonlocal meant
        if again and meant is not None and (done := await lookup.pinned(db, tenant_id, meant)).archived:
            return done  # not the version that was published meanwhile, which the definition's id stands for now
        family = await lookup.family(db, tenant_id, any_id)
        newest, _ = await store.lock_family(db, tenant_id, family.definition_id)
        version = await lookup.pinned_or_newest(db, tenant_id, family)
        if version.archived:
            raise lookup.archived(version)
        meant = version.version_id
        await store.archive_version(db, tenant_id, version.version_id)
        if version.version == newest:
            await live.retire(db, tenant_id, version.definition_id)
        await act.write(
            db,
            tenant_id,
            "archive",
            version.definition_id,
            version_id=version.version_id,
            family_slug=version.family_slug,
            version=version.version,
        )
        return await lookup.pinned(db, tenant_id, version.version_id)

    return await in_transaction(pool, tenant_id, work)


async def _freeze(
    pool: asyncpg.Pool,
    tenant_id: str,
    draft: Draft,
    new: NewVersion,
    manifest: Manifest,
    act: Act,
    verdict: Verdict,
) -> Published:
    definition_id = draft.definition_id

    async def work(db: asyncpg.Connection, again: bool) -> Published:
        done = await store.get_version(db, tenant_id, new.version_id) if again else None
        if done is None:
            await write(db)
        version = await lookup.pinned(db, tenant_id, new.version_id)
        fresh = await store.get_draft(db, tenant_id, definition_id)
        if fresh is None:
            raise drafts.no_draft(definition_id)
        return Published(version=version, draft=fresh, warnings=verdict.warnings)

    async def write(db: asyncpg.Connection) -> None:
        await store.lock_family(db, tenant_id, definition_id)
        if await store.number_version(db, tenant_id, definition_id, new.version - 1) is None:
            raise refused(
                "PUBLISH_CONFLICT", "another publish of this definition came first", definition_id=definition_id
            )
        if not await store.renew_draft(db, tenant_id, definition_id, draft.draft_revision):
            current = await store.get_draft(db, tenant_id, definition_id)
            if current is None:
                raise drafts.no_draft(definition_id)
            raise _Edited(current.draft_revision)
        await store.insert_version(db, tenant_id, definition_id, new)
        await live.follow(
            db, tenant_id, definition_id, draft.family_slug, new.version_id, new.version, manifest.triggers
        )
        await act.write(
            db,
            tenant_id,
            "publish",
            definition_id,
            version_id=new.version_id,
            family_slug=draft.family_slug,
            version=new.version,
            draft_revision=new.draft_revision,
            manifest_hash=new.manifest_hash,
        )

    return await in_transaction(pool, tenant_id, work)
