"""How large what a caller names and says may be (ruling L7)."""

from typing import Final

import msgspec

from ductord.rpc.errors import field_invalid

MAX_REASON_BYTES: Final = 4 << 10
"""Of a reason, a comment: what a person writes for the audit trail."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The configured limits, in bytes."""

    payload_bytes: int
    key_bytes: int


def bounded(field: str, text: str, limit: int) -> str:
    """`text`, if it is at most `limit` bytes. Raises FIELD_INVALID."""
    size = len(text.encode())
    if size > limit:
        raise field_invalid(field, f"is {size:,} bytes, the limit is {limit:,}")
    return text
