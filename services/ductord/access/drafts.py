"""Keys that are to be made, judged as far as they can be without a row; and where their secrets come from.

Nothing here reads or writes.
"""

import base64
import hashlib
import secrets
import uuid
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from ductord.model.keys import NAME, PLATFORM_SCOPES, PLATFORM_TENANT, TENANT_SCOPES, TOKEN_BEGIN, Token
from ductord.rpc.bounds import bounded
from ductord.rpc.errors import field_invalid, field_required, refused

MAX_GROUPS: Final = 50
MAX_GROUP_BYTES: Final = 128


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
    if name.startswith(TOKEN_BEGIN):
        raise field_invalid(
            "name",
            f"begins with {TOKEN_BEGIN} as tokens do: who revokes a key by its token's begin must not meet another of that name",
        )
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


def new_token(tenant_id: str) -> Token:
    """A token that no key has yet. Its id is random and not ordered by time: by its first digits a person recognises it."""
    key_id = uuid.UUID(bytes=secrets.token_bytes(16), version=4).hex
    secret = base64.urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
    return Token(tenant_id=tenant_id, key_id=key_id, secret=secret)


def hash_of(secret: str) -> bytes:
    """What is stored of a secret: 32 random bytes need no salt and no slow hash."""
    return hashlib.sha256(secret.encode()).digest()


def _refuse_twice(field: str, texts: Iterable[str]) -> None:
    seen: set[str] = set()
    for index, text in enumerate(texts):
        if text in seen:
            raise refused("FIELD_DUPLICATE", f"{field}[{index}] stands twice in the request", field=f"{field}[{index}]")
        seen.add(text)
