"""The careful half of `jsonvalue`: the parse that misses nothing, and the one walk that can name the place of a fault.

Callers use `jsonvalue`; this is its second gear, reached when orjson's fast parse leaves a doubt and for values that never were text. It
must judge exactly as the fast path does: the tests hold the two together.
"""

import json
import re
from decimal import Decimal
from typing import Any, Final, TypeAlias

from ductord.model.errors import PayloadInvalid

JSON: TypeAlias = Any
"""A checked JSON value: `None | bool | int | float | str | list[JSON] | dict[str, JSON]`."""

MAX_DEPTH: Final = 32
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
EXACT: Final = 1 << 53
"""Every double of this magnitude and more is integral, and may be the rounding of another integer."""

_UNBOUNDED: Final = 1 << 62
_INFINITE: Final = (float("inf"), float("-inf"))
_OUT_OF_RANGE: Final = "is an integer outside the 64-bit range; send it as a string"
_ROUNDED: Final = "is an integer of 2^53 or more, which a Struct rounds; send the field's `_json` twin or a string"
_NOT_FINITE: Final = "is NaN or infinite, which JSON does not have"

_PATH_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_Path = tuple[Any, str | int] | None
"""Where a value sits: `(path of the container, key or index)`; formatted only for an error."""


def parse_carefully(data: bytes, root: str) -> Any:
    """The tree of a text with `_Refused` and `_Twice` where `checked` has to object. Raises `PayloadInvalid` if it is not JSON at all."""
    try:
        return _decoder.decode(data.decode())
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise PayloadInvalid("not_json", root, at(root, f"is not JSON: {error.msg} at {where}")) from None
    except UnicodeDecodeError as error:
        raise PayloadInvalid("not_json", root, at(root, f"is not UTF-8 at byte {error.start}")) from None
    except RecursionError:
        raise PayloadInvalid("too_deep", root, at(root, f"is nested more than {MAX_DEPTH} deep")) from None


def checked(value: Any, root: str, *, struct: bool = False, max_bytes: int = _UNBOUNDED) -> JSON:
    """The checked copy of any value. Recurses no deeper than `MAX_DEPTH`. Raises `PayloadInvalid` with the path.

    `max_bytes` ends the walk over a value whose text is certainly longer: one that shares its parts can be small in memory and endless as text.
    """
    return _Walk(root, struct, max_bytes).value(value, 0, None, None)


def too_large(size: str, max_bytes: int, root: str) -> PayloadInvalid:
    """The refusal of a payload over its limit (ruling L7); `size` says how large it is."""
    return PayloadInvalid(
        "too_large", root, at(root, f"is {size} bytes, the limit is {max_bytes:,}"), limit_bytes=max_bytes
    )


def at(path: str, message: str) -> str:
    """`message` about the value at `path`."""
    return f"{path or 'the value'} {message}"


class _Refused:
    """Stands in a carefully parsed tree for something refused, until the walk knows its path."""

    __slots__ = ("message", "reason")

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message


class _Twice(dict[str, Any]):
    """An object whose text named `key` twice."""

    __slots__ = ("key",)

    key: str


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) == len(pairs):
        return members
    twice = _Twice(members)
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            twice.key = key
            break
        seen.add(key)
    return twice


def integer_of(literal: str, *, base: int = 10) -> int:
    """The int of an integer literal. Raises `PayloadInvalid` beyond 64 bits (ruling L5)."""
    digits = literal.lstrip("+-").lstrip("0")
    value = int(literal, base) if len(digits) <= 64 else 1 << 64  # int() of a long literal is quadratic
    if not INT64_MIN <= value <= INT64_MAX:
        raise PayloadInvalid("integer_range", "", at("", _OUT_OF_RANGE))
    return value


def number_of(literal: str) -> int | float:
    """The number of a literal with fraction or exponent, exact when it is integral. Raises `PayloadInvalid` (ruling L5)."""
    value = float(literal)
    if value in _INFINITE:
        raise PayloadInvalid("nan", "", at("", "is a number beyond what a double holds"))
    if -EXACT < value < EXACT:
        return int(value) if value.is_integer() else value
    # The double may have swallowed digits of an integral literal; Decimal keeps them. Bounded first, since int(Decimal("1e9999")) is not.
    exact = Decimal(literal) if abs(value) <= float(1 << 64) else Decimal(1 << 64)
    integer = int(exact)
    if exact != integer:
        integer = int(value)
    if not INT64_MIN <= integer <= INT64_MAX:
        raise PayloadInvalid("integer_range", "", at("", _OUT_OF_RANGE))
    return integer


def _integer(literal: str) -> Any:
    try:
        return integer_of(literal)
    except PayloadInvalid as error:
        return _Refused(error.reason, _OUT_OF_RANGE)


def _number(literal: str) -> Any:
    try:
        return number_of(literal)
    except PayloadInvalid as error:
        return _Refused(error.reason, error.message.removeprefix("the value "))


