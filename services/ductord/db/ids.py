"""New identities: UUIDv7, ordered by the time they were made, so that indexes grow at one end. Derived ids are in `model.ids`."""

import secrets
import time
import uuid


def new_id() -> str:
    """A fresh UUIDv7 as text (RFC 9562: 48 bits of Unix milliseconds, 74 random bits). The clock orders, it decides nothing."""
    value = (time.time_ns() // 1_000_000 & (1 << 48) - 1) << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))
