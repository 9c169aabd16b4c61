"""JSON values that the product can carry exactly: strict parsing, checking and writing (rulings L5, L6, L7).

Every payload enters through here: request bodies and `*_json` fields, worker outputs, Structs, values that an expression made. What it
lets through is `None`, `bool`, an int of 64 bits, a finite float that is not integral, `str` without NUL or lone surrogate, and lists and
string-keyed dicts of these, at most `MAX_DEPTH` deep. A number is judged by its value and not by its spelling (`5.0` and `5e0` are `5`),
so that a value reads the same after Postgres or another language has spelled it anew: an integral value is an int, and outside the int64
range it is refused. Nothing is rounded, dropped or repaired silently.

It never quotes a payload: messages name the place and the rule, not the data.
"""

import re
from typing import Any, Final

import orjson

from ductord.model.errors import PayloadInvalid
from ductord.model.jsonwalk import (
    EXACT,
    INT64_MAX,
    INT64_MIN,
    JSON,
    MAX_DEPTH,
    at,
    checked,
    integer_of,
    number_of,
    parse_carefully,
)
from ductord.model.jsonwalk import too_large as _too_large

__all__ = [
    "JSON",
    "MAX_DEPTH",
    "MAX_ERROR_TEXT",
    "MAX_KEY_BYTES",
    "MAX_PAYLOAD_BYTES",
    "WARN_PAYLOAD_BYTES",
    "dumps",
    "encode",
    "integer_of",
    "normalise",
    "number_of",
    "parse",
    "storable",
    "storable_text",
    "too_large",
]

MAX_PAYLOAD_BYTES: Final = 1 << 20
WARN_PAYLOAD_BYTES: Final = 256 << 10
MAX_KEY_BYTES: Final = 256
"""Bytes of an idempotency, request, event, correlation or digest key (ruling L7)."""
MAX_ERROR_TEXT: Final = 4_000

_UNSTORABLE: Final = re.compile("[\x00\ud800-\udfff]")


def parse(text: str | bytes, *, root: str = "", max_bytes: int | None = MAX_PAYLOAD_BYTES) -> JSON:
    """The value of a JSON text from a text door.

    `root` is the name of the field that holds the text; error paths begin with it. `max_bytes` bounds the text in UTF-8 (None: the caller
    has bounded it). Raises `PayloadInvalid`; of several faults the first in document order, duplicate keys included.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise PayloadInvalid("surrogate", root, at(root, "holds a lone surrogate")) from None
    if max_bytes is not None and len(data) > max_bytes:
        raise too_large(len(data), max_bytes, root)
    # orjson decides the common case; whatever it cannot tell (it keeps the last duplicate and rounds long integers) goes the careful way.
    if b"\\u0000" not in data:
        try:
            value = orjson.loads(data)
            if type(value) is dict or type(value) is list:
                if _names_are_unique(data, value, _settle(value, 1)):
                    return value
            elif type(value) is str or value is None or type(value) is bool:
                return value
        except (orjson.JSONDecodeError, _Doubt):
            pass
    return checked(parse_carefully(data, root), root)


def normalise(value: object, *, root: str = "", struct: bool = False) -> JSON:
    """A checked copy of a Python value: an action's output, an expression's value, a converted Struct.

    Integral floats become ints, tuples lists. With `struct`, numbers came through doubles, so integral ones of 2^53 and more are refused:
    the sender's digits may be lost already (ruling L5). Raises `PayloadInvalid`, also for a value that is no JSON (a date, a Decimal).
    """
    return checked(value, root, struct=struct)


def dumps(value: JSON) -> str:
    """The compact JSON text of a *checked* value, keys in their order. An unchecked value may raise `PayloadInvalid` or lose a NaN."""
    try:
        return orjson.dumps(value).decode()
    except (TypeError, RecursionError) as error:
        raise PayloadInvalid("not_json", "", f"value cannot be written as JSON: {storable_text(str(error))}") from None


def encode(value: object, *, root: str = "", max_bytes: int = MAX_PAYLOAD_BYTES) -> str:
    """`normalise`, write and bound in one call: the JSON text of any Python value. Raises `PayloadInvalid`, `too_large` naming the size."""
    text = orjson.dumps(checked(value, root, max_bytes=max_bytes))
    if len(text) > max_bytes:
        raise too_large(len(text), max_bytes, root)
    return text.decode()


def too_large(size: int, max_bytes: int, root: str) -> PayloadInvalid:
    """The refusal of a payload of `size` bytes over its limit (ruling L7)."""
    return _too_large(f"{size:,}", max_bytes, root)


def storable_text(text: str, *, max_chars: int = MAX_ERROR_TEXT) -> str:
    """`text` with NUL and lone surrogates as visible escapes (`\\u0000`), cut to `max_chars`: recording an error can then not fail (L6)."""
    if len(text) > max_chars:
        text = f"{text[:max_chars]}… ({len(text) - max_chars:,} more characters)"
    return _UNSTORABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def storable(text: str) -> bool:
    """Whether a key or name can be carried: no NUL, no lone surrogate."""
    return _UNSTORABLE.search(text) is None


class _Doubt(Exception):
    """The fast walk met something that only the careful parse can judge."""


def _settle(node: Any, depth: int) -> int:
    """Turn integral floats of a freshly parsed container into ints, in place; the number of keys in it. Raises `_Doubt`."""
    if depth > MAX_DEPTH:
        raise _Doubt
    keys = 0
    items: Any
    if type(node) is dict:
        keys = len(node)
        items = node.items()
    else:
        items = enumerate(node)
    for key, value in items:
        kind = type(value)
        if kind is str:
            continue
        if kind is int:
            if not INT64_MIN <= value <= INT64_MAX:
                raise _Doubt
        elif kind is dict or kind is list:
            keys += _settle(value, depth + 1)
        elif kind is float and value.is_integer():
            if not -EXACT < value < EXACT:
                raise _Doubt
            node[key] = int(value)
    return keys


def _names_are_unique(data: bytes, value: Any, keys: int) -> bool:
    """Whether no object of the text named a key twice, told by counting colons.

    A text has one colon per member and those inside strings. If it has no more than the parsed tree has keys, no member was dropped.
    Else the tree is written again: orjson never escapes a colon, so equal counts mean the same, unless the text escapes colons itself.
    """
    colons = data.count(b":")
    return colons == keys or (b"\\u003" not in data and colons == orjson.dumps(value).count(b":"))