def _constant(literal: str) -> _Refused:
    return _Refused("nan", f"is {literal}, which JSON does not have")


_decoder = json.JSONDecoder(
    object_pairs_hook=_members, parse_int=_integer, parse_float=_number, parse_constant=_constant, strict=True
)


class _Walk:
    """One checking walk. `parent` and `key` say where the value at hand sits; paths are tuples until an error formats one."""

    __slots__ = ("_max_bytes", "_room", "_root", "_struct")

    def __init__(self, root: str, struct: bool, max_bytes: int) -> None:
        self._root = root
        self._struct = struct
        self._max_bytes = max_bytes
        self._room = max_bytes

    def value(self, value: Any, depth: int, parent: _Path, key: str | int | None) -> JSON:
        kind = type(value)
        self._room -= (
            1  # every value takes a character at least, with its separator two; what is cut short here is far too large
        )
        if self._room < 0:
            raise too_large(f"more than {self._max_bytes:,}", self._max_bytes, self._root)
        if kind is str:
            return self._text(value, parent, key)
        if value is None or kind is bool:
            return value
        if kind is int:
            return self._integer(value, parent, key)
        if kind is float:
            return self._float(value, parent, key)
        if isinstance(value, dict | list | tuple):
            path = None if key is None else (parent, key)
            if depth == MAX_DEPTH:
                raise self._refused("too_deep", f"is nested more than {MAX_DEPTH} deep", path, None)
            if isinstance(value, dict):
                return self._object(value, depth + 1, path)
            return [self.value(item, depth + 1, path, index) for index, item in enumerate(value)]
        return self._other(value, parent, key)

    def _object(self, members: dict[Any, Any], depth: int, path: _Path) -> JSON:
        if type(members) is _Twice:
            raise self._refused("duplicate_key", "is a key that its object names twice", path, members.key)
        copy: dict[str, JSON] = {}
        for key, item in members.items():
            if not isinstance(key, str):
                message = f"has a key that is a {type(key).__name__}; keys are strings"
                raise self._refused("not_json", message, path, None)
            fault = _text_fault(key)
            if fault is not None:
                raise self._refused(fault[0], f"has a key that {fault[1]}", path, key)
            self._room -= len(key)
            copy[key] = self.value(item, depth, path, key)
        return copy

    def _text(self, text: str, parent: _Path, key: str | int | None) -> str:
        self._room -= len(text)
        fault = _text_fault(text)
        if fault is not None:
            raise self._refused(*fault, parent, key)
        return text

    def _integer(self, value: int, parent: _Path, key: str | int | None) -> int:
        if not INT64_MIN <= value <= INT64_MAX:
            raise self._refused("integer_range", _OUT_OF_RANGE, parent, key)
        return value

    def _float(self, value: float, parent: _Path, key: str | int | None) -> int | float:
        if value != value or value in _INFINITE:
            raise self._refused("nan", _NOT_FINITE, parent, key)
        if not value.is_integer():
            return value
        if self._struct and not -EXACT < value < EXACT:
            raise self._refused("integer_range", _ROUNDED, parent, key)
        return self._integer(int(value), parent, key)

    def _other(self, value: Any, parent: _Path, key: str | int | None) -> JSON:
        """Subclasses of the JSON types (a StrEnum) as what they are, and everything that is refused."""
        if isinstance(value, str):
            return self._text(str.__str__(value), parent, key)
        if isinstance(value, int):
            return self._integer(int(value), parent, key)
        if isinstance(value, float):
            return self._float(float(value), parent, key)
        if isinstance(value, _Refused):
            raise self._refused(value.reason, value.message, parent, key)
        raise self._refused("not_json", f"is a {type(value).__name__}, which JSON does not have", parent, key)

    def _refused(self, reason: str, message: str, parent: _Path, key: str | int | None) -> PayloadInvalid:
        path = _written(parent if key is None else (parent, key), self._root)
        return PayloadInvalid(reason, path, at(path, message))


def _text_fault(text: str) -> tuple[str, str] | None:
    if "\0" in text:
        return "nul", "holds a NUL character"
    if not text.isascii() and _SURROGATE.search(text):
        return "surrogate", "holds a lone surrogate"
    return None


def _written(path: _Path, root: str) -> str:
    """`input.items[3].name`; a key that is no plain name is quoted, cut and escaped: `input["k\\u0000"]`."""
    parts: list[str] = []
    while path is not None:
        path, key = path
        if isinstance(key, int):
            parts.append(f"[{key}]")
        elif _PATH_NAME.fullmatch(key):
            parts.append(f".{key}")
        else:
            parts.append(f"[{json.dumps(key[:64], ensure_ascii=bool(_SURROGATE.search(key)))}]")
    return (root + "".join(reversed(parts))).removeprefix(".")
