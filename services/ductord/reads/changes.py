"""One message of WatchRun: where a run stands, and what of it has changed since a transition.

A message tells of all transitions between two, and shows the nodes that they name as they stand after the last of them; so whoever has applied every message
knows the run as it is, however many transitions came together. Without a transition to go on after, or with too many since, it tells everything.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import asyncpg
import msgspec

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.db.queries import Queries
from ductord.model import events as history
from ductord.model.enums import CompensationStatus, NodeStatus, RunStatus
from ductord.model.events import Event, RunForked, RunRedriven
from ductord.model.fan_events import ChildFailed, ChildrenCancelled, ChildrenSucceeded
from ductord.reads.runs import leaders_of, nodes_of
from ductord.reads.steps import Nodes, states
from ductord.reads.versions import Outlines
from ductord.rpc.answers import response_metadata, timestamp
from ductord.rpc.room import fitting
from ductord.rpc.runs import fault_message, run_not_found, summary
from ductord.rpc.words import NODE_STATUS

MAX_TRANSITIONS: Final = 500
"""So many more, and the whole state is told instead."""
MAX_CHILDREN: Final = 100
_q: Final = Queries("ductord.reads", "watch.sql")
_now: Final = Queries("ductord.reads")


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """What some transitions say. `refs`: the steps that they name; None: any may have changed."""

    refs: frozenset[str] | None
    children: Sequence[api.ChildEnd] = ()
    ended: int = 0


async def message_after(
    db: asyncpg.Connection, outlines: Outlines, tenant_id: str, run_id: str, after: int | None, max_bytes: int
) -> api.WatchRunResponse | None:
    """What is to be told of a run after `after` transitions; None: nothing yet. `after` None: everything. Raises RUN_NOT_FOUND."""
    now = await db.fetchval(_now["now"])
    row = await db.fetchrow(_q["watch_run"], tenant_id, run_id)
    if row is None:
        raise run_not_found()
    seq: int = row["record_version"]
    over = RunStatus(row["status"]).terminal and row["compensation_status"] != CompensationStatus.RUNNING
    if after is not None and seq <= after and not over:
        return None
    told = await _told(db, tenant_id, run_id, after, seq)
    outline = await outlines.outline(db, tenant_id, row["version_id"])
    nodes = nodes_of(row["node_states"])
    leaders = await leaders_of(db, tenant_id, nodes.values())
    run = Nodes(tenant_id=tenant_id, run_id=run_id, now=now, outline=outline, nodes=nodes, leaders=leaders)
    message = api.WatchRunResponse(
        kind=api.WATCH_KIND_STATE if told.refs is None else api.WATCH_KIND_CHANGE,
        run_id=run_id,
        first_seq=0 if told.refs is None or after is None else min(after + 1, seq),
        seq=seq,
        event_time=timestamp(row["update_time"]),
        summary=summary(row),
        children=told.children,
        children_ended=told.ended,
        ended=over,
        metadata=response_metadata(now),
    )
    if row["error_code"]:
        message.error.CopyFrom(common_pb2.Fault(code=row["error_code"], message=row["error_message"]))
    steps = [step for step in outline.steps if told.refs is None or step.ref in told.refs]
    found = await states(db, run, steps)
    shown, _ = fitting(((None, state) for state in found), len(found), max_bytes - message.ByteSize())
    message.nodes.extend(shown)
    message.nodes_truncated = len(shown) < len(found)
    return message


async def _told(db: asyncpg.Connection, tenant_id: str, run_id: str, after: int | None, seq: int) -> _Told:
    if after is None or seq - after > MAX_TRANSITIONS:
        return _Told(refs=None)
    rows = await db.fetch(_q["transitions_between"], tenant_id, run_id, after, seq, MAX_TRANSITIONS)
    try:
        events = [event for row in rows for event in history.decode(row["events"])]
    except msgspec.ValidationError:  # of a newer release: what they name is not known, where the run stands is
        return _Told(refs=None)
    ends = list(_ends(events))
    return _Told(refs=named(events), children=ends[:MAX_CHILDREN], ended=len(ends))


def named(events: Sequence[Event]) -> frozenset[str] | None:
    """The steps whose nodes these events may have changed; None: they do not say which."""
    if any(isinstance(event, RunRedriven | RunForked) for event in events):
        return None
    return frozenset(ref for event in events if (ref := getattr(event, "step_ref", "")))


def _ends(events: Iterable[Event]) -> Iterator[api.ChildEnd]:
    for event in events:
        match event:
            case ChildrenSucceeded():
                yield from _many(event.step_ref, event.children, NodeStatus.SUCCEEDED)
            case ChildrenCancelled():
                yield from _many(event.step_ref, event.children, NodeStatus.CANCELLED)
            case ChildFailed():
                yield api.ChildEnd(
                    step_ref=event.step_ref,
                    item_index=event.item_index,
                    status=run_pb2.NODE_STATUS_FAILED,
                    run_id=event.run_id,
                    error=fault_message(event.fault),
                )
            case _:
                pass


def _many(ref: str, children: Iterable[tuple[int, int]], status: NodeStatus) -> Iterator[api.ChildEnd]:
    for index, _ in children:
        yield api.ChildEnd(step_ref=ref, item_index=index, status=NODE_STATUS[status])
