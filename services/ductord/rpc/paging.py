"""Pages of a list: how many, and where to go on. Keyset order, so that equal timestamps are neither lost nor doubled (contract).

A token is opaque and bound to the tenant, the RPC and every filter of the request, so that it cannot go on in another list. It carries the
position and no secret: row-level security and the query's tenant decide what is seen, whatever a token says.
"""

import base64
import binascii
import datetime
import hashlib
from typing import Any, Final

import msgspec
import orjson
from google.protobuf.message import Message

from ductord.model.errors import Refusal
from ductord.rpc.errors import field_invalid, refused

DEFAULT_SIZE: Final = 50
MAX_SIZE: Final = 1_000
MAX_TOKEN: Final = 2_048

_DIGEST: Final = 12
_NOT_FILTERS: Final = ("page_size", "page_token", "payload_format")

Key = str | int | datetime.datetime
"""One column of the order. A datetime has a time zone."""


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """What a list request asks for. `size` rows after the row whose order columns are `after`; None: from the begin."""

    size: int
    after: tuple[Key, ...] | None
    binding: bytes

    @property
    def fetch(self) -> int:
        """How many rows to read: one more, to know whether there is a next page."""
        return self.size + 1

    def next_token(self, last: tuple[Key, ...]) -> str:
        """The token that goes on after the row with these order columns."""
        body = orjson.dumps([["t", k.isoformat()] if isinstance(k, datetime.datetime) else k for k in last])
        return base64.urlsafe_b64encode(_digest(self.binding, body) + body).rstrip(b"=").decode()


def page_of(request: Message, tenant_id: str) -> Page:
    """The page that a list request asks for; its other fields are the filter. Raises FIELD_INVALID, PAGE_TOKEN_INVALID."""
    size: int = getattr(request, "page_size")  # noqa: B009  # a message of any type
    if not 0 <= size <= MAX_SIZE:
        raise field_invalid("page_size", f"is between 1 and {MAX_SIZE:,}; 0 stands for {DEFAULT_SIZE}")
    return msgspec.structs.replace(token_of(request, tenant_id), size=size or DEFAULT_SIZE)


def token_of(request: Message, tenant_id: str) -> Page:
    """The page of a list whose pages are cut by bytes and not by count. Raises PAGE_TOKEN_INVALID."""
    token: str = getattr(request, "page_token")  # noqa: B009
    binding = _binding(request, tenant_id)
    return Page(size=MAX_SIZE, after=_position(token, binding) if token else None, binding=binding)


def _binding(request: Message, tenant_id: str) -> bytes:
    filters: Any = type(request)()
    filters.CopyFrom(request)
    for name in _NOT_FILTERS:
        if name in request.DESCRIPTOR.fields_by_name:
            filters.ClearField(name)
    text = f"{request.DESCRIPTOR.full_name}\0{tenant_id}\0".encode()
    return hashlib.sha256(text + filters.SerializeToString(deterministic=True)).digest()


def _position(token: str, binding: bytes) -> tuple[Key, ...]:
    if len(token) > MAX_TOKEN:
        raise _invalid()
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _invalid() from None
    body = raw[_DIGEST:]
    if raw[:_DIGEST] != _digest(binding, body):
        raise _invalid()
    return tuple(datetime.datetime.fromisoformat(k[1]) if isinstance(k, list) else k for k in orjson.loads(body))


def _digest(binding: bytes, body: bytes) -> bytes:
    return hashlib.sha256(binding + body).digest()[:_DIGEST]


def _invalid() -> Refusal:
    return refused(
        "PAGE_TOKEN_INVALID",
        "page_token is damaged, or of a list with another filter: take it as it came, with the same filter",
    )
