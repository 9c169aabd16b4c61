"""The workers and the clock of a `World` of rows: the real dispatch's leases, reports and heartbeats, under dispatch's own login. The base of
`postgres_world.PostgresWorld`, which has everything else.
"""

from datetime import datetime, timedelta
from typing import Any

import asyncpg
import orjson

from ductord.dispatch import reports
from ductord.dispatch.fairness import Filter
from ductord.dispatch.leases import LeasedTask, Leases, Poll
from ductord.dispatch.outcomes import Beat, Outcomes, Verdict
from ductord.dispatch.token import LeaseKey
from ductord.model import jsonvalue
from ductord.model.enums import Outcome, TaskKind
from tests.support.books import TENANT
from tests.support.naming import Target, in_story_order, task_name
from tests.support.world import HEARTBEAT_MS, LEASE_MS, Failure, Success, Task


class PostgresWorkers:
    """Leases and reports for the run that the story is about; workers of all runs live while time passes."""

    def __init__(self, owner: asyncpg.Connection, dispatch: asyncpg.Pool) -> None:
        self._owner = owner
        self._run_id = ""
        self._leases = Leases(dispatch, lease_ms=LEASE_MS, max_bytes=3 << 20)
        self._outcomes = Outcomes(dispatch, lease_ms=LEASE_MS)
        self._polls = 0
        self._keys: dict[tuple[str, str, int], LeaseKey] = {}
        self._living: set[tuple[str, str, int]] = set()

    async def lease(self, wanted: Target | None) -> list[Task]:
        rows = await self._owner.fetch(
            "select distinct queue, action from eec_workflow_step_attempt where status = 'open'"
        )
        if not rows:
            return []
        filter_ = Filter(
            tenant_id=TENANT, queues=tuple({r["queue"] for r in rows}), actions=tuple({r["action"] for r in rows})
        )
        self._polls += 1
        poll = Poll(wanted=filter_, worker_id="story", poll_id=f"poll-{self._polls}", limit=1000)
        claim = await self._leases.claim(poll)
        ours = (task for task in claim.tasks if task.key.run_id == self._run_id)
        kept = [task for task in ours if wanted is None or wanted.covers(_name(task.key))]
        await self._leases.give_back([task for task in claim.tasks if task not in kept])
        for task in kept:
            place = (self._run_id, _name(task.key), task.key.attempt)
            self._keys[place] = task.key
            self._living.add(place)
        return sorted((_task(task) for task in kept), key=lambda t: (in_story_order(t.step_ref), t.attempt))

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
        place = (self._run_id, step_ref, attempt)
        self._living.discard(place)
        keyed = reports.KeyedReport(number=0, key=self._keys[place], report=report)
        (settled,) = (await self._outcomes.complete([keyed])).settled
        # A report after the deadline is recorded as the time-out that it is; for the worker the lease is lost.
        return "ok" if settled.verdict in (Verdict.ACCEPTED, Verdict.REPEATED) else "LEASE_LOST"

    async def beat(self, step_ref: str, attempt: int, details: Any) -> str:
        key = self._keys[self._run_id, step_ref, attempt]
        found, _ = await self._outcomes.heartbeat(
            [Beat(number=0, key=key, details=None if details is None else jsonvalue.dumps(details))]
        )
        if 0 not in found:
            return "LEASE_LOST"
        return "cancel" if found[0] else "continue"

    async def die(self, step_ref: str, attempt: int) -> None:
        self._living.discard((self._run_id, step_ref, attempt))

    async def advance(self, ms: int) -> None:
        end = await self.now() + timedelta(milliseconds=ms)
        while (now := await self.now()) < end:
            await self._owner.execute(
                "update story_clock set at = $1", min(end, now + timedelta(milliseconds=HEARTBEAT_MS))
            )
            if self._living:
                beats = [Beat(number=n, key=self._keys[place]) for n, place in enumerate(sorted(self._living))]
                await self._outcomes.heartbeat(beats)

    async def now(self) -> datetime:
        at: datetime = await self._owner.fetchval("select eec_now()")
        return at


def _name(key: LeaseKey) -> str:
    return task_name(key.step_ref, TaskKind(key.kind), key.item_index)


def _task(task: LeasedTask) -> Task:
    return Task(
        step_ref=_name(task.key),
        attempt=task.key.attempt,
        action=task.action,
        input=orjson.loads(task.input),
        idempotency_key=task.idempotency_key,
        details=orjson.loads(task.previous_details) if task.previous_details else None,
    )
