"""Task tokens: the key of an attempt's row and the random secret of its lease, opaque to workers.

A token proves nothing by itself: every statement compares the secret with the row's and the tenant with the caller's. What is read here is only well-
formed, so that a damaged token is one lost lease and not a failing statement for the whole batch.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Final, NamedTuple

import msgspec

_MAX_CHARS: Final = 2_048

_Int = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]


class LeaseKey(NamedTuple):
    """Which attempt, under which secret. Sorts as the primary key does, so that batches lock rows in one order."""

    tenant_id: str
    run_id: str
    step_ref: str
    item_index: _Int
    kind: str
    attempt: _Int
    lease_secret: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(LeaseKey)
_is_run_id = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


def written(key: LeaseKey) -> str:
    """The token of a lease."""
    return urlsafe_b64encode(_encoder.encode(key)).decode()


def read(token: str, tenant_id: str | None) -> LeaseKey | None:
    """The lease that a token names, None when it is no token of ours or of another tenant than the caller's (None: all tenants, N2, N3)."""
    if len(token) > _MAX_CHARS:
        return None
    try:
        text = urlsafe_b64decode(token)
        key = _decoder.decode(text)
    except (ValueError, msgspec.MsgspecError):
        return None
    # No name of ours needs an escape in JSON, and without one no text holds what the database cannot take (NUL, half a surrogate).
    if b"\\" in text or not _is_run_id(key.run_id):
        return None
    return key if tenant_id is None or key.tenant_id == tenant_id else None
