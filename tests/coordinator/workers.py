"""Workers of the coordinator's tests: the real dispatch's leases and reports over its own login, one task at a time."""

import asyncpg

from ductord.dispatch import reports
from ductord.dispatch.fairness import Filter
from ductord.dispatch.leases import LeasedTask, Leases, Poll
from ductord.dispatch.outcomes import Outcomes, Verdict
from ductord.model.enums import Outcome

WANTED = Filter(tenant_id=None, queues=("default",), actions=("noop:noop", "noop:undo"))


class Workers:
    """A dispatch process, as far as the database can tell, and workers that do as they are told."""

    def __init__(self, pool: asyncpg.Pool, lease_ms: int = 60_000) -> None:
        self.leases = Leases(pool, lease_ms=lease_ms, max_bytes=3 << 20)
        self.outcomes = Outcomes(pool, lease_ms=lease_ms)
        self._polls = 0

    async def lease(self, limit: int = 1000) -> list[LeasedTask]:
        """What is due, in the order of step refs."""
        self._polls += 1
        poll = Poll(wanted=WANTED, worker_id="w", poll_id=f"poll-{id(self)}-{self._polls}", limit=limit)
        claim = await self.leases.claim(poll)
        return sorted(claim.tasks, key=lambda task: (task.key.step_ref, task.key.attempt))

    async def succeed(self, *tasks: LeasedTask, output: str = '{"n": 1}') -> list[Verdict]:
        """All of them succeed, in one batch."""
        return await self._complete(tasks, reports.success(output, 1 << 20))

    async def fail(self, *tasks: LeasedTask, code: str = "NOT_FOUND") -> list[Verdict]:
        """All of them fail, in one batch."""
        return await self._complete(tasks, reports.Report(outcome=Outcome.FAILED, error_code=code, error_message=code))

    async def _complete(self, tasks: tuple[LeasedTask, ...], report: reports.Report) -> list[Verdict]:
        keyed = [reports.KeyedReport(number=n, key=task.key, report=report) for n, task in enumerate(tasks)]
        recorded = await self.outcomes.complete(keyed)
        return [settled.verdict for settled in sorted(recorded.settled, key=lambda s: s.report.number)]
