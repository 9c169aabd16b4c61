"""Runs put into any state by hand: the row that a coordinator would have written, without one. The first transition is there, so that it can be reset to."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
from msgspec.structs import replace

from ductord.engine.evolve import fold
from ductord.model import events as history
from ductord.model import stored
from ductord.model.enums import NodeStatus, RunStatus, SkipReason
from ductord.model.events import AttemptCreated, Event, RunStarted
from ductord.model.fault import Fault
from ductord.model.manifest import Manifest
from ductord.model.run import Continuation, Node, Run, Stop
from tests.support.books import TENANT, Books, chain

AT = datetime(2026, 1, 1, tzinfo=UTC)
MANIFEST = chain(2)
SUCCESSOR = "00000000-0000-5000-8000-000000000001"
_FAULT = Fault(code="NOT_FOUND", message="no such thing")
_CUT = (
    Node(status=NodeStatus.FAILED, attempt=1, failures=1, end_time=AT, fault=_FAULT),
    Node(status=NodeStatus.SKIPPED, skip_reason=SkipReason.RUN_ENDED, end_time=AT),
)


def _stopping(cause: RunStatus, **stop: Any) -> dict[str, Any]:
    return {"stop": Stop(cause=cause, deadline=AT, **stop)}


def _ended(status: RunStatus, **fields: Any) -> dict[str, Any]:
    return {"status": status, "end_time": AT, "open_nodes": 0, "nodes": _CUT, **fields}


STANDS: dict[str, dict[str, Any]] = {
    "running": {},
    "paused": {"status": RunStatus.PAUSED},
    "stopping": _stopping(RunStatus.FAILED, fault=_FAULT, step_ref="s0"),
    "emptying": _stopping(RunStatus.CANCELLED, emptied=True),
    "continuing": _stopping(
        RunStatus.TERMINATED, emptied=True, continuation=Continuation(new_run_id=SUCCESSOR, request_id="first")
    ),
    "completed": _ended(RunStatus.COMPLETED),
    "failed": _ended(RunStatus.FAILED, fault=_FAULT, has_errors=True),
    "timed_out": _ended(RunStatus.TIMED_OUT),
    "cancelled": _ended(RunStatus.CANCELLED),
    "terminated": _ended(RunStatus.TERMINATED),
    "merged": _ended(RunStatus.MERGED),
    "continued": _ended(RunStatus.TERMINATED, close_reason="continued_as_new", continued_to_run_id=SUCCESSOR),
}
"""What a run has that stands so. `pending`, which has no row, is not among them."""


class Stands:
    """Makes runs of one published chain of two."""

    def __init__(self, owner: asyncpg.Connection, books: Books) -> None:
        self._owner = owner
        self._books = books
        self._versions: dict[str, str] = {}

    async def run(self, stand: str = "running", *, tenant: str = TENANT, **fields: Any) -> str:
        """A run that stands so; `fields` of its value are replaced. No wake-up is left of its making."""
        if tenant not in self._versions:
            self._versions[tenant] = await self._books.publish(MANIFEST, tenant=tenant)
        run_id = await self._books.start(self._versions[tenant], tenant=tenant, wake=False)
        if stand != "pending":
            events = begun(MANIFEST)
            run = fold(MANIFEST, run_id, [(AT, events)])
            await self.write(MANIFEST, replace(run, **{**STANDS[stand], **fields}), tenant=tenant)
            await self.history(run_id, [events], tenant=tenant)
        return run_id

    async def write(self, manifest: Manifest, run: Run, *, tenant: str = TENANT) -> None:
        """The row of a run."""
        await self._owner.execute(
            "insert into eec_workflow_run (tenant_id, run_id, status, record_version, version_id, format_version, engine_level, node_states,"
            " edge_states, run_state, has_errors, start_time, update_time, end_time, close_reason, continued_to_run_id)"
            " select $1, $2, $3, $4, s.version_id, 1, 1, $5::text::jsonb, $6, $7::text::jsonb, $8, $9, $9, $10, $11, nullif($12, '')::uuid"
            " from eec_workflow_run_start s where s.tenant_id = $1 and s.run_id = $2",
            tenant, run.run_id, run.status, run.seq, stored.encode_nodes(manifest, run), run.edges, stored.encode_state(run), run.has_errors,
            run.start_time, run.end_time, run.close_reason, run.continued_to_run_id,
        )  # fmt: skip

    async def history(self, run_id: str, transitions: list[tuple[Event, ...]], *, tenant: str = TENANT) -> None:
        """The transitions of a run, a second apart."""
        await self._owner.executemany(
            "insert into eec_workflow_transition (tenant_id, run_id, seq, at, events) values ($1, $2, $3, $4, $5)",
            [
                (tenant, run_id, seq, AT + timedelta(seconds=seq - 1), history.encode(events))
                for seq, events in enumerate(transitions, 1)
            ],
        )

    async def quarantine(self, run_id: str, *, tenant: str = TENANT) -> None:
        """Set a run aside (C9)."""
        await self._owner.execute(
            "insert into eec_workflow_quarantine (tenant_id, run_id, error, ticks, since, retry_time)"
            " values ($1, $2, 'it raised', 3, now(), now() + interval '1 hour')",
            tenant,
            run_id,
        )

    async def context(self, run_id: str, context: dict[str, Any]) -> None:
        """Give a run a context."""
        await self._owner.execute(
            "update eec_workflow_run_start set context = $2::text::json where run_id = $1", run_id, json.dumps(context)
        )

    async def settle(
        self, run_id: str, request_id: str, status: str = "applied", code: str = "", **result: str
    ) -> None:
        """What a coordinator would write of a control, with its hint."""
        await self._owner.execute(
            "update eec_workflow_intent set status = $3, settle_time = eec_now(), outcome_code = $4, outcome_message = $4, result = $5::jsonb"
            " where run_id = $1 and request_id = $2",
            run_id, request_id, status, code, json.dumps(result),
        )  # fmt: skip
        await self._owner.execute("select eec_notify('ductor_operation')")

    async def intents(self, run_id: str) -> list[dict[str, Any]]:
        """The controls of a run, oldest first."""
        rows = await self._owner.fetch(
            "select request_id, verb, step_ref, body::text, reason, actor, call_id, status, outcome_code, outcome_message, result::text"
            " from eec_workflow_intent where run_id = $1 order by create_time, request_id",
            run_id,
        )
        return [dict(row) for row in rows]

    async def wakeups(self, run_id: str) -> int:
        """How many wake-ups a run has."""
        count: int = await self._owner.fetchval("select count(*) from eec_workflow_wakeup where run_id = $1", run_id)
        return count


def begun(manifest: Manifest) -> tuple[Event, ...]:
    """The first transition: the entry steps were dispatched."""
    started = RunStarted(nodes=len(manifest.steps), edges=len(manifest.edges), checkpoints=len(manifest.checkpoints))
    return (
        started,
        *(AttemptCreated(step_ref=manifest.steps[i].ref, attempt=1, logical=1) for i in manifest.entrypoints),
    )
