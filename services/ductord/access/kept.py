"""A key as it is kept. It never has the secret, of which only a hash is stored."""

import uuid
from datetime import datetime
from typing import Any

import asyncpg
import msgspec

from ductord.model.errors import Refusal
from ductord.model.keys import Token
from ductord.rpc.errors import refused


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


def key_of(row: asyncpg.Record | None) -> Key:
    """A row with `now`. Raises API_KEY_NOT_FOUND where there is none."""
    if row is None:
        raise not_found()
    same = ("tenant_id", "name", "acts_for_others", "create_time", "created_by", "expire_time", "revoke_time")
    values: dict[str, Any] = {name: row[name] for name in (*same, "revoked_by", "last_use_time", "now")}
    values |= {name: str(row[name] or "") for name in ("key_id", "rotated_from", "rotated_to")}
    return Key(scopes=tuple(row["scopes"]), groups=tuple(row["groups"]), **values)


def not_found() -> Refusal:
    """The one answer for every id that names no key of this tenant's (TN-01)."""
    return refused("API_KEY_NOT_FOUND", "there is no such key")
