"""A `World` of rows: real Postgres, the real coordinator's ticks and sweeps, the real dispatch's leases and reports, each under its own login.

Only the clock is the story's: the database's one clock function reads a row that `advance` moves.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import orjson

from ductord.coordinator.cache import Cache
from ductord.coordinator.sweep import watch
from ductord.coordinator.tick import tick
from ductord.dispatch import reports
from ductord.dispatch.fairness import Filter
from ductord.dispatch.leases import LeasedTask, Leases, Poll
from ductord.dispatch.outcomes import Beat, Outcomes, Verdict
from ductord.dispatch.token import LeaseKey
from ductord.engine.compile import compile_definition
from ductord.engine.limits import LIMITS
from ductord.model import events, jsonvalue
from ductord.model.enums import CheckpointStatus, Outcome, TimerKind
from ductord.model.manifest import Manifest
from tests.support.books import TENANT, Books
from tests.support.world import (
    HEARTBEAT_MS,
    LEASE_MS,
    START,
    Failure,
    OpenTask,
    Snapshot,
    Success,
    Task,
    Timer,
    Transition,
)

RUN_ID = "00000000-0000-7000-8000-000000000001"
"""The run of every story, in every world: jitter is derived from it."""

_CLOCK = """
create table if not exists story_clock (at timestamptz not null);
truncate story_clock;
grant select on story_clock to public;
insert into story_clock values ($clock$START$clock$);
create or replace function eec_now() returns timestamptz language sql stable parallel safe as $$ select at from story_clock $$;
"""


class PostgresWorld:
    """One definition, one run, in a database of its own. `await world.open()` first."""

    def __init__(self, owner: asyncpg.Connection, coordinator: asyncpg.Connection, dispatch: asyncpg.Pool) -> None:
        self._owner = owner
        self._coordinator = coordinator
        self._books = Books(owner)
        self._cache = Cache()
        self._leases = Leases(dispatch, lease_ms=LEASE_MS, max_bytes=3 << 20)
        self._outcomes = Outcomes(dispatch, lease_ms=LEASE_MS)
        self._manifest: Manifest | None = None
        self._version_id = self._run_id = ""
        self._seen = 0
        self._keys: dict[tuple[str, int], LeaseKey] = {}
        self._living: set[tuple[str, int]] = set()

    async def open(self) -> None:
        """Empty the database of what a story before has left, and put the story's clock in place."""
        tables = await self._owner.fetchval(
            "select string_agg(quote_ident(relname), ', ') from pg_class where relkind = 'r' and relname like 'eec\\_workflow\\_%'"
        )
        await self._owner.execute(f"truncate {tables}")
        await self._owner.execute(_CLOCK.replace("START", START.isoformat()))

    async def define(self, definition: Mapping[str, Any]) -> None:
        self._manifest = compile_definition(definition).manifest
        assert self._manifest is not None
        self._version_id = await self._books.publish(self._manifest, slug="story")

    async def trigger(self, payload: Any, subject_type: str, subject_id: str) -> None:
        self._run_id = await self._books.start(
            self._version_id,
            run_id=RUN_ID,
            input_="{}" if payload is None else jsonvalue.dumps(payload),
            subject=(subject_type, subject_id),
        )

    async def tick(self) -> list[Transition]:
        while True:
            await watch(self._coordinator)
            if not (await tick(self._coordinator, self._cache, LIMITS, 100)).claimed:
                break
        rows = await self._owner.fetch(
            "select seq, at, events::text from eec_workflow_transition where run_id = $1 and seq > $2 order by seq",
            self._run_id,
            self._seen,
        )
        self._seen += len(rows)
        if rows:
            await self._books.settled(self._run_id)
        return [Transition(seq=row["seq"], at=row["at"], events=events.decode(row["events"])) for row in rows]

    async def lease(self, step_ref: str | None) -> list[Task]:
        rows = await self._owner.fetch(
            "select distinct queue, action from eec_workflow_step_attempt where status = 'open'"
        )
        if not rows:
            return []
        wanted = Filter(
            tenant_id=TENANT, queues=tuple({r["queue"] for r in rows}), actions=tuple({r["action"] for r in rows})
        )
        claim = await self._leases.claim(
            Poll(wanted=wanted, worker_id="story", poll_id=f"poll-{self._seen}-{len(self._keys)}", limit=1000)
        )
        kept = [task for task in claim.tasks if step_ref in (None, task.key.step_ref)]
        await self._leases.give_back([task for task in claim.tasks if task not in kept])
        for task in kept:
            self._keys[task.key.step_ref, task.key.attempt] = task.key
            self._living.add((task.key.step_ref, task.key.attempt))
        return sorted((_task(task) for task in kept), key=lambda t: (t.step_ref, t.attempt))

    async def complete(self, step_ref: str, attempt: int, report: Success | Failure) -> str:
        if isinstance(report, Success):
            return await self._report(step_ref, attempt, reports.success(jsonvalue.dumps(report.output), 1 << 20))
        failed = reports.Report(
            outcome=Outcome.FAILED,
            error_code=report.code or reports.UNKNOWN_CODE,
            error_message=report.message,
            non_retryable=report.non_retryable,
            retry_after_ms=report.retry_after_ms,
        )
        return await self._report(step_ref, attempt, failed)

    async def release(self, step_ref: str, attempt: int) -> str:
        return await self._report(step_ref, attempt, reports.Report(outcome=Outcome.RELEASED))

    async def _report(self, step_ref: str, attempt: int, report: reports.Report) -> str:
        self._living.discard((step_ref, attempt))
        keyed = reports.KeyedReport(number=0, key=self._keys[step_ref, attempt], report=report)
        (settled,) = (await self._outcomes.complete([keyed])).settled
        # A report after the deadline is recorded as the time-out that it is; for the worker the lease is lost.
        return "ok" if settled.verdict in (Verdict.ACCEPTED, Verdict.REPEATED) else "LEASE_LOST"

    async def beat(self, step_ref: str, attempt: int, details: Any) -> str:
        key = self._keys[step_ref, attempt]
        found, _ = await self._outcomes.heartbeat(
            [Beat(number=0, key=key, details=None if details is None else jsonvalue.dumps(details))]
        )
        if 0 not in found:
            return "LEASE_LOST"
        return "cancel" if found[0] else "continue"

    async def die(self, step_ref: str, attempt: int) -> None:
        self._living.discard((step_ref, attempt))

    async def advance(self, ms: int) -> None:
        end = await self.now() + timedelta(milliseconds=ms)
        while (now := await self.now()) < end:
            await self._owner.execute(
                "update story_clock set at = $1", min(end, now + timedelta(milliseconds=HEARTBEAT_MS))
            )
            if self._living:
                beats = [Beat(number=n, key=self._keys[ref]) for n, ref in enumerate(sorted(self._living))]
                await self._outcomes.heartbeat(beats)

    async def now(self) -> datetime:
        at: datetime = await self._owner.fetchval("select eec_now()")
        return at

    async def show(self) -> Snapshot:
        assert self._manifest is not None
        has_row = await self._books.status(self._run_id) != "pending"
        row = await self._owner.fetchrow(
            "select result::text, result_refs::text from eec_workflow_run where run_id = $1", self._run_id
        )
        refs = orjson.loads(row["result_refs"]) if row and row["result_refs"] else None
        result = (
            await self._outputs(refs)
            if refs is not None
            else (orjson.loads(row["result"]) if row and row["result"] else None)
        )
        return Snapshot(
            run=await self._books.settled(self._run_id) if has_row else None,
            refs=tuple(step.ref for step in self._manifest.steps),
            tasks=await self._open_tasks(),
            timers=await self._timers(),
            checkpoints=await self._checkpoints(),
            has_result=row is not None and (row["result"] is not None or refs is not None),
            result=result,
        )

    async def _open_tasks(self) -> tuple[OpenTask, ...]:
        rows = await self._owner.fetch(
            "select step_ref, attempt, due_time, cancel_requested_time is not null as asked,"
            " case when report_time is not null then 'reported' when lease_secret is not null then 'leased'"
            " when due_time <= eec_now() then 'queued' else 'held' end as state"
            " from eec_workflow_step_attempt where run_id = $1 and status = 'open' order by step_ref, attempt",
            self._run_id,
        )
        return tuple(OpenTask(**row) for row in rows)

    async def _timers(self) -> tuple[Timer, ...]:
        rows = await self._owner.fetch(
            "select kind, step_ref, due_time from eec_workflow_timer where run_id = $1 order by due_time, kind, step_ref",
            self._run_id,
        )
        return tuple(
            Timer(kind=TimerKind(row["kind"]), step_ref=row["step_ref"], due_time=row["due_time"]) for row in rows
        )

    async def _checkpoints(self) -> dict[str, tuple[CheckpointStatus, Mapping[str, Any]]]:
        rows = await self._owner.fetch(
            "select name, status, refs::text from eec_workflow_checkpoint where run_id = $1 order by name", self._run_id
        )
        return {
            row["name"]: (CheckpointStatus(row["status"]), await self._outputs(orjson.loads(row["refs"])))
            for row in rows
        }

    async def _outputs(self, refs: Mapping[str, int]) -> dict[str, Any]:
        rows = await self._owner.fetch(
            "select step_ref, attempt, output::text from eec_workflow_step_attempt where run_id = $1 and output is not null",
            self._run_id,
        )
        outputs = {(row["step_ref"], row["attempt"]): orjson.loads(row["output"]) for row in rows}
        return {ref: outputs[ref, attempt] for ref, attempt in refs.items()}


def _task(task: LeasedTask) -> Task:
    return Task(
        step_ref=task.key.step_ref,
        attempt=task.key.attempt,
        action=task.action,
        input=orjson.loads(task.input),
        idempotency_key=task.idempotency_key,
        details=orjson.loads(task.previous_details) if task.previous_details else None,
    )
