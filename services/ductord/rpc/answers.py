"""What every answer carries besides its data, and the times in it."""

import datetime
from typing import Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from ductor.workflow.v1.common_pb2 import ResponseMetadata
from ductord.model.errors import Refusal
from ductord.rpc.caller import caller
from ductord.rpc.errors import field_invalid

_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_SECOND = datetime.timedelta(seconds=1)
_ANSWER_S: Final = 0.2
"""Kept of a caller's own deadline, so that it hears what is known by then and not only that time is up."""
_MICROSECOND = datetime.timedelta(microseconds=1)


def within(wait_s: float, context: Any) -> float:
    """Seconds that a call may wait that asked for `wait_s` and whose caller may have a deadline of its own."""
    left = context.time_remaining()
    return wait_s if left is None else max(min(wait_s, left - _ANSWER_S), 0.0)


def response_metadata(fetched_at: datetime.datetime) -> ResponseMetadata:
    """The `metadata` of an answer to the call at hand. `fetched_at` is the database's time, never the process's."""
    call = caller()
    return ResponseMetadata(trace_id=call.trace_id, request_id=call.request_id, fetched_at=timestamp(fetched_at))


def timestamp(at: datetime.datetime) -> Timestamp:
    """A time with zone as a Timestamp, to the microsecond."""
    seconds, rest = divmod(at - _EPOCH, _SECOND)
    return Timestamp(seconds=seconds, nanos=rest // _MICROSECOND * 1000)


def timestamp_or_none(at: datetime.datetime | None) -> Timestamp | None:
    """As `timestamp`; None leaves the field of a message unset."""
    return None if at is None else timestamp(at)


def time_of(message: Timestamp, field: str) -> datetime.datetime:
    """A Timestamp of a request as a time in UTC, cut to the microsecond. Raises FIELD_INVALID for what is outside of years 1 to 9999."""
    if not 0 <= message.nanos < 1_000_000_000:
        raise _no_time(field)
    try:
        return _EPOCH + datetime.timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except OverflowError:
        raise _no_time(field) from None


def _no_time(field: str) -> Refusal:
    return field_invalid(field, "is not a time between the years 1 and 9999")
