"""Query parameters to fields, for the RPCs that take no body. As strict as a body: an unknown, repeated or ill-typed parameter is a fault that names it."""

import re
from typing import Any, Final
from urllib.parse import unquote_to_bytes

from ductord.gateway.faults import NOTHING, Reading, named
from ductord.gateway.reading import MessageReader

_BROKEN: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


def read_query(reader: MessageReader, query: bytes, reading: Reading) -> dict[str, Any]:
    """The fields that a query string gives, as keyword arguments. A repeated field is given several times, `label=a:1&label=b:2`."""
    out: dict[str, Any] = {}
    seen: dict[str, str] = {}
    for key, text in _pairs(query, reading):
        field = reader.fields.get(key)
        if field is None:
            reader.report_unknown(key, "", reading)
            continue
        if seen.setdefault(field.name, key) != key or (field.name in out and not field.repeated):
            reading.duplicate(key)
            continue
        value = NOTHING if field.text is None else field.text(text)
        if value is NOTHING:
            wanted = "cannot be a query parameter" if field.text is None else "has a value that it may not have"
            reading.invalid(key, wanted)
        elif field.repeated:
            out.setdefault(field.target, []).append(value)
        else:
            out[field.target] = value
    reader.judge(seen, "", reading)
    return out


def _pairs(query: bytes, reading: Reading) -> list[tuple[str, str]]:
    pairs = []
    for part in query.split(b"&"):
        if not part:
            continue
        key, _, value = part.partition(b"=")
        try:
            pairs.append((_decoded(key), _decoded(value)))
        except ValueError:
            name = named("", key.decode("latin-1"))
            reading.invalid(name, "is not percent-encoded UTF-8 text in this query")
    return pairs


def _decoded(part: bytes) -> str:
    if _BROKEN.search(part.decode("latin-1")):
        raise ValueError
    return unquote_to_bytes(part.replace(b"+", b" ")).decode()
