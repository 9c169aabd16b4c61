"""How the words of the contract are spelt in JSON: the two dialects, the names of enum values, times.

REST is what the spec shows: snake_case, short lower-case enum values, times with microseconds. PROTO is canonical proto JSON, which Connect
speaks: lowerCamelCase, full enum names, times as protobuf writes them. Nothing here knows a message.
"""

import re
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor

TIME: Final = "google.protobuf.Timestamp"
STRUCT: Final = "google.protobuf.Struct"
VALUE: Final = "google.protobuf.Value"
MASK: Final = "google.protobuf.FieldMask"
TWIN: Final = "_json"

_EPOCH: Final = datetime(1970, 1, 1)
_CAPITAL: Final = re.compile(r"[A-Z]")
_UNDERSCORED: Final = re.compile(r"_([a-z0-9])")
_RFC3339: Final = re.compile(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-]\d\d:\d\d)")


class Dialect(Enum):
    """A way to spell messages as JSON."""

    REST = "rest"
    PROTO = "proto"


class EnumWords:
    """The spellings of one enum in one dialect. Both read full names and numbers of known values; REST also the short names, which it writes."""

    def __init__(self, descriptor: EnumDescriptor, dialect: Dialect) -> None:
        prefix = descriptor.values_by_number[0].name.removesuffix("UNSPECIFIED")
        self.short = {value.number: value.name.removeprefix(prefix).lower() for value in descriptor.values}
        self.written: dict[int, str] = {value.number: value.name for value in descriptor.values}
        self.read: dict[str, int] = {value.name: value.number for value in descriptor.values}
        if dialect is Dialect.REST:
            self.read |= {name: number for number, name in self.short.items()}
            self.written = self.short

    def write(self, number: int) -> str | int:
        """The word, or the number itself of a value that a newer service knows."""
        return self.written.get(number, number)

    def choices(self) -> str:
        """The words in the dialect's own spelling, for an error."""
        return ", ".join(word for number, word in self.written.items() if number)


def twin_of(payload: FieldDescriptor) -> FieldDescriptor:
    """The `…_json` field beside a Struct or Value. Raises TypeError, at start, for a payload that breaks the contract's rule by having none."""
    message = payload.containing_type
    twin = message.fields_by_name.get(f"{payload.name}{TWIN}") if message is not None else None
    if twin is None or twin.type != FieldDescriptor.TYPE_STRING or payload.is_repeated:
        raise TypeError(f"{payload.full_name}: a payload has a `{payload.name}{TWIN}` twin and is not repeated")
    return twin


def payload_of(twin: FieldDescriptor) -> FieldDescriptor | None:
    """The Struct or Value that a `…_json` field is the twin of; None for any other field."""
    message = twin.containing_type
    if message is None or not twin.name.endswith(TWIN):
        return None
    payload = message.fields_by_name.get(twin.name.removesuffix(TWIN))
    known = (
        payload is not None and payload.message_type is not None and payload.message_type.full_name in (STRUCT, VALUE)
    )
    return payload if known else None


def read_time(text: str) -> dict[str, int] | None:
    """`{seconds, nanos}` of an RFC 3339 time; None if it is none, or outside the years 1 to 9999."""
    match = _RFC3339.fullmatch(text)
    if match is None:
        return None
    day, fraction, zone = match.groups()
    try:
        local = datetime.fromisoformat(day)
        shift = _offset(zone)
        moment = local - shift
    except (ValueError, OverflowError):
        return None
    since = moment - _EPOCH
    return {"seconds": since.days * 86_400 + since.seconds, "nanos": int((fraction or "").ljust(9, "0"))}


def read_mask(text: str) -> dict[str, list[str]]:
    """`{paths}` of a field mask, which JSON spells as one text, in either spelling of names; the paths as the contract has them."""
    paths = [_CAPITAL.sub(lambda m: f"_{m.group().lower()}", path.strip()) for path in text.split(",")]
    return {"paths": [path for path in paths if path]}


def write_mask(mask: Any, dialect: Dialect) -> str:
    """The paths of a field mask as one text."""
    if dialect is Dialect.REST:
        return ",".join(mask.paths)
    return ",".join(_UNDERSCORED.sub(lambda m: m[1].upper(), path) for path in mask.paths)


def write_time(time: Any) -> str:
    """A Timestamp with exactly six digits of a second, in UTC; finer ones are cut."""
    moment = _EPOCH + timedelta(seconds=time.seconds, microseconds=time.nanos // 1000)
    return moment.isoformat(timespec="microseconds") + "Z"


def _offset(zone: str) -> timedelta:
    if zone in "Zz":
        return timedelta()
    hours, minutes = int(zone[1:3]), int(zone[4:6])
    if hours > 23 or minutes > 59:
        raise ValueError(zone)
    shift = timedelta(hours=hours, minutes=minutes)
    return -shift if zone[0] == "-" else shift
