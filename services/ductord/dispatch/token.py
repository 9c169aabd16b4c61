"""Task tokens: the key of an attempt's row and the random secret of its lease, opaque to workers.

A token proves nothing by itself: every statement compares the secret with the row's and the tenant with the caller's. What is read here is only well-
formed, so that a damaged token is one lost lease and not a failing statement for the whole batch.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

_MAX_CHARS: Final = 2_048

_Tenant = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
_RunId = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]
_StepRef = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]{0,127}$")]
_Index = Annotated[int, msgspec.Meta(ge=-1, le=2**31 - 1)]
_Kind = Literal["step", "item", "compensation", "finally"]
_Secret = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}$")]


class LeaseKey(NamedTuple):
    """Which attempt, under which secret. Sorts as the primary key does, so that batches lock rows in one order."""

    tenant_id: str
    run_id: str
    step_ref: str
    item_index: int
    kind: str
    attempt: int
    lease_secret: str


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(tuple[_Tenant, _RunId, _StepRef, _Index, _Kind, _Index, _Secret])


def written(key: LeaseKey) -> str:
    """The token of a lease."""
    return urlsafe_b64encode(_encoder.encode(key)).decode()


def read(token: str, tenant_id: str | None) -> LeaseKey | None:
    """The lease that a token names, None when it is no token of ours or of another tenant than the caller's (None: all tenants, N2, N3)."""
    if len(token) > _MAX_CHARS:
        return None
    try:
        key = LeaseKey(*_decoder.decode(urlsafe_b64decode(token)))
    except (ValueError, msgspec.MsgspecError):
        return None
    return key if tenant_id is None or key.tenant_id == tenant_id else None
