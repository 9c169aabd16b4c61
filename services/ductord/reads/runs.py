"""A run as GetRun shows it: with input, result, nodes, checkpoints and whatever set it aside.

A reply is bounded (L7, PL-06): the input always fits; of a result that is put together from its leaf steps' outputs, what does not fit is left out and flagged,
and the steps hold it. Nothing is parsed that is only passed on.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import asyncpg
import msgspec

from ductor.workflow.v1 import run_pb2
from ductord.db.queries import Queries
from ductord.model import stored
from ductord.model.enums import CompensationStatus
from ductord.model.jsonvalue import dumps
from ductord.model.run import Node
from ductord.model.stored import RunState
from ductord.reads.ledger import ledger_of
from ductord.reads.tree import tree_of
from ductord.reads.versions import Outline, Outlines
from ductord.rpc.fans import child_counts, fan_state
from ductord.rpc.payloads import fill_payload
from ductord.rpc.runs import checkpoint, fault_message, quarantine, run_not_found, summary
from ductord.rpc.waits import wait_state, windows_of
from ductord.rpc.words import NODE_STATUS, SKIP_REASON, STEP_TYPE

PENDING: Final = Node()
MAX_GENERATIONS: Final = 10_000
"""Successors that one call follows."""
_q: Final = Queries("ductord.reads")
_refs: Final = msgspec.json.Decoder(dict[str, int])


async def expect_run(db: asyncpg.Connection, tenant_id: str, run_id: str) -> None:
    """Raises RUN_NOT_FOUND unless the tenant has such a run."""
    if not await db.fetchval(_q["has_run"], tenant_id, run_id):
        raise run_not_found()


async def last_successor(db: asyncpg.Connection, tenant_id: str, run_id: str) -> str:
    """The run at the end of the chain of successors; of a longer chain than `MAX_GENERATIONS` the one that far on, whose summary names the next (C6)."""
    last: str = await db.fetchval(_q["last_successor"], tenant_id, run_id, MAX_GENERATIONS)
    return last


def nodes_of(text: str | None) -> Mapping[str, Node]:
    """The nodes of a run that are not pending, by step ref."""
    return {} if text is None else stored.decode_nodes(text)


def _read(row: asyncpg.Record) -> tuple[RunState, Mapping[str, Node]]:
    """The state and the nodes of a run; nothing of one that cannot be read, which is set aside and has to be seen all the same (C9)."""
    try:
        state = RunState() if row["run_state"] is None else stored.decode_state(row["run_state"])
        return state, nodes_of(row["node_states"])
    except msgspec.ValidationError:
        if row["since"] is None:
            raise
        return RunState(), {}


async def get_run(
    db: asyncpg.Connection,
    outlines: Outlines,
    tenant_id: str,
    run_id: str,
    payload_format: int,
    max_bytes: int,
    *,
    tree: bool = False,
) -> run_pb2.RunDetail:
    """A run in full; with `tree` the runs below it too. Raises RUN_NOT_FOUND."""
    row = await db.fetchrow(_q["get_run"], tenant_id, run_id)
    if row is None:
        raise run_not_found()
    outline = await outlines.outline(db, tenant_id, row["version_id"])
    state, nodes = _read(row)
    detail = run_pb2.RunDetail(
        summary=summary(row),
        error=fault_message(state.fault or state.output_fault),
        error_step_ref=(state.stop.step_ref or "") if state.stop is not None else "",
        nodes=_nodes(outline, nodes, await leaders_of(db, tenant_id, nodes.values())),
        checkpoints=_checkpoints(outline, state),
        quarantine=quarantine(row),
        transition_count=row["record_version"],
        idempotency_key=row["idempotency_key"] or "",
        children=child_counts(nodes.values()),
        parent_step_ref=row["parent_step_ref"] or "",
        parent_item_index=row["parent_item_index"],
    )
    if tree:
        below, detail.tree_truncated = await tree_of(db, tenant_id, run_id, (max_bytes - detail.ByteSize()) // 2)
        detail.tree.extend(below)
    if row["compensation_status"] != CompensationStatus.NONE:
        entries, detail.compensation_truncated = await ledger_of(db, tenant_id, run_id, max_bytes - detail.ByteSize())
        detail.compensation.extend(entries)
    room = max_bytes - detail.ByteSize()
    given: str | None = row["input"]
    if size(given) > room:
        detail.input_truncated, given = True, None
    result: str | None = row["result"]
    if row["result_refs"] is not None:
        refs = _refs.decode(row["result_refs"])
        kept = _affordable(refs, nodes, room - size(given))
        detail.result_truncated = len(kept) < len(refs)
        result = await together(db, tenant_id, run_id, kept)
    elif size(result) > room - size(given):
        detail.result_truncated, result = True, None
    fill_payload(detail, "input", given, payload_format, max_bytes=room - size(result))
    fill_payload(detail, "result", result, payload_format, max_bytes=max_bytes - detail.ByteSize())
    return detail


async def leaders_of(db: asyncpg.Connection, tenant_id: str, nodes: Iterable[Node]) -> dict[str, str]:
    """Who leads the digest windows that the nodes wait in: run ids by window (E5)."""
    windows = windows_of(nodes)
    if not windows:
        return {}
    return {row["window_id"]: row["leader_run_id"] for row in await db.fetch(_q["leaders_of"], tenant_id, windows)}


def size(text: str | None) -> int:
    """Bytes of a payload that may be absent."""
    return 0 if text is None else len(text.encode())


async def together(db: asyncpg.Connection, tenant_id: str, run_id: str, refs: Mapping[str, int]) -> str:
    """The JSON text of an object of outputs by step ref, in the order of `refs` (step ref → attempt)."""
    outputs = await load_outputs(db, tenant_id, run_id, refs)
    return "{" + ",".join(f"{dumps(ref)}:{outputs[ref]}" for ref in refs if ref in outputs) + "}"


async def load_outputs(db: asyncpg.Connection, tenant_id: str, run_id: str, refs: Mapping[str, int]) -> dict[str, str]:
    """JSON texts of outputs by step ref, for step ref → attempt."""
    if not refs:
        return {}
    rows = await db.fetch(_q["load_outputs"], tenant_id, run_id, list(refs), list(refs.values()))
    return {row["step_ref"]: row["output"] for row in rows}


def _affordable(refs: Mapping[str, int], nodes: Mapping[str, Node], room: int) -> dict[str, int]:
    """Of the outputs behind `refs` those that fit in `room` bytes, first come, first served."""
    kept = {}
    for ref, attempt in refs.items():
        output = nodes.get(ref, PENDING).output
        size = (output.size if output is not None else 0) + len(ref) + 4
        if size <= room:
            room -= size
            kept[ref] = attempt
    return kept


def _nodes(outline: Outline, nodes: Mapping[str, Node], leaders: Mapping[str, str]) -> list[run_pb2.NodeSummary]:
    summaries = []
    for step in outline.steps:
        node = nodes.get(step.ref, PENDING)
        summaries.append(
            run_pb2.NodeSummary(
                step_ref=step.ref,
                step_type=STEP_TYPE[step.type],
                status=NODE_STATUS[node.status],
                skip_reason=SKIP_REASON[node.skip_reason],
                attempt=node.attempt,
                paused=node.paused,
                waiting=wait_state(node.waiting, leaders, step.condition),
                fan=fan_state(node.fan, runs=step.has_child_runs),
            )
        )
    return summaries


def _checkpoints(outline: Outline, state: RunState) -> list[run_pb2.CheckpointState]:
    known = dict(enumerate(state.checkpoints))
    return [
        checkpoint(named.name, known.get(index), [outline.steps[step].ref for step in named.steps])
        for index, named in enumerate(outline.checkpoints)
    ]
