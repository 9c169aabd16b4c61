"""User payloads at the gRPC door: Struct and Value ↔ JSON, and the choice between a field and its `_json` twin (rulings L5, L6, L7).

A payload is judged once, here, and is then a checked JSON value. Nothing is rounded: a Struct that holds an integral number of 2^53 or more is
refused, and an answer that would have to round gives the twin instead. Only the two conversions know protobuf's classes; what a payload means is
the service's business.
"""

import logging
from operator import itemgetter
from typing import Any, Final

import msgspec
from google.protobuf.message import Message
from google.protobuf.struct_pb2 import NULL_VALUE, ListValue, Struct, Value

from ductord.model import jsonvalue
from ductord.model.jsonvalue import JSON, MAX_DEPTH, MAX_PAYLOAD_BYTES, WARN_PAYLOAD_BYTES
from ductord.rpc.errors import fields_exclusive

JSON_FORMAT: Final = 2
"""`PAYLOAD_FORMAT_JSON` of the contract."""
EXACT: Final = 1 << 53

_LARGEST_GROWTH: Final = 6
"""No text of n bytes makes a Struct of more than 6n: the worst is a list of one-digit numbers, 11 bytes for 2."""
_warn_bytes = WARN_PAYLOAD_BYTES
_log = logging.getLogger("ductor.payload")

_INFINITE: Final = float("inf")


class Payload(msgspec.Struct, frozen=True, kw_only=True):
    """A checked value and its compact JSON text, which is what the database stores."""

    value: JSON
    text: str


def payload_of(request: Message, field: str, *, root: str = "", max_bytes: int = MAX_PAYLOAD_BYTES) -> Payload | None:
    """The payload of a request in `field` (Struct or Value) or `field_json`; None if neither is given.

    `root` names the message inside the request (`items[3]`). Raises `PayloadInvalid`, and FIELDS_EXCLUSIVE if both are given.
    """
    path = f"{root}.{field}" if root else field
    twin = f"{field}_json"
    given = request.HasField(field)
    if request.HasField(twin):
        if given:
            raise fields_exclusive(path, f"{path}_json")
        value = jsonvalue.parse(getattr(request, twin), root=f"{path}_json", max_bytes=max_bytes)
        text = jsonvalue.dumps(value)
        note_size(f"{path}_json", len(text))
        return Payload(value=value, text=text)
    if not given:
        return None
    value = from_struct(getattr(request, field), root=path)
    text = jsonvalue.dumps(value)
    if len(text) > max_bytes // 4 and (size := len(text.encode())) > max_bytes:
        raise jsonvalue.too_large(size, max_bytes, path)
    note_size(path, len(text))
    return Payload(value=value, text=text)


def warn_above(limit: int) -> None:
    """Log payloads of more than `limit` bytes from here on, as `DUCTOR_PAYLOAD_WARN_BYTES` says."""
    global _warn_bytes
    _warn_bytes = limit


def note_size(name: str, size: int) -> None:
    """Log a payload that came in and is allowed, though large enough to slow everything down (ruling L7)."""
    if size > _warn_bytes:
        _log.warning(
            "%s is %d bytes, which is allowed and slow: keep such data elsewhere and pass a reference", name, size
        )


def fill_payload(
    answer: Message, field: str, text: str | None, payload_format: int, *, max_bytes: int | None = None
) -> None:
    """Put a stored payload into `field` or `field_json` of an answer, as `payload_format` of the request says; None leaves both unset.

    A value that a Struct would round is given by the twin, whatever was asked for; so is one whose Struct would be more than `max_bytes` on the
    wire, where it can be five times its text. `text` is trusted: it came through a door once.
    """
    if text is None:
        return
    if payload_format != JSON_FORMAT:
        value = jsonvalue.parse(text, max_bytes=None)
        if max_bytes is None or len(text) <= max_bytes // _LARGEST_GROWTH or _size(value) <= max_bytes:
            target = getattr(answer, field)
            try:
                target.SetInParent()
                if isinstance(target, Struct):
                    _put_members(target, value)
                else:
                    _put(target, value)
                return
            except _Inexact:
                answer.ClearField(field)
    setattr(answer, f"{field}_json", text)


def from_struct(message: Value | Struct | ListValue, *, root: str = "") -> JSON:
    """The checked JSON value of a Struct, Value or ListValue: numbers without fraction become ints (L5), keys are sorted.

    Raises `PayloadInvalid` with the path.
    """
    try:
        if isinstance(message, Value):
            return _value(message, 0)
        if isinstance(message, Struct):
            return _members(message, 0)
        return _items(message, 0)
    except _Doubt:
        # The slow walk names the place and the rule; it judges exactly as the fast one.
        return jsonvalue.normalise(_bare(message, 0), root=root, struct=True)


