"""The children of a node that fans out: ListRunSteps with a step, GetRunStep with an index (rulings F1 to F5).

Children are rows of their own, attempts of kind `item` or child runs, and a page reads those of its indexes only, whatever the width. The node's counters say
which have not begun: those have no row, and are told all the same.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

import asyncpg
import msgspec

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as api
from ductord.db.queries import Queries
from ductord.model import events as history
from ductord.model.enums import NodeStatus
from ductord.model.fan import Fan
from ductord.model.fan_events import ChildFailed, FanExpanded, FanResumed
from ductord.model.run import Node
from ductord.reads.runs import PENDING, size, together
from ductord.reads.steps import MAX_ATTEMPTS, Nodes, known_step
from ductord.reads.versions import Step
from ductord.rpc.answers import timestamp_or_none
from ductord.rpc.errors import field_invalid, refused
from ductord.rpc.paging import Page
from ductord.rpc.payloads import fill_payload
from ductord.rpc.room import fitting
from ductord.rpc.runs import attempt
from ductord.rpc.words import NODE_STATUS, NODE_STATUS_WORD, RUN_STATUS, STEP_TYPE

MAX_INDEX: Final = (1 << 31) - 1
_q: Final = Queries("ductord.reads", "children.sql")
_refs: Final = msgspec.json.Decoder(dict[str, int])


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which children. `status` empty: of any. `last` is listed too."""

    status: str
    first: int
    last: int


def read_wanted(request: api.ListRunStepsRequest) -> Wanted:
    """The checked filter. Raises FIELD_INVALID."""
    for name in ("index_from", "index_to"):
        if request.HasField(name):
            if not request.step_ref:
                raise field_invalid(name, "is of the children of a step: name it with step_ref")
            if getattr(request, name) < 0:
                raise field_invalid(name, "is at least 0")
    return Wanted(
        status=NODE_STATUS_WORD[request.status],
        first=request.index_from,
        last=request.index_to if request.HasField("index_to") else MAX_INDEX,
    )


async def list_children(
    db: asyncpg.Connection, run: Nodes, ref: str, wanted: Wanted, page: Page, payload_format: int, max_bytes: int
) -> tuple[Sequence[run_pb2.StepState], str]:
    """One page of the children of a step by index, and the next page's token. Raises STEP_NOT_FOUND, FIELD_INVALID for a step that has none."""
    step = _fanning(run, ref)
    node = run.nodes.get(ref, PENDING)
    after = -1 if page.after is None else int(str(page.after[0]))
    if node.fan is None:
        return [], ""
    children = _Children(run=run, step=step, node=node, fan=node.fan)
    first, last = max(wanted.first, after + 1), min(wanted.last, node.fan.expected - 1)
    found = await children.found(db, first, last, wanted.status, page.fetch, max_bytes)

    def entries() -> Iterator[tuple[int, run_pb2.StepState | None]]:
        for number, (state, row) in enumerate(found):
            output = None if row is None else row["output"]
            left_out = row is not None and output is None and _has_output(state, row)
            if left_out and number and row is not None and not row.get("result_refs"):
                yield state.item_index, None
                return
            state.output_truncated = left_out
            fill_payload(state, "output", output, payload_format, max_bytes=max_bytes - state.ByteSize())
            yield state.item_index, state

    shown, at = fitting(entries(), page.size, max_bytes)
    return shown, "" if at is None else page.next_token((at,))


async def get_child(
    db: asyncpg.Connection, run: Nodes, ref: str, index: int, payload_format: int, max_bytes: int
) -> run_pb2.StepState:
    """One child with its input, output and attempts. Raises STEP_NOT_FOUND, also for an index that the node has no child of."""
    step = _fanning(run, ref)
    node = run.nodes.get(ref, PENDING)
    if node.fan is None or not 0 <= index < node.fan.expected:
        raise refused("STEP_NOT_FOUND", "the step has no child of this index")
    children = _Children(run=run, step=step, node=node, fan=node.fan)
    ((state, row),) = await children.found(db, index, index, "", 1, 0)
    if row is None:
        return state
    if state.child_run_id:
        given, output = await _payloads_of_run(db, run.tenant_id, state.child_run_id)
    else:
        payloads = await db.fetchrow(_q["item_payloads"], run.tenant_id, run.run_id, ref, index, state.attempt)
        given, output = payloads["input"], payloads["output"]
    if state.status != run_pb2.NODE_STATUS_SUCCEEDED:
        output = None
    room = max_bytes - state.ByteSize()
    if size(output) > room:
        state.output_truncated, output = True, None
    fill_payload(state, "output", output, payload_format, max_bytes=room - size(given))
    fill_payload(state, "input", given, payload_format, max_bytes=max_bytes - state.ByteSize())
    rows = await db.fetch(_q["item_attempts"], run.tenant_id, run.run_id, ref, index, MAX_ATTEMPTS)
    shown, _ = fitting(((None, attempt(row)) for row in rows), MAX_ATTEMPTS, max(max_bytes - state.ByteSize(), 0))
    state.attempts.extend(shown)
    return state


Found = tuple[run_pb2.StepState, Mapping[str, Any] | None]
"""A child without payloads, and its row; None of one that has not begun."""


