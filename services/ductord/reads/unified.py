"""The unified timeline: a run's history with what came from outside woven in: each control and each signal where it was accepted and where it was settled,
each child run where it started and where it ended (C1, E1, F5).

Two sequences are merged by time, each in its own order, so that a clock that was set back loses nothing. A page token holds the place in both.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Any, Final

import asyncpg
import msgspec
import orjson

from ductor.workflow.v1 import run_pb2
from ductord.db.queries import Queries
from ductord.model.enums import OperationStatus, SignalStatus
from ductord.model.events import Event
from ductord.model.jsonvalue import dumps
from ductord.reads.steps import Nodes
from ductord.reads.timeline import BEGIN, Position, entry_of, events_after
from ductord.rpc.answers import timestamp
from ductord.rpc.paging import Key, Page
from ductord.rpc.payloads import fill_payload
from ductord.rpc.room import fitting

_CHUNK: Final = 100
"""Points read at a time."""
_q: Final = Queries("ductord.reads", "points.sql")


class _Phase(IntEnum):
    """A child ended, a signal and a control accepted, a control and a signal settled, a child started: in this order within one instant."""

    ENDED = -2
    TOLD = -1
    ASKED = 0
    JUDGED = 1
    TAKEN = 2
    BORN = 3


_Point = tuple[datetime | None, int, str]
"""Time, phase, request id."""
_NO_POINT: Final[_Point] = (None, _Phase.ENDED, "")


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where both sequences are."""

    event: Position = BEGIN
    point: _Point = _NO_POINT

    @property
    def key(self) -> tuple[Key, ...]:
        """As a page token holds it."""
        at, phase, request_id = self.point
        return *self.event, "" if at is None else at, phase, request_id


async def get_unified_timeline(
    db: asyncpg.Connection, run: Nodes, page: Page, payload_format: int, max_bytes: int
) -> tuple[Sequence[run_pb2.TimelineEntry], str]:
    """One page of events, controls, signals and children, oldest first, and the next page's token."""
    place = _place(page.after)
    events = events_after(db, run, place.event)
    points = _points_after(db, run, place.point)
    event, point = await anext(events, None), await anext(points, None)
    entries: list[tuple[tuple[Key, ...], run_pb2.TimelineEntry]] = []
    while (event is not None or point is not None) and len(entries) < page.fetch:
        if point is not None and (event is None or _before(point, event)):
            place = msgspec.structs.replace(place, point=(point["at"], point["phase"], point["request_id"]))
            entries.append((place.key, _entry(run, place.event[0], point, payload_format)))
            point = await anext(points, None)
        elif event is not None:
            position, at, fact = event
            place = msgspec.structs.replace(place, event=position)
            entries.append((place.key, entry_of(run, position, at, fact, payload_format)))
            event = await anext(events, None)
    shown, last = fitting(entries, page.size, max_bytes)
    return shown, "" if last is None else page.next_token(last)


def _before(point: asyncpg.Record, event: tuple[Position, datetime, Event]) -> bool:
    """Whether a point comes before an event. What a tick settled stands behind what the same tick recorded."""
    at: datetime = point["at"]
    return at < event[1] or (at == event[1] and point["phase"] < _Phase.JUDGED)


async def _points_after(db: asyncpg.Connection, run: Nodes, after: _Point) -> AsyncIterator[asyncpg.Record]:
    while True:
        rows = await db.fetch(_q["list_points"], run.tenant_id, run.run_id, *after, _CHUNK)
        for row in rows:
            yield row
        if len(rows) < _CHUNK:
            return
        after = (rows[-1]["at"], rows[-1]["phase"], rows[-1]["request_id"])


def _entry(run: Nodes, seq: int, row: asyncpg.Record, payload_format: int) -> run_pb2.TimelineEntry:
    entry = run_pb2.TimelineEntry(
        seq=seq,
        event_index=-1,
        event_time=timestamp(row["at"]),
        type=_type(row),
        step_ref=row["step_ref"],
        run_id=run.run_id,
    )
    if row["child_run_id"]:
        entry.run_id, entry.attempt = row["child_run_id"], row["attempt"]
        child = {"item_index": row["item_index"]} | _told(
            status=row["status"], code=row["code"], message=row["message"]
        )
        fill_payload(entry, "detail", dumps(child), payload_format)
        return entry
    detail: dict[str, Any] = {"verb": row["verb"], "request_id": row["request_id"]}
    match row["phase"]:
        case _Phase.TOLD:
            approver, status = row["approver_id"], row["case_status"]
            detail |= _told(actor=row["actor"], approver_id=approver, comment=row["reason"], case_status=status)
        case _Phase.ASKED:
            asked = orjson.loads(row["asked"])
            detail |= _told(actor=row["actor"], reason=row["reason"], asked=asked, overridden=row["overridden"])
        case _:
            detail |= _told(code=row["code"], message=row["message"], result=orjson.loads(row["result"]))
    fill_payload(entry, "detail", dumps(detail), payload_format)
    return entry


def _type(row: asyncpg.Record) -> str:
    match row["phase"]:
        case _Phase.TOLD:
            return "signal_accepted"
        case _Phase.ASKED:
            return "control_accepted"
        case _Phase.JUDGED:
            return f"control_{OperationStatus(row['status'])}"
        case _Phase.ENDED:
            return "child_ended"
        case _Phase.BORN:
            return "child_started"
        case _:
            return f"signal_{SignalStatus(row['status'])}"


def _told(**facts: Any) -> dict[str, Any]:
    """The facts that say something."""
    return {name: value for name, value in facts.items() if value}


def _place(after: tuple[Key, ...] | None) -> _Place:
    if after is None:
        return _Place()
    seq, index, at, phase, request_id = after
    point = (at if isinstance(at, datetime) else None, int(str(phase)), str(request_id))
    return _Place(event=(int(str(seq)), int(str(index))), point=point)
