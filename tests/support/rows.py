"""The rows of one run, in memory: what the coordinator's commit and dispatch's leases would keep in Postgres.

Holds the same promises as the real rows: an outcome is written once (first writer wins), a lease is fenced, a verdict closes an attempt for good,
one timer per key. It decides nothing; `tick` only loads, calls `decide`, checks what `evolve` makes of it, and stores.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, assert_never

import msgspec
import orjson

from ductord.engine.decide import decide
from ductord.engine.evolve import evolve
from ductord.engine.expressions import Programs
from ductord.model import events as history
from ductord.model.decision import Missing
from ductord.model.effects import (
    ClearTimers,
    CloseAttempt,
    Effect,
    QueueTask,
    RecordCheckpoint,
    RecordResult,
    RequestCancel,
    SetTimer,
)
from ductord.model.enums import AttemptStatus, CheckpointStatus, Outcome, TimerKind
from ductord.model.inbox import AttemptReport, Inbox, TimerDue
from ductord.model.manifest import Manifest
from ductord.model.run import Fault, OutputRef, Run, RunStart
from tests.support.world import LEASE_MS, Transition


class Attempt(msgspec.Struct, kw_only=True):
    """A row of an attempt. `lease`: the token of its worker, None while nobody has it. `living`: that worker still beats."""

    task: QueueTask
    input: Any
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
    def waiting(self) -> bool:
        """Nobody has said yet what became of it, and nobody judged it."""
        return self.status is AttemptStatus.OPEN and self.outcome is None


class Rows:
    """Everything stored of one run."""

    def __init__(self, manifest: Manifest, programs: Programs, start: RunStart) -> None:
        self.manifest = manifest
        self.programs = programs
        self.start = start
        self.run: Run | None = None
        self.history: list[Transition] = []
        self.attempts: dict[tuple[str, int], Attempt] = {}
        self.timers: dict[tuple[TimerKind, str], datetime] = {}
        self.checkpoints: dict[str, tuple[CheckpointStatus, dict[str, int]]] = {}
        self.result: RecordResult | None = None

    # The coordinator's side

    def tick(self, now: datetime) -> Transition | None:
        """One tick; the transition it committed, if it changed anything."""
        reports = tuple(self._reports())
        timers = tuple(
            TimerDue(kind=kind, step_ref=ref, due_time=due)
            for (kind, ref), due in sorted(self.timers.items(), key=lambda item: (item[1], item[0]))
            if due <= now
        )
        outputs = {r.step_ref: self.attempts[r.step_ref, r.attempt].output for r in reports if r.output is not None}
        while True:
            inbox = Inbox(start=self.start, reports=reports, timers=timers, outputs=outputs)
            decision = decide(self.manifest, self.programs, self.run, inbox, now)
            if not isinstance(decision, Missing):
                break
            new = decision.steps - outputs.keys()
            assert new, "decide asks for outputs that it was given"
            outputs |= {ref: self.output_of(ref) for ref in new}
        for effect in sorted(decision.effects, key=_commit_order):
            self._store(effect, now)
        if not decision.events:
            assert decision.run is None
            return None
        events = history.decode(history.encode(decision.events))
        run = evolve(self.manifest, self.run, self.start.run_id, events, now)
        assert run == decision.run, "decide and evolve disagree"
        self.run = run
        transition = Transition(seq=run.seq, at=now, events=events)
        self.history.append(transition)
        return transition

    def output_of(self, ref: str) -> Any:
        """The output of a node that has one."""
        assert self.run is not None
        index = next(i for i, step in enumerate(self.manifest.steps) if step.ref == ref)
        reference = self.run.nodes[index].output
        assert reference is not None, f"{ref} has no output"
        return self.attempts[ref, reference.attempt].output

    def _reports(self) -> Iterator[AttemptReport]:
        reported = [a for a in self.attempts.values() if a.status is AttemptStatus.OPEN and a.outcome is not None]
        for a in sorted(reported, key=lambda a: (a.report_time, a.task.step_ref, a.task.attempt)):
            assert a.outcome is not None
            assert a.report_time is not None
            yield AttemptReport(
                step_ref=a.task.step_ref,
                attempt=a.task.attempt,
                outcome=a.outcome,
                report_time=a.report_time,
                start_time=a.start_time,
                output=_reference(a) if a.has_output else None,
                fault=a.fault,
                non_retryable=a.non_retryable,
                retry_after_ms=a.retry_after_ms,
            )

    def _store(self, effect: Effect, now: datetime) -> None:
        match effect:
            case QueueTask():
                key = (effect.step_ref, effect.attempt)
                assert key not in self.attempts, f"{key} is dispatched twice"
                before = self.attempts[effect.step_ref, effect.retry_of] if effect.retry_of is not None else None
                self.attempts[key] = Attempt(
                    task=effect,
                    input=before.input if before else orjson.loads(effect.input_json),
                    previous_details=(before.details or before.previous_details) if before else None,
                )
            case CloseAttempt():
                row = self.attempts[effect.step_ref, effect.attempt]
                if row.status is AttemptStatus.OPEN:
                    row.status = effect.status
            case RequestCancel():
                row = self.attempts[effect.step_ref, effect.attempt]
                row.asked = True
                if row.waiting and not row.lease:
                    # Nobody works on it: there is nothing to wait for.
                    row.outcome, row.report_time = Outcome.REVOKED, now
            case SetTimer():
                self.timers[effect.kind, effect.step_ref] = effect.due_time
            case ClearTimers():
                for kind, ref in list(self.timers):
                    all_of_run = not effect.step_ref and effect.kind is None
                    if all_of_run or (ref == effect.step_ref and effect.kind in (None, kind)):
                        del self.timers[kind, ref]
            case RecordCheckpoint():
                assert effect.name not in self.checkpoints, f"checkpoint {effect.name} is told twice"
                self.checkpoints[effect.name] = (effect.status, effect.refs)
            case RecordResult():
                assert self.result is None, "the output is recorded twice"
                self.result = effect
            case _:
                assert_never(effect)

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
            return Outcome.QUEUE_TIMED_OUT if _over(task.due_time, task.queue_timeout_ms, now) else None
        assert row.start_time is not None
        assert row.lease_expire_time is not None
        if _over(row.start_time, task.timeout_ms, now):
            return Outcome.TIMED_OUT
        if _over(row.progress_time or row.start_time, task.heartbeat_timeout_ms, now):
            return Outcome.HEARTBEAT_TIMED_OUT
        return Outcome.LOST if row.lease_expire_time <= now else None

    # The workers' side

    def leasable(self, now: datetime, step_ref: str | None = None) -> list[Attempt]:
        """What a worker could be given now."""
        rows = [
            a for a in self.attempts.values() if a.waiting and not a.lease and not a.asked and a.task.due_time <= now
        ]
        return [a for a in rows if step_ref in (None, a.task.step_ref)]

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

    def report(self, row: Attempt, outcome: Outcome, now: datetime) -> bool:
        """Write an outcome, if the worker still holds the lease and is the first to write."""
        if not self.fenced_in(row):
            return False
        row.outcome, row.report_time = outcome, now
        return True

    def fenced_in(self, row: Attempt) -> bool:
        """Whether the worker that leased the attempt still speaks for it."""
        return row.lease and row.waiting


def _over(since: datetime, limit_ms: int | None, now: datetime) -> bool:
    return limit_ms is not None and since + timedelta(milliseconds=limit_ms) <= now


def _reference(row: Attempt) -> OutputRef:
    text = orjson.dumps(row.output)
    return OutputRef(attempt=row.task.attempt, size=len(text), hash=sha256(text).hexdigest()[:16])


def _commit_order(effect: Effect) -> int:
    """The order in which the commit's statements run: closing, asking, queueing, clearing, setting, telling."""
    order = (CloseAttempt, RequestCancel, QueueTask, ClearTimers, SetTimer, RecordCheckpoint, RecordResult)
    return order.index(type(effect))