class _Children(msgspec.Struct, frozen=True, kw_only=True):
    run: Nodes
    step: Step
    node: Node
    fan: Fan

    async def found(
        self, db: asyncpg.Connection, first: int, last: int, status: str, limit: int, max_bytes: int
    ) -> list[Found]:
        """At most `limit` children of a range of indexes by index, of one status where it is not empty."""
        if status == NodeStatus.PENDING:
            return [(self._state(index, status), None) for index in islice(self._unbegun(first, last), limit)]
        most = last if status else min(last, first + limit - 1)
        begun = min(most, self.fan.next - 1)
        rows = await self._rows(db, first, begun, status, limit, max_bytes) if first <= begun else []
        if status:
            return [(self._shown(row), row) for row in rows]
        by_index = {row["item_index"]: row for row in rows}
        return [
            (self._state(index, NodeStatus.PENDING) if row is None else self._shown(row), row)
            for index in range(first, most + 1)
            for row in (by_index.get(index),)
        ]

    async def _rows(
        self, db: asyncpg.Connection, first: int, last: int, status: str, limit: int, max_bytes: int
    ) -> Sequence[Mapping[str, Any]]:
        again = [(begin, begin + count) for begin, count in self.fan.again]
        failed = await self._failed(db)
        asked = (
            self.run.tenant_id,
            self.run.run_id,
            self.step.ref,
            first,
            last,
            status,
            again,
            max_bytes,
            limit,
            failed,
        )
        items = await db.fetch(_q["list_items"], *asked)
        if not self.step.has_child_runs:
            return [*items]
        node = self.node
        runs = await db.fetch(_q["list_child_runs"], *asked, node.status.terminal, self.fan.open > 0, node.attempt)
        return sorted((*items, *runs), key=lambda row: int(row["item_index"]))[:limit]

    async def _failed(self, db: asyncpg.Connection) -> list[int] | None:
        """The indexes that count as failed; None where whatever did not end well does. A row alone does not say it: a child that was asked to stop has not
        failed, whatever its worker or its run came to (F2, F5)."""
        if not self.fan.failed:
            return []
        if not self.fan.cancelled:
            return None
        if self.fan.failed == 1:
            return [self.fan.first_failed]
        failed: set[int] = set()
        for row in await db.fetch(_q["told_of_failures"], self.run.tenant_id, self.run.run_id):
            for event in history.decode(row["events"]):
                match event:
                    case FanExpanded(step_ref=self.step.ref) | FanResumed(step_ref=self.step.ref):
                        failed.clear()
                    case ChildFailed(step_ref=self.step.ref):
                        failed.add(event.item_index)
                    case _:
                        pass
        return sorted(failed)

    def _unbegun(self, first: int, last: int) -> Iterator[int]:
        for begin, count in sorted(self.fan.again):
            yield from range(max(begin, first), min(begin + count - 1, last) + 1)
        yield from range(max(self.fan.next, first), last + 1)

    def _shown(self, row: Mapping[str, Any]) -> run_pb2.StepState:
        status = row["status"]
        state = self._state(row["item_index"], status)
        state.attempt = row["attempt"]
        _when(state, "start_time", row["start_time"])
        if status == NodeStatus.RUNNING:
            due = row.get("due_time")
            _when(state, "retry_time", due if due is not None and due > self.run.now else None)
        else:
            _when(state, "end_time", row["end_time"])
        code = row["error_code"] or row.get("code")
        if code and status in (NodeStatus.FAILED, NodeStatus.CANCELLED):
            state.error.CopyFrom(common_pb2.Fault(code=code, message=row["error_message"] or ""))
        if "child_run_id" in row:
            state.child_run_id = row["child_run_id"]
            state.child_status = RUN_STATUS[row["run_status"]]
        return state

    def _state(self, index: int, status: str) -> run_pb2.StepState:
        return run_pb2.StepState(
            step_ref=self.step.ref,
            step_type=STEP_TYPE[self.step.type],
            title=self.step.title,
            item_index=index,
            status=NODE_STATUS[status],
        )


def _fanning(run: Nodes, ref: str) -> Step:
    step = known_step(run.outline, ref)
    if not step.fans_out:
        raise field_invalid("step_ref", "names a step that has no children")
    return step


def _when(state: run_pb2.StepState, field: str, at: Any) -> None:
    found = timestamp_or_none(at)
    if found is not None:
        getattr(state, field).CopyFrom(found)


def _has_output(state: run_pb2.StepState, row: Mapping[str, Any]) -> bool:
    succeeded = state.status == run_pb2.NODE_STATUS_SUCCEEDED
    return succeeded and (row["output_size"] is not None or bool(row.get("result_refs")))


async def _payloads_of_run(db: asyncpg.Connection, tenant_id: str, run_id: str) -> tuple[str | None, str | None]:
    """Input and output of a child run."""
    row = await db.fetchrow(_q["run_payloads"], tenant_id, run_id)
    if row["result_refs"] is None:
        return row["input"], row["result"]
    return row["input"], await together(db, tenant_id, run_id, _refs.decode(row["result_refs"]))
