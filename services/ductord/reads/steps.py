"""The nodes of a run with their payloads: ListRunSteps in graph order, and GetRunStep with input and attempts.

Outputs are read where they live, in their attempts' rows; their sizes are known beforehand, so a page that would be too large ends early (PL-06).
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

import asyncpg
import msgspec

from ductor.workflow.v1 import run_pb2
from ductord.db.queries import Queries
from ductord.model.enums import NodeStatus, StepType
from ductord.model.run import Node
from ductord.reads.attempts import latest
from ductord.reads.runs import PENDING, leaders_of, load_outputs, nodes_of, size
from ductord.reads.versions import Outline, Outlines, Step
from ductord.rpc.answers import timestamp_or_none
from ductord.rpc.errors import refused
from ductord.rpc.fans import fan_state
from ductord.rpc.paging import Page
from ductord.rpc.payloads import fill_payload
from ductord.rpc.room import fitting
from ductord.rpc.runs import fault_message, run_not_found
from ductord.rpc.waits import wait_state
from ductord.rpc.words import NODE_STATUS, SKIP_REASON, STEP_TYPE

MAX_ATTEMPTS: Final = 100
"""Attempts that GetRunStep shows; ListRunEvents has them all."""
_q: Final = Queries("ductord.reads")


class Nodes(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one run as they stand. `now` is the database's time of the look. `leaders`: who leads the digest windows that they wait in."""

    tenant_id: str
    run_id: str
    now: datetime
    outline: Outline
    nodes: Mapping[str, Node]
    leaders: Mapping[str, str]


async def look(db: asyncpg.Connection, outlines: Outlines, tenant_id: str, run_id: str, now: datetime) -> Nodes:
    """The nodes of a run. Raises RUN_NOT_FOUND."""
    row = await db.fetchrow(_q["get_nodes"], tenant_id, run_id)
    if row is None:
        raise run_not_found()
    outline = await outlines.outline(db, tenant_id, row["version_id"])
    nodes = nodes_of(row["node_states"])
    leaders = await leaders_of(db, tenant_id, nodes.values())
    return Nodes(tenant_id=tenant_id, run_id=run_id, now=now, outline=outline, nodes=nodes, leaders=leaders)


async def list_steps(
    db: asyncpg.Connection, run: Nodes, status: str, page: Page, payload_format: int, max_bytes: int
) -> tuple[Sequence[run_pb2.StepState], str]:
    """One page of nodes, of one status where `status` is not empty, and the next page's token."""
    begin = 0 if page.after is None else int(page.after[0]) + 1  # type: ignore[arg-type]  # our own token: an index
    wanted = [
        (index, step)
        for index, step in enumerate(run.outline.steps)
        if index >= begin and (not status or run.nodes.get(step.ref, PENDING).status == status)
    ][: page.fetch]
    outputs = await load_outputs(db, run.tenant_id, run.run_id, _first_outputs(run, wanted, max_bytes))
    starts = await _first_starts(db, run, [step.ref for _, step in wanted])

    def entries() -> Iterator[tuple[int, run_pb2.StepState | None]]:
        for number, (index, step) in enumerate(wanted):
            left_out = run.nodes.get(step.ref, PENDING).output is not None and step.ref not in outputs
            if left_out and number:
                yield index, None
                return
            state = _state(run, step, starts)
            state.output_truncated = left_out
            fill_payload(state, "output", outputs.get(step.ref), payload_format, max_bytes=max_bytes - state.ByteSize())
            yield index, state

    shown, last = fitting(entries(), page.size, max_bytes)
    return shown, "" if last is None else page.next_token((last,))


async def get_step(
    db: asyncpg.Connection, run: Nodes, ref: str, payload_format: int, max_bytes: int
) -> run_pb2.StepState:
    """One node with the input of its latest attempt and its attempts. Raises STEP_NOT_FOUND."""
    step = known_step(run.outline, ref)
    node = run.nodes.get(ref, PENDING)
    state = _state(run, step, await _first_starts(db, run, [ref]))
    given = await db.fetchval(_q["load_input"], run.tenant_id, run.run_id, ref, node.attempt) if node.attempt else None
    output = None
    if node.output is not None:
        output = (await load_outputs(db, run.tenant_id, run.run_id, {ref: node.output.attempt})).get(ref)
    room = max_bytes - state.ByteSize()
    fill_payload(state, "output", output, payload_format, max_bytes=room - size(given))
    fill_payload(state, "input", given, payload_format, max_bytes=max_bytes - state.ByteSize())
    attempts = await latest(db, run.tenant_id, run.run_id, ref, MAX_ATTEMPTS)
    shown, _ = fitting(enumerate(attempts), MAX_ATTEMPTS, max(max_bytes - state.ByteSize(), 0))
    state.attempts.extend(shown)
    return state


def known_step(outline: Outline, ref: str) -> Step:
    """The step of that ref. Raises STEP_NOT_FOUND."""
    index = outline.index(ref)
    if index is None:
        raise refused("STEP_NOT_FOUND", "the run has no such step")
    return outline.steps[index]


async def states(db: asyncpg.Connection, run: Nodes, steps: Sequence[Step]) -> list[run_pb2.StepState]:
    """Some nodes without payloads, in the order of `steps`."""
    starts = await _first_starts(db, run, [step.ref for step in steps])
    return [_state(run, step, starts) for step in steps]


def _state(run: Nodes, step: Step, starts: Mapping[str, datetime | None]) -> run_pb2.StepState:
    node = run.nodes.get(step.ref, PENDING)
    held_back = node.status is NodeStatus.RUNNING and node.due_time is not None and node.due_time > run.now
    return run_pb2.StepState(
        step_ref=step.ref,
        step_type=STEP_TYPE[step.type],
        title=step.title,
        status=NODE_STATUS[node.status],
        skip_reason=SKIP_REASON[node.skip_reason],
        attempt=node.attempt,
        start_time=timestamp_or_none(starts.get(step.ref) or _parked(step, node)),
        end_time=timestamp_or_none(node.end_time),
        error=fault_message(node.fault),
        retry_time=timestamp_or_none(node.due_time if held_back else None),
        waiting=wait_state(node.waiting, run.leaders, step.condition),
        paused=node.paused,
        fan=fan_state(node.fan, runs=step.has_child_runs),
    )


def _parked(step: Step, node: Node) -> datetime | None:
    """When a step that waits was first parked: it has no attempt that somebody has taken."""
    return None if step.type is StepType.ACTION else node.first_time


def _first_outputs(run: Nodes, wanted: Sequence[tuple[int, Step]], room: int) -> dict[str, int]:
    """Of the wanted outputs the first ones that fit in `room` bytes: step ref → attempt."""
    refs = {}
    for _, step in wanted:
        output = run.nodes.get(step.ref, PENDING).output
        if output is None:
            continue
        room -= output.size
        if room < 0:
            break
        refs[step.ref] = output.attempt
    return refs


async def _first_starts(db: asyncpg.Connection, run: Nodes, refs: Sequence[str]) -> dict[str, datetime | None]:
    begun = [ref for ref in refs if run.nodes.get(ref, PENDING).attempt]
    if not begun:
        return {}
    rows = await db.fetch(_q["first_starts"], run.tenant_id, run.run_id, begun)
    return {row["step_ref"]: row["start_time"] for row in rows}
