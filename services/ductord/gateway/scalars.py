"""Scalars, enums, times and field masks from their JSON text or from a query parameter: what each field kind takes, by dialect.

A number is judged by its value: `5.0` is `5` (ruling L5). REST takes numbers only as numbers (YM-01); canonical proto JSON also takes them as
strings. A boolean is never a number, and an enum never wraps (AP-02). What a string may hold is judged by the service, the same on every door.
"""

import re
from collections.abc import Callable
from typing import Any, Final

import orjson
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.descriptor import FieldDescriptor as Kind

from ductord.gateway.faults import NOTHING, Reading
from ductord.rpc.vocabulary import MASK, Dialect, EnumWords, read_mask, read_time

Read = Callable[[bytes, str, Reading], Any]
"""`read(text, path, reading)`: the value, or `NOTHING` and a fault more."""
Parse = Callable[[Any], Any]
"""From a parsed JSON scalar to the value; `NOTHING` if it is none."""
ReadText = Callable[[str], Any]
"""From a query parameter to the value; `NOTHING` if it is none."""

_RANGES: Final = {
    Kind.CPPTYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    Kind.CPPTYPE_UINT32: (0, (1 << 32) - 1),
    Kind.CPPTYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    Kind.CPPTYPE_UINT64: (0, (1 << 64) - 1),
}
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,19})")
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_EXACT: Final = float(1 << 53)
_INFINITE: Final = float("inf")
_BOOLEANS: Final = {"true": True, "false": False}


def scalar(field: Kind, dialect: Dialect) -> tuple[Read, ReadText]:
    """How a field that is no message (or is a time or a field mask) is read. Raises TypeError for a kind that was not taught."""
    kind = field.cpp_type
    if field.message_type is not None and field.message_type.full_name == MASK:
        return _text(read_mask, "field names with commas between them"), read_mask
    if kind == Kind.CPPTYPE_MESSAGE:
        return _text(_time, "a time as 2026-07-11T11:10:00Z"), _time
    if field.enum_type is not None:
        return _enum(field.enum_type, dialect)
    if field.type == Kind.TYPE_STRING:
        return _text(str, "a string"), str
    if kind == Kind.CPPTYPE_BOOL:
        return _plain(_boolean, "true or false"), lambda text: _BOOLEANS.get(text, NOTHING)
    strings = dialect is Dialect.PROTO
    if kind in _RANGES:
        low, high = _RANGES[kind]
        return _plain(_integer(low, high, strings=strings), f"an integer from {low} to {high}"), _integer_text(
            low, high
        )
    if kind == Kind.CPPTYPE_DOUBLE:
        return _plain(_number(strings=strings), "a number"), _number_text
    raise TypeError(f"{field.full_name}: fields of this type are not spoken here yet")


def wrong(raw: bytes, path: str, wanted: str, reading: Reading) -> Any:
    """Report a value of the wrong kind, or out of its range."""
    got = kind_of(raw)
    told = got == wanted or (got == "a number" and wanted.startswith(("a number", "an integer")))
    return reading.invalid(path, f"must be {wanted}" if told else f"must be {wanted}, not {got}")


def kind_of(raw: bytes) -> str:
    """What a JSON text is, by its first character."""
    kinds = {b'"': "a string", b"{": "an object", b"[": "a list", b"t": "true", b"f": "false", b"n": "null"}
    return kinds.get(raw[:1], "a number")


def _text(parse: ReadText, wanted: str) -> Read:
    def read(raw: bytes, path: str, reading: Reading) -> Any:
        if raw[:1] != b'"':
            return wrong(raw, path, wanted, reading)
        try:
            value = parse(orjson.loads(raw))
        except orjson.JSONDecodeError:
            return reading.invalid(path, "holds text that is not Unicode")
        return reading.invalid(path, f"must be {wanted}") if value is NOTHING else value

    return read


def _plain(parse: Parse, wanted: str) -> Read:
    def read(raw: bytes, path: str, reading: Reading) -> Any:
        value = parse(_loaded(raw))
        return wrong(raw, path, wanted, reading) if value is NOTHING else value

    return read


def _loaded(raw: bytes) -> Any:
    """The scalar of a text; `NOTHING` for an object, a list or what orjson does not read."""
    if raw[:1] in b"{[":
        return NOTHING
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        return NOTHING


def _enum(descriptor: EnumDescriptor, dialect: Dialect) -> tuple[Read, ReadText]:
    words = EnumWords(descriptor, dialect)
    names, numbers = words.read, frozenset(words.short)

    def read(raw: bytes, path: str, reading: Reading) -> Any:
        word = _loaded(raw)
        number = names.get(word) if type(word) is str else word
        if type(number) is not int or number not in numbers:
            return reading.invalid(path, f"must be one of {words.choices()}")
        return number

    def text(word: str) -> Any:
        number = names.get(word)
        if number is None and _INTEGER.fullmatch(word):
            number = int(word)
        return number if number in numbers else NOTHING

    return read, text


def _time(text: str) -> Any:
    time = read_time(text)
    return NOTHING if time is None else time


def _boolean(value: Any) -> Any:
    return value if type(value) is bool else NOTHING


def _integer(low: int, high: int, *, strings: bool) -> Parse:
    def parse(value: Any) -> Any:
        kind = type(value)
        if kind is float:
            value = int(value) if abs(value) < _EXACT and value.is_integer() else NOTHING
        elif kind is str and strings and _INTEGER.fullmatch(value):
            value = int(value)
        return value if type(value) is int and low <= value <= high else NOTHING

    return parse


def _integer_text(low: int, high: int) -> ReadText:
    def parse(text: str) -> Any:
        value = int(text) if _INTEGER.fullmatch(text) else NOTHING
        return value if type(value) is int and low <= value <= high else NOTHING

    return parse


def _number(*, strings: bool) -> Parse:
    def parse(value: Any) -> Any:
        if type(value) is str and strings:
            return _number_text(value)
        return value if type(value) in (int, float) and abs(value) < _INFINITE else NOTHING

    return parse


def _number_text(text: str) -> Any:
    if len(text) > 400 or not _NUMBER.fullmatch(text):
        return NOTHING
    value = float(text)
    return value if abs(value) < _INFINITE else NOTHING
