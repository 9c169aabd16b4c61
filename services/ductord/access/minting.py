"""Keys are made, replaced and ended here, by AdminService and by the command line that makes the first ones; each with its line in the audit trail (C8).

The functions run in a transaction of the key's tenant (`db.pool.tenant_transaction`); `bootstrap` opens its own. A token leaves in what is answered and is kept
nowhere: of its secret only the SHA-256 is stored. Nothing here asks who may: that is judged before.
"""

import base64
import hashlib
import secrets
import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import asyncpg
import msgspec
import orjson

from ductord.db.pool import retrying, tenant_transaction
from ductord.db.queries import Queries
from ductord.model.errors import Refusal
from ductord.model.ids import canonical, derived
from ductord.model.keys import NAME, PLATFORM_SCOPES, PLATFORM_TENANT, TENANT_SCOPES, Token
from ductord.rpc.bounds import bounded
from ductord.rpc.errors import field_invalid, field_required, refused

MAX_KEYS: Final = 1_000
"""Of a tenant, that are not revoked and not replaced; those that are replaced have an end."""
MAX_GROUPS: Final = 50
MAX_GROUP_BYTES: Final = 128
OVERLAP_S: Final = 86_400
"""How long a replaced key stays good where nothing is said."""
MAX_OVERLAP_S: Final = 90 * 86_400

_q: Final = Queries("ductord.access", "minting.sql")


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """A key as it is stored, at the database's time `now`; without its secret."""

    tenant_id: str
    key_id: str
    name: str
    scopes: tuple[str, ...]
    groups: tuple[str, ...]
    acts_for_others: bool
    create_time: datetime
    created_by: str
    expire_time: datetime | None
    revoke_time: datetime | None
    revoked_by: str
    rotated_from: str
    rotated_to: str
    last_use_time: datetime | None
    now: datetime

    @property
    def status(self) -> str:
        """`active`, `expired` or `revoked`."""
        if self.revoke_time is not None:
            return "revoked"
        return "expired" if self.expire_time is not None and self.expire_time <= self.now else "active"

    @property
    def prefix(self) -> str:
        """What its token begins with."""
        return Token(tenant_id=self.tenant_id, key_id=uuid.UUID(self.key_id).hex, secret="").prefix


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A key that is to be made, judged as far as it can be without a row. Its ids are made with it, so that its transaction may be repeated."""

    tenant_id: str
    name: str
    scopes: tuple[str, ...]
    groups: tuple[str, ...] = ()
    acts_for_others: bool = False
    expire_time: datetime | None = None
    token: Token

    @property
    def key_id(self) -> str:
        """As ids are written."""
        return str(uuid.UUID(self.token.key_id))


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


def drafted(
    tenant_id: str,
    *,
    name: str,
    scopes: Sequence[str],
    groups: Sequence[str] = (),
    acts_for_others: bool = False,
    expire_time: datetime | None = None,
) -> Draft:
    """A key to be made for a tenant, or for the platform (`PLATFORM_TENANT`). Raises FIELD_REQUIRED, FIELD_INVALID, FIELD_DUPLICATE, BATCH_TOO_LARGE."""
    if not name:
        raise field_required("name")
    if not NAME.fullmatch(name):
        raise field_invalid("name", "is 1 to 64 letters, digits, `.`, `_` and `-`")
    if not scopes:
        raise field_required("scopes")
    allowed = PLATFORM_SCOPES if tenant_id == PLATFORM_TENANT else TENANT_SCOPES
    for index, scope in enumerate(scopes):
        if scope not in allowed:
            raise field_invalid(f"scopes[{index}]", f"is none of {', '.join(allowed)}")
    _refuse_twice("scopes", scopes)
    if len(groups) > MAX_GROUPS:
        message = f"groups has {len(groups)} names, the limit is {MAX_GROUPS}"
        raise refused("BATCH_TOO_LARGE", message, field="groups", limit=MAX_GROUPS)
    for index, group in enumerate(groups):
        if not bounded(f"groups[{index}]", group, MAX_GROUP_BYTES):
            raise field_invalid(f"groups[{index}]", "is empty")
    _refuse_twice("groups", groups)
    return Draft(
        tenant_id=tenant_id,
        name=name,
        scopes=tuple(scopes),
        groups=tuple(groups),
        acts_for_others=acts_for_others,
        expire_time=expire_time,
        token=new_token(tenant_id),
    )


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

    async def attempt() -> Minted:
        async with tenant_transaction(pool, draft.tenant_id) as db:
            return await make(db, draft, by)

    return await retrying(attempt)


def key_of(row: asyncpg.Record | None) -> Key:
    """A row with `now`. Raises API_KEY_NOT_FOUND where there is none."""
    if row is None:
        raise not_found()
    same = ("tenant_id", "name", "acts_for_others", "create_time", "created_by", "expire_time", "revoke_time")
    values: dict[str, Any] = {name: row[name] for name in (*same, "revoked_by", "last_use_time", "now")}
    values |= {name: str(row[name] or "") for name in ("key_id", "rotated_from", "rotated_to")}
    return Key(scopes=tuple(row["scopes"]), groups=tuple(row["groups"]), **values)


def refuse_overlap(overlap_s: int) -> None:
    """Raises FIELD_INVALID for what no overlap can be."""
    if not 0 <= overlap_s <= MAX_OVERLAP_S:
        raise field_invalid("overlap_seconds", f"is between 0 and {MAX_OVERLAP_S:,}")


def not_found() -> Refusal:
    """The one answer for every id that names no key of this tenant's (TN-01)."""
    return refused("API_KEY_NOT_FOUND", "there is no such key")


def new_token(tenant_id: str) -> Token:
    """A token that no key has yet. Its id is random and not ordered by time: by its first digits a person recognises it."""
    key_id = uuid.UUID(bytes=secrets.token_bytes(16), version=4).hex
    secret = base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
    return Token(tenant_id=tenant_id, key_id=key_id, secret=secret)


def hash_of(secret: str) -> bytes:
    """What is stored of a secret: 32 random bytes need no salt and no slow hash."""
    return hashlib.sha256(secret.encode()).digest()


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


def _refuse_twice(field: str, texts: Iterable[str]) -> None:
    seen: set[str] = set()
    for index, text in enumerate(texts):
        if text in seen:
            raise refused("FIELD_DUPLICATE", f"{field}[{index}] stands twice in the request", field=f"{field}[{index}]")
        seen.add(text)


def _refuse_past(expire_time: datetime | None, now: datetime) -> None:
    if expire_time is not None and expire_time <= now:
        raise field_invalid("expire_time", "is over already")
