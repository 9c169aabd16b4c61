"""The runs below a run, as GetRun shows them: who is whose child, and how far each has come. Bounded in number and size; ListRuns has them all."""

from collections.abc import Iterator, Sequence
from typing import Final

import asyncpg

from ductor.workflow.v1 import common_pb2, run_pb2
from ductord.db.queries import Queries
from ductord.model.fanout import MAX_DEPTH
from ductord.rpc.answers import timestamp, timestamp_or_none
from ductord.rpc.room import fitting
from ductord.rpc.words import RUN_STATUS

MAX_RUNS: Final = 500
_q: Final = Queries("ductord.reads", "tree.sql")

_Below = dict[str, list[run_pb2.RunTreeNode]]


async def tree_of(
    db: asyncpg.Connection, tenant_id: str, run_id: str, max_bytes: int
) -> tuple[Sequence[run_pb2.RunTreeNode], bool]:
    """The runs below a run, each parent before its children and children by step and index; and whether some were left out.

    Read level by level, so that of a tree that is too large the levels next to the run are there.
    """
    below: _Below = {}
    seen = {run_id}
    parents, room, cut = [run_id], MAX_RUNS, False
    for depth in range(1, MAX_DEPTH + 1):
        if not parents or cut:
            break
        rows = await db.fetch(_q["children_of"], tenant_id, parents, room + 1)
        cut, parents = len(rows) > room, []
        for row in rows[:room]:
            if row["child_run_id"] not in seen:
                seen.add(row["child_run_id"])
                below.setdefault(row["parent_run_id"], []).append(_node(row, depth))
                if row["expected"]:
                    parents.append(row["child_run_id"])
        room -= len(rows)
    shown, _ = fitting(((None, node) for node in _ordered(below, run_id)), MAX_RUNS, max_bytes)
    return shown, cut or len(shown) < len(seen) - 1


def _ordered(below: _Below, run_id: str) -> Iterator[run_pb2.RunTreeNode]:
    for node in below.get(run_id, ()):
        yield node
        yield from _ordered(below, node.run_id)


def _node(row: asyncpg.Record, depth: int) -> run_pb2.RunTreeNode:
    fault = common_pb2.Fault(code=row["error_code"], message=row["error_message"]) if row["error_code"] else None
    return run_pb2.RunTreeNode(
        run_id=row["child_run_id"],
        parent_run_id=row["parent_run_id"],
        step_ref=row["step_ref"],
        item_index=row["item_index"],
        depth=depth,
        status=RUN_STATUS[row["status"]],
        workflow_type=row["family_slug"],
        version=row["version"],
        create_time=timestamp(row["create_time"]),
        start_time=timestamp_or_none(row["start_time"]),
        end_time=timestamp_or_none(row["end_time"]),
        error=fault,
        children=run_pb2.ChildCounts(
            expected=row["expected"],
            open=row["open"],
            succeeded=row["succeeded"],
            failed=row["failed"],
            cancelled=row["cancelled"],
        ),
        detached=row["detached"],
    )
