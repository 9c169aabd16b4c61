"""Words, times and numbers for people, and answers as JSON for `--json`, exactly as the REST door writes them."""

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from ductord.cli.ending import MISUSED, CommandFailed
from ductord.rpc.vocabulary import Dialect
from ductord.rpc.writing import Writer

_rest: Final = Writer(Dialect.REST)
_LENGTH: Final = re.compile(r"([1-9]\d{0,8})([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def plain(message: Message) -> Any:
    """`message` as a JSON tree."""
    return json.loads(_rest.text(message))


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


def time_of(text: str, option: str) -> Timestamp:
    """`90s`, `15m`, `2h`, `7d` before now, or an RFC 3339 time. Raises `CommandFailed`."""
    return _stamp(text, option, -1)


def time_after(text: str, option: str) -> Timestamp:
    """`90s`, `15m`, `2h`, `7d` from now, or an RFC 3339 time. Raises `CommandFailed`."""
    return _stamp(text, option, 1)


def _stamp(text: str, option: str, direction: int) -> Timestamp:
    stamp = Timestamp()
    try:
        stamp.FromDatetime(_when(text, direction))
    except (ValueError, OverflowError):
        message = f"{option} {text!r} is neither a length such as 15m, 2h or 7d nor a time such as 2026-01-31T12:00:00Z"
        raise CommandFailed(message, code=MISUSED) from None
    return stamp


def _when(text: str, direction: int) -> datetime:
    length = _LENGTH.fullmatch(text)
    if length is None:
        return datetime.fromisoformat(text).astimezone(UTC)
    return datetime.now(UTC) + direction * timedelta(**{_UNITS[length[2]]: int(length[1])})
