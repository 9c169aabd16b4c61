"""The tasks of one run, in memory: the rows of its attempts as dispatch and the sweep keep them. The base of `rows.Rows`, which keeps everything else.

An outcome is written once (first writer wins), a lease is fenced, silence is reported by the world's time.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import msgspec
import orjson

from ductord.model.effects import HoldTasks, QueueTask, ReleaseTasks
from ductord.model.enums import AttemptStatus, Outcome, TaskKind
from ductord.model.fault import Fault, OutputRef
from ductord.model.inbox import AttemptReport, LateSuccess
from tests.support.naming import Target, in_story_order, task_name
from tests.support.world import LEASE_MS


class Attempt(msgspec.Struct, kw_only=True):
    """A row of an attempt. `due_time`: the task's own, until a hold gives it another. `lease`: the token of its worker, None while nobody has it. `living`:
    that worker still beats. `late`: a success that was reported too late."""

    task: QueueTask
    due_time: datetime
    input: Any
    held: bool = False
    late: tuple[datetime, Any] | None = None
    late_judged: bool = False
    previous_details: Any = None
    status: AttemptStatus = AttemptStatus.OPEN
    asked: bool = False
    lease: bool = False
    living: bool = False
    start_time: datetime | None = None
    lease_expire_time: datetime | None = None
    progress_time: datetime | None = None
    details: Any = None
    outcome: Outcome | None = None
    report_time: datetime | None = None
    output: Any = None
    has_output: bool = False
    fault: Fault | None = None
    non_retryable: bool = False
    retry_after_ms: int | None = None

    @property
    def name(self) -> str:
        """How stories call it."""
        return task_name(self.task.step_ref, self.task.kind, self.task.item_index)

    @property
    def waiting(self) -> bool:
        """Nobody has said yet what became of it, and nobody judged it."""
        return self.status is AttemptStatus.OPEN and self.outcome is None


class Tasks:
    """The attempts of a run, by the name of their task and number."""

    def __init__(self) -> None:
        self.attempts: dict[tuple[str, int], Attempt] = {}

    def _started(self) -> frozenset[str]:
        rows = (a for a in self.attempts.values() if a.status is AttemptStatus.OPEN and a.start_time is not None)
        return frozenset(a.task.step_ref for a in rows if a.task.kind is TaskKind.STEP)

    def _lates(self) -> Iterator[LateSuccess]:
        for a in self.attempts.values():
            told = a.status is not AttemptStatus.OPEN or a.outcome is not None
            if a.late is not None and not a.late_judged and told and a.outcome is not Outcome.SUCCEEDED:
                yield LateSuccess(
                    step_ref=a.task.step_ref,
                    attempt=a.task.attempt,
                    idempotency_key=a.task.idempotency_key,
                    report_time=a.late[0],
                    output=reference(a.task.attempt, a.late[1]),
                    kind=a.task.kind,
                    item_index=a.task.item_index,
                )

    def _reports(self) -> Iterator[AttemptReport]:
        reported = [a for a in self.attempts.values() if a.status is AttemptStatus.OPEN and a.outcome is not None]
        for a in sorted(reported, key=_in_order_of_report):
            assert a.outcome is not None
            assert a.report_time is not None
            yield AttemptReport(
                step_ref=a.task.step_ref,
                attempt=a.task.attempt,
                kind=a.task.kind,
                item_index=a.task.item_index,
                outcome=a.outcome,
                report_time=a.report_time,
                start_time=a.start_time,
                output=reference(a.task.attempt, a.output) if a.has_output else None,
                fault=a.fault,
                non_retryable=a.non_retryable,
                retry_after_ms=a.retry_after_ms,
                item=a.task.item,
            )

    def _hold(self, effect: HoldTasks | ReleaseTasks, now: datetime) -> None:
        still = effect.still_held if isinstance(effect, ReleaseTasks) else ()
        for row in self.attempts.values():
            ref = row.task.step_ref
            if not row.waiting or row.lease or effect.step_ref not in ("", ref) or ref in still:
                continue
            if row.task.kind in (TaskKind.COMPENSATION, TaskKind.FINALLY) and not effect.step_ref:
                continue
            if isinstance(effect, ReleaseTasks) and row.held:
                row.due_time = max(row.due_time, now)
            row.held = isinstance(effect, HoldTasks)

    def sweep(self, now: datetime) -> None:
        """Report on behalf of silence: what is overdue by the world's time (A3, A4)."""
        for row in self.attempts.values():
            if not row.waiting:
                continue
            outcome = self._overdue(row, now)
            if outcome is not None:
                row.outcome, row.report_time = outcome, now

    def _overdue(self, row: Attempt, now: datetime) -> Outcome | None:
        task = row.task
        if not row.lease:
            late = not row.held and _over(row.due_time, task.queue_timeout_ms, now)
            return Outcome.QUEUE_TIMED_OUT if late else None
        assert row.start_time is not None
        assert row.lease_expire_time is not None
        if _over(row.start_time, task.timeout_ms, now):
            return Outcome.TIMED_OUT
        if _over(row.progress_time or row.start_time, task.heartbeat_timeout_ms, now):
            return Outcome.HEARTBEAT_TIMED_OUT
        return Outcome.LOST if row.lease_expire_time <= now else None

    def leasable(self, now: datetime, wanted: Target | None = None) -> list[Attempt]:
        """What a worker could be given now."""
        rows = [
            a
            for a in self.attempts.values()
            if a.waiting and not a.lease and not a.asked and not a.held and a.due_time <= now
        ]
        return [a for a in rows if wanted is None or wanted.covers(a.name)]

    def lease(self, row: Attempt, now: datetime) -> None:
        """Give it to a worker."""
        row.lease = row.living = True
        row.start_time = now
        row.lease_expire_time = now + timedelta(milliseconds=LEASE_MS)

    def beat(self, row: Attempt, now: datetime, details: Any = None) -> str:
        """A heartbeat (A5)."""
        if not self.fenced_in(row):
            return "LEASE_LOST"
        row.lease_expire_time = now + timedelta(milliseconds=LEASE_MS)
        if details is not None:
            row.progress_time, row.details = now, details
        return "cancel" if row.asked else "continue"

    def too_late(self, row: Attempt, output: Any, now: datetime) -> None:
        """Keep a success of a worker that no longer speaks for the attempt; the first one (A4)."""
        if row.start_time is not None and row.late is None and row.outcome is not Outcome.SUCCEEDED:
            row.late = (now, output)

    def report(self, row: Attempt, outcome: Outcome, now: datetime) -> bool:
        """Write an outcome, if the worker still holds the lease and is the first to write."""
        if not self.fenced_in(row):
            return False
        row.outcome, row.report_time = outcome, now
        return True

    def fenced_in(self, row: Attempt) -> bool:
        """Whether the worker that leased the attempt still speaks for it."""
        return row.lease and row.waiting


def _in_order_of_report(row: Attempt) -> tuple[datetime, str, int, str, int]:
    assert row.report_time is not None
    return row.report_time, *in_story_order(row.name), row.task.attempt


def _over(since: datetime, limit_ms: int | None, now: datetime) -> bool:
    return limit_ms is not None and since + timedelta(milliseconds=limit_ms) <= now


def reference(attempt: int, output: Any) -> OutputRef:
    """The reference to an output that an attempt's row holds."""
    text = orjson.dumps(output)
    return OutputRef(attempt=attempt, size=len(text), hash=sha256(text).hexdigest()[:16])
