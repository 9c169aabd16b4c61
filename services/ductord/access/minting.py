"""Keys are made, replaced and ended here, by AdminService and by the command line that makes the first ones; each with its line in the audit trail (C8).

The functions run in a transaction of the key's tenant (`db.pool.tenant_transaction`); `bootstrap` opens its own. A token leaves in what is answered and is kept
nowhere: of its secret only the SHA-256 is stored. Nothing here asks who may: that is judged before.
"""

from datetime import datetime
from typing import Any, Final

import asyncpg
import msgspec
import orjson

from ductord.access.drafts import Draft, hash_of, new_token
from ductord.access.kept import Key, key_of, not_found
from ductord.db.pool import in_tenant_transaction
from ductord.db.queries import Queries
from ductord.model.ids import canonical, derived
from ductord.model.keys import Token
from ductord.rpc.errors import field_invalid, refused

MAX_KEYS: Final = 1_000
"""Of a tenant, that are not revoked and not replaced; those that are replaced have an end."""
OVERLAP_S: Final = 86_400
"""How long a replaced key stays good where nothing is said."""
MAX_OVERLAP_S: Final = 90 * 86_400

_q: Final = Queries("ductord.access", "minting.sql")


class By(msgspec.Struct, frozen=True, kw_only=True):
    """Who does it, why, in which request (C8)."""

    actor: str
    reason: str = ""
    request_id: str = ""


class Minted(msgspec.Struct, frozen=True, kw_only=True):
    """A key that was made, and its token for the only time. `replaced`: the key that it takes the place of."""

    key: Key
    token: str
    replaced: Key | None = None

    def __repr__(self) -> str:
        return f"Minted({self.key.prefix}…)"


async def make(db: asyncpg.Connection, draft: Draft, by: By) -> Minted:
    """Make a key. Raises API_KEY_NAME_TAKEN, TOO_MANY_API_KEYS, FIELD_INVALID."""
    await db.execute(_q["lock_keys"], draft.tenant_id)
    about = await db.fetchrow(_q["about_names"], draft.tenant_id, draft.name, draft.key_id)
    _refuse_past(draft.expire_time, about["now"])
    if about["taken_by"] is not None:
        message = (
            f"the key {about['taken_by']} has the name {draft.name}; revoke it first, rotate it, or take another name"
        )
        raise refused("API_KEY_NAME_TAKEN", message, key_id=str(about["taken_by"]))
    if about["kept"] >= MAX_KEYS:
        message = f"the tenant has {about['kept']:,} keys that were not revoked, the limit is {MAX_KEYS:,}: revoke some"
        raise refused("TOO_MANY_API_KEYS", message, limit=MAX_KEYS)
    return await _insert(db, draft, by, "create_api_key")


async def rotate(
    db: asyncpg.Connection,
    tenant_id: str,
    key_id: str,
    by: By,
    *,
    token: Token | None = None,
    overlap_s: int = OVERLAP_S,
    expire_time: datetime | None = None,
) -> Minted:
    """Replace an active key by one of the same name, scopes and groups; the old one is good for `overlap_s` more. `token`: the new one's, made beforehand where
    the transaction may be repeated.

    Raises API_KEY_NOT_FOUND, API_KEY_ENDED, FIELD_INVALID.
    """
    refuse_overlap(overlap_s)
    token = token or new_token(tenant_id)
    await db.execute(_q["lock_keys"], tenant_id)
    old = key_of(await db.fetchrow(_q["load_key_for_update"], tenant_id, _uuid_of(key_id)))
    draft = Draft(
        tenant_id=tenant_id,
        name=old.name,
        scopes=old.scopes,
        groups=old.groups,
        acts_for_others=old.acts_for_others,
        expire_time=expire_time,
        token=token,
    )
    if old.rotated_to != draft.key_id:
        _refuse_past(expire_time, old.now)
        if old.status != "active" or old.rotated_to:
            raise refused("API_KEY_ENDED", f"the key is {'rotated already' if old.rotated_to else old.status}")
        await db.execute(_q["replace_key"], tenant_id, old.key_id, draft.key_id, overlap_s)
    minted = await _insert(db, draft, by, "rotate_api_key", rotated_from=old.key_id)
    return msgspec.structs.replace(minted, replaced=await find(db, tenant_id, old.key_id))


async def revoke(db: asyncpg.Connection, tenant_id: str, key_id: str, by: By) -> Key:
    """End a key for good; a key that was revoked before stays as it was. Raises API_KEY_NOT_FOUND."""
    ended = await db.execute(_q["revoke_key"], tenant_id, _uuid_of(key_id), by.actor)
    key = await find(db, tenant_id, key_id)
    if not ended.endswith(" 0"):
        await _tell(db, key, by, "revoke_api_key", {"name": key.name})
    return key


async def find(db: asyncpg.Connection, tenant_id: str, key_id: str) -> Key:
    """One key of the tenant. Raises API_KEY_NOT_FOUND, for a text that is no id as well."""
    return key_of(await db.fetchrow(_q["load_key"], tenant_id, _uuid_of(key_id)))


async def named(db: asyncpg.Connection, tenant_id: str, name: str) -> Key | None:
    """The key that has the name and was not replaced; None without one."""
    row = await db.fetchrow(_q["load_named"], tenant_id, name)
    return None if row is None else key_of(row)


async def bootstrap(pool: asyncpg.Pool, draft: Draft, by: By) -> Minted:
    """`make` in a transaction of its own, for who has a database login of admin's and no key yet."""
    return await in_tenant_transaction(pool, draft.tenant_id, lambda db: make(db, draft, by))


def refuse_overlap(overlap_s: int) -> None:
    """Raises FIELD_INVALID for what no overlap can be."""
    if not 0 <= overlap_s <= MAX_OVERLAP_S:
        raise field_invalid("overlap_seconds", f"is between 0 and {MAX_OVERLAP_S:,}")


async def _insert(db: asyncpg.Connection, draft: Draft, by: By, action: str, *, rotated_from: str = "") -> Minted:
    await db.execute(
        _q["insert_key"],
        draft.tenant_id,
        draft.key_id,
        draft.name,
        hash_of(draft.token.secret),
        list(draft.scopes),
        list(draft.groups),
        draft.acts_for_others,
        by.actor,
        draft.expire_time,
        rotated_from or None,
    )
    key = await find(db, draft.tenant_id, draft.key_id)
    detail: dict[str, Any] = {"name": key.name, "scopes": key.scopes}
    if key.groups:
        detail["groups"] = key.groups
    if key.acts_for_others:
        detail["acts_for_others"] = True
    if rotated_from:
        detail["rotated_from"] = rotated_from
    await _tell(db, key, by, action, detail)
    return Minted(key=key, token=draft.token.text)


async def _tell(db: asyncpg.Connection, key: Key, by: By, action: str, detail: dict[str, Any]) -> None:
    """Each of these is done to a key once: its line is named after it, so that a repeated transaction writes none a second time."""
    audit_id = derived("api_key", action, key.key_id)
    text = orjson.dumps(detail).decode()
    await db.execute(_q["tell"], key.tenant_id, audit_id, by.actor, action, key.key_id, by.reason, by.request_id, text)


def _uuid_of(key_id: str) -> str:
    """A key's id as it is stored. Raises API_KEY_NOT_FOUND."""
    known = canonical(key_id)
    if known is None:
        raise not_found()
    return known


def _refuse_past(expire_time: datetime | None, now: datetime) -> None:
    if expire_time is not None and expire_time <= now:
        raise field_invalid("expire_time", "is over already")
