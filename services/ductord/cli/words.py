"""Answers as JSON for `--json`, in the spelling of the REST door: snake_case, short enum words, times in UTC with microseconds.

A payload is taken from its exact `_json` twin and shown in the place of the field itself, so that a number is never rounded. As there, an absent message or
payload is null and an absent optional scalar is left out.
"""

import json
from datetime import UTC
from typing import Any

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from ductord.cli.ending import MISUSED, CommandFailed

TIMESTAMP = "google.protobuf.Timestamp"
FREE = ("google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue")
TWIN = "_json"


def plain(message: Message) -> Any:
    """`message` as a JSON tree."""
    name = message.DESCRIPTOR.full_name
    if name == TIMESTAMP:
        return moment(message)
    if name in FREE:
        return MessageToDict(message)
    tree: dict[str, Any] = {}
    fields = message.DESCRIPTOR.fields_by_name
    for field in message.DESCRIPTOR.fields:
        base = field.name.removesuffix(TWIN)
        if base != field.name and base in fields:
            if message.HasField(field.name):
                tree[base] = json.loads(getattr(message, field.name))
        elif field.message_type is not None or not field.has_presence or message.HasField(field.name):
            tree[field.name] = _field(message, field)
    return tree


def word(descriptor: Any, number: int) -> str:
    """The short lower-case word of an enum value (`unspecified` for none); the number of one that a newer server knows."""
    value = descriptor.values_by_number.get(number)
    return str(number) if value is None else str(value.name).removeprefix(prefix(descriptor)).lower()


def prefix(descriptor: Any) -> str:
    """What every value of an enum begins with: `RUN_STATUS_`."""
    return str(descriptor.values_by_number[0].name).removesuffix("UNSPECIFIED")


def number(descriptor: Any, text: str, option: str) -> int:
    """The value behind a short word that a person typed as `option`; 0 for none. Raises `CommandFailed` listing the words."""
    if not text:
        return 0
    found = descriptor.values_by_name.get(prefix(descriptor) + text.upper())
    if found is None or found.number == 0:
        words = ", ".join(word(descriptor, value) for value in descriptor.values_by_number if value)
        raise CommandFailed(f"{option} {text!r} is not one of: {words}", code=MISUSED)
    return int(found.number)


def pair(text: str, option: str) -> tuple[str, str]:
    """`key:id` as its two parts; two empty ones for none. Raises `CommandFailed`."""
    key, colon, identity = text.partition(":")
    if text and not (key and colon and identity):
        raise CommandFailed(
            f"{option} is written as {'TYPE' if option == '--subject' else 'KEY'}:ID, not {text!r}", code=MISUSED
        )
    return key, identity


def span(message: Message, begin: str = "start_time", end: str = "end_time", now: Any = None) -> str:
    """How long something took, or takes until `now`; empty where it has not begun."""
    if not message.HasField(begin) or not (message.HasField(end) or now is not None):
        return ""
    last = getattr(message, end) if message.HasField(end) else now
    return seconds((last.ToDatetime() - getattr(message, begin).ToDatetime()).total_seconds())


def seconds(count: float) -> str:
    """A length of time for people."""
    if count < 1:
        return f"{max(count, 0) * 1000:.0f} ms"
    if count < 120:
        return f"{count:.1f} s"
    if count < 7200:
        return f"{count / 60:.0f} min"
    return f"{count / 3600:.1f} h" if count < 172_800 else f"{count / 86_400:.0f} d"


def local(timestamp: Any) -> str:
    """A time for people: their own clock's, to the second."""
    return str(timestamp.ToDatetime(tzinfo=UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S"))


def moment(timestamp: Any) -> str:
    """RFC 3339, UTC, microseconds."""
    return str(timestamp.ToDatetime(tzinfo=UTC).isoformat(timespec="microseconds")).replace("+00:00", "Z")


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {key: _scalar(field.message_type.fields_by_name["value"], item) for key, item in value.items()}
    if field.is_repeated:
        return [_scalar(field, item) for item in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _scalar(field, value)


def _scalar(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return plain(value)
    if field.enum_type is not None:
        return word(field.enum_type, value)
    return value
