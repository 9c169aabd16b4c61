"""From the evaluator's value to JSON.

A value can share its parts and be endless once it is written out (`x.map(i, x)`), so where an expression may share, it is taken apart level by
level and counted. Times and durations become their proto JSON text, bytes base64.
"""

import base64
import datetime
from typing import Any, Final

from ductord.model import jsonvalue
from ductord.model.errors import PayloadInvalid
from ductord.model.jsonvalue import JSON

MAX_RESULT_BYTES: Final = 2 << 20
"""Ruling L7: of a gathered output and a run context; what is stored elsewhere has its own limit."""


class ResultTooLarge(Exception):
    """The value is larger than `MAX_RESULT_BYTES`."""


def json_of(value: Any, *, may_share: bool) -> JSON:
    """The JSON of an evaluator's value that is no error. Raises `PayloadInvalid` for one that JSON cannot hold, and `ResultTooLarge`."""
    plain = _taken_apart(value, [MAX_RESULT_BYTES]) if may_share else value.plain_value()
    try:
        return jsonvalue.normalise(plain)
    except PayloadInvalid:
        return jsonvalue.normalise(_as_json(plain))


def _taken_apart(value: Any, room: list[int]) -> Any:
    """The plain value, unless its text were certainly longer than the room that is left."""
    level = value.value()
    room[0] -= len(level) + 1 if isinstance(level, str) else 1
    if room[0] < 0:
        raise ResultTooLarge(f"its value is larger than {MAX_RESULT_BYTES:,} bytes")
    if isinstance(level, list):
        return [_taken_apart(item, room) for item in level]
    if isinstance(level, dict):
        return {key: _taken_apart(item, room) for key, item in level.items()}
    return level


def _as_json(value: Any) -> Any:
    """CEL's own values inside a result as JSON, by the proto JSON mapping."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, datetime.timedelta):
        if value < datetime.timedelta(0):
            return f"-{_as_json(-value)}"
        seconds, micros = divmod(value // datetime.timedelta(microseconds=1), 1_000_000)
        return f"{seconds}.{micros:06d}".rstrip("0").rstrip(".") + "s"
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: _as_json(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    return value
