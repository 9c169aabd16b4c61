"""Canonical JSON (RFC 8785): one text per value, whatever the order of its keys. For hashes and for keys made of values.

It departs from the RFC in one place: an integer beyond 2^53 is written with all its digits, where the RFC would round it to a double. Our
integers have 64 bits (ruling L5), and two that differ must not have one hash.
"""

from typing import Any

import orjson
import rfc8785


def canonical(value: Any) -> bytes:
    """The canonical text of a JSON value whose floats are finite and whose strings hold no lone surrogate. Integral floats are ints."""
    parts: list[bytes] = []
    _write(value, parts)
    return b"".join(parts)


def _write(value: Any, parts: list[bytes]) -> None:
    if isinstance(value, dict):
        parts.append(b"{")
        separator = b""
        for key in sorted(value, key=_utf16):
            parts.append(separator)
            parts.append(orjson.dumps(key))
            parts.append(b":")
            _write(value[key], parts)
            separator = b","
        parts.append(b"}")
    elif isinstance(value, list | tuple):
        parts.append(b"[")
        separator = b""
        for item in value:
            parts.append(separator)
            _write(item, parts)
            separator = b","
        parts.append(b"]")
    elif isinstance(value, float):
        parts.append(str(int(value)).encode() if value.is_integer() and abs(value) < 1 << 53 else rfc8785.dumps(value))
    elif isinstance(value, int) and not isinstance(value, bool):
        parts.append(str(value).encode())
    else:
        parts.append(orjson.dumps(value))


def _utf16(key: str) -> bytes:
    """RFC 8785 sorts by UTF-16 code units, which differs from code points above the basic plane."""
    return key.encode("utf-16-be")
