"""The history of a run, event by event: GetRunTimeline. What was decided, in the order in which it was decided; payloads are referred to, never repeated.

An event's own fields are its detail. Edges are stored by index, as the engine has them; here they get the names of the steps that they join.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Final

import asyncpg
import msgspec

from ductor.workflow.v1 import run_pb2
from ductord.db.queries import Queries
from ductord.model import events as history
from ductord.model.enums import EdgeState
from ductord.model.events import CompensationPlanned, EdgesResolved, Event, NodeParked, WaitChanged
from ductord.model.jsonvalue import dumps
from ductord.model.run import Inverse
from ductord.reads.steps import Nodes
from ductord.reads.versions import Outline
from ductord.rpc.answers import timestamp
from ductord.rpc.paging import Page
from ductord.rpc.payloads import fill_payload
from ductord.rpc.room import fitting

_CHUNK: Final = 100
"""Transitions read at a time: one can hold hundreds of events."""
_EDGE_STATES: Final = {
    EdgeState.OPEN: "open",
    EdgeState.TAKEN: "taken",
    EdgeState.DEAD_SKIP: "dead_skip",
    EdgeState.DEAD_FAILURE: "dead_failure",
}
_q: Final = Queries("ductord.reads")

Position = tuple[int, int]
"""Transition, event in it."""
BEGIN: Final = (0, -1)


async def get_timeline(
    db: asyncpg.Connection, run: Nodes, page: Page, payload_format: int, max_bytes: int
) -> tuple[Sequence[run_pb2.TimelineEntry], str]:
    """One page of events, oldest first, and the next page's token."""
    after = BEGIN if page.after is None else (int(str(page.after[0])), int(str(page.after[1])))
    entries = []
    async for position, at, event in events_after(db, run, after):
        entries.append((position, entry_of(run, position, at, event, payload_format)))
        if len(entries) == page.fetch:
            break
    shown, last = fitting(entries, page.size, max_bytes)
    return shown, "" if last is None else page.next_token(last)


async def events_after(
    db: asyncpg.Connection, run: Nodes, after: Position
) -> AsyncIterator[tuple[Position, datetime, Event]]:
    """Every event after a position, with its transition's time."""
    seq = after[0]
    while True:
        rows = await db.fetch(_q["list_transitions"], run.tenant_id, run.run_id, seq, _CHUNK)
        for row in rows:
            for index, event in enumerate(history.decode(row["events"])):
                if (row["seq"], index) > after:
                    yield (row["seq"], index), row["at"], event
        if len(rows) < _CHUNK:
            return
        seq = rows[-1]["seq"] + 1


def entry_of(run: Nodes, position: Position, at: datetime, event: Event, payload_format: int) -> run_pb2.TimelineEntry:
    """An event as the contract shows it."""
    entry = run_pb2.TimelineEntry(seq=position[0], event_index=position[1], event_time=timestamp(at), run_id=run.run_id)
    _describe(entry, event, run.outline, payload_format)
    return entry


def _describe(entry: run_pb2.TimelineEntry, event: Event, outline: Outline, payload_format: int) -> None:
    """Type, step and attempt have fields of their own; the rest is the detail."""
    detail: dict[str, Any] = msgspec.to_builtins(event)
    entry.type = detail.pop("type")
    entry.step_ref = detail.pop("step_ref", "")
    attempt = detail.pop("attempt", None)
    if attempt is not None:
        entry.attempt = attempt
    match event:
        case EdgesResolved():
            detail["edges"] = [_edge(outline, index, state) for index, state in event.edges]
        case NodeParked(step_ref=ref) | WaitChanged(step_ref=ref):
            index = outline.index(ref)
            if index is not None and (condition := outline.steps[index].condition):
                detail["condition"] = condition
        case CompensationPlanned():
            detail["entries"] = [_inverse(entry) for entry in event.entries]
        case _:
            pass
    fill_payload(entry, "detail", dumps(detail), payload_format)


def _edge(outline: Outline, index: int, state: EdgeState) -> dict[str, str]:
    edge = outline.edges[index]
    return {
        "source_ref": outline.steps[edge.source].ref,
        "target_ref": outline.steps[edge.target].ref,
        "type": edge.type,
        "state": _EDGE_STATES[state],
    }


def _inverse(inverse: Inverse) -> dict[str, Any]:
    """An entry of the ledger as it was planned, with the fields that an event leaves out because they have their default."""
    planned: dict[str, Any] = {"number": inverse.number, "status": inverse.status, **msgspec.to_builtins(inverse)}
    return planned
