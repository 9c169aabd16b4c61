"""How large what a caller names and says may be (ruling L7)."""

from typing import Final

import msgspec

from ductord.rpc.errors import field_invalid

MAX_REASON: Final = 1_000
"""Characters of a reason (C8)."""
MAX_COMMENT_BYTES: Final = 4 << 10
"""Of a comment: what a person says to a step."""


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


def reasoned(field: str, text: str) -> str:
    """`text`, if it is no longer than a reason may be. Raises FIELD_INVALID."""
    if len(text) > MAX_REASON:
        raise field_invalid(field, f"has {len(text):,} characters, the limit is {MAX_REASON:,}")
    return text