def to_value(value: JSON) -> Value:
    """A checked JSON value as a Value. Raises `PayloadInvalid` (`integer_range`) where a double would round it."""
    message = Value()
    try:
        _put(message, value)
    except _Inexact:
        jsonvalue.normalise(_as_doubles(value), struct=True)
        raise
    return message


def to_struct(value: dict[str, JSON]) -> Struct:
    """A checked JSON object as a Struct. Raises as `to_value`."""
    message = Struct()
    try:
        _put_members(message, value)
    except _Inexact:
        jsonvalue.normalise(_as_doubles(value), struct=True)
        raise
    return message


class _Doubt(Exception):
    """The fast walk met something to refuse."""


class _Inexact(Exception):
    """A double cannot carry this integer for sure."""


def _value(message: Value, depth: int) -> JSON:
    kind = message.WhichOneof("kind")
    if kind == "string_value":
        text = message.string_value
        if "\0" in text:
            raise _Doubt
        return text
    if kind == "number_value":
        number = message.number_value
        if number.is_integer():
            if not -EXACT < number < EXACT:
                raise _Doubt
            return int(number)
        if number != number or number in (_INFINITE, -_INFINITE):
            raise _Doubt
        return number
    if kind == "bool_value":
        return message.bool_value
    if kind == "struct_value":
        return _members(message.struct_value, depth)
    if kind == "list_value":
        return _items(message.list_value, depth)
    return None


def _members(message: Struct, depth: int) -> dict[str, JSON]:
    if depth == MAX_DEPTH:
        raise _Doubt
    members = {}
    # A protobuf map has no order; sorted, the same Struct is the same text on every machine.
    for key, value in sorted(message.fields.items(), key=itemgetter(0)):
        if "\0" in key:
            raise _Doubt
        members[key] = _value(value, depth + 1)
    return members


def _items(message: ListValue, depth: int) -> list[JSON]:
    if depth == MAX_DEPTH:
        raise _Doubt
    return [_value(value, depth + 1) for value in message.values]


def _bare(message: Any, depth: int) -> Any:
    """The tree as it is, for the walk that finds the fault; one level beyond the limit is enough to find that one."""
    if isinstance(message, Value):
        kind = message.WhichOneof("kind")
        if kind in ("struct_value", "list_value"):
            return _bare(getattr(message, kind), depth)
        return None if kind in (None, "null_value") else getattr(message, kind)
    if depth > MAX_DEPTH:
        return None
    if isinstance(message, Struct):
        return {key: _bare(value, depth + 1) for key, value in message.fields.items()}
    return [_bare(value, depth + 1) for value in message.values]


def _put(message: Value, value: JSON) -> None:
    kind = type(value)
    if kind is str:
        message.string_value = value
    elif kind is bool:
        message.bool_value = value
    elif kind is int:
        if not -EXACT < value < EXACT:
            raise _Inexact
        message.number_value = value
    elif kind is float:
        message.number_value = value
    elif value is None:
        message.null_value = NULL_VALUE
    elif kind is dict:
        message.struct_value.SetInParent()
        _put_members(message.struct_value, value)
    else:
        message.list_value.SetInParent()
        values = message.list_value.values
        for item in value:
            _put(values.add(), item)


def _put_members(message: Struct, value: dict[str, JSON]) -> None:
    fields = message.fields
    for key, item in value.items():
        _put(fields[key], item)


def _size(value: JSON) -> int:
    """Bytes of a value as a Value on the wire, told five times faster than by making one."""
    kind = type(value)
    if kind is int or kind is float:
        return 9
    if kind is str:
        return _with_head(len(value.encode()))
    if kind is dict:
        entries = (_with_head(_with_head(len(k.encode())) + _with_head(_size(v))) for k, v in value.items())
        return _with_head(sum(entries))
    if kind is list:
        return _with_head(sum(_with_head(_size(item)) for item in value))
    return 2


def _with_head(size: int) -> int:
    """The size of a field of `size` bytes with its tag and length."""
    return size + (2 if size < 128 else 1 + (size.bit_length() + 6) // 7)


def _as_doubles(value: JSON) -> Any:
    if type(value) is dict:
        return {key: _as_doubles(item) for key, item in value.items()}
    if type(value) is list:
        return [_as_doubles(item) for item in value]
    return float(value) if type(value) is int else value
