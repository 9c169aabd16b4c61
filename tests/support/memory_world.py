"""A `World` in memory: the pure engine with its rows, and nothing else. Fast enough to play every story at every test run."""

from collections import Counter
from datetime import datetime, timedelta
from typing import Any

import orjson
from msgspec.structs import replace

from ductord.engine.compile import compile_definition
from ductord.engine.expressions import Programs, programs_for
from ductord.engine.limits import LIMITS, Limits
from ductord.model.control import Control
from ductord.model.enums import AttemptStatus, Outcome
from ductord.model.fault import Fault
from ductord.model.inbox import External, Signal
from ductord.model.manifest import Manifest
from ductord.model.run import RunStart
from tests.support.births import bear
from tests.support.rows import Rows
from tests.support.tasks import Attempt
from tests.support.world import (
    HEARTBEAT_MS,
    RUN_ID,
    START,
    Born,
    Failure,
    Listening,
    OpenTask,
    Settled,
    SettledSignal,
    Snapshot,
    Success,
    Task,
    Timer,
    Transition,
    run_id_of,
)


class MemoryWorld:
    """One definition, its runs, and those that they give birth to."""

    def __init__(self) -> None:
        self._now = START
        self._manifest: Manifest | None = None
        self._programs: Programs | None = None
        self._rows: Rows | None = None
        self._triggered = 0
        self._limits: Limits = LIMITS
        self._told: set[tuple[str, str]] = set()
        self._heard: set[tuple[str, str]] = set()

    @property
    def run_id(self) -> str:
        return self._rows.start.run_id if self._rows is not None else RUN_ID

    @property
    def family(self) -> list[Rows]:
        """The rows of all runs of the story, in the order in which they were turned to."""
        return list(self._rows.family.values()) if self._rows is not None else []

    async def limits(self, **changed: int) -> None:
        self._limits = replace(self._limits, **changed)

    async def control(self, control: Control) -> None:
        self._running.controls.setdefault(control.request_id, control)

    async def settled(self) -> list[Settled]:
        rows = self._running
        new = [name for name in rows.controls if name in rows.settled and (self.run_id, name) not in self._told]
        self._told.update((self.run_id, name) for name in new)
        return [
            Settled(request_id=name, status=s.status, code=s.code, message=s.message, result=s.result)
            for name in new
            if (s := rows.settled[name])
        ]

    async def signal(self, signal: Signal, payload: Any) -> str:
        rows = self._running
        if signal.request_id not in rows.outside.signals and rows.run is not None and rows.run.status.terminal:
            return "RUN_TERMINAL"
        rows.outside.tell(signal, payload)
        return "ok"

    async def settled_signals(self) -> list[SettledSignal]:
        outside = self._running.outside
        new = [name for name in outside.signals if name in outside.settled and (self.run_id, name) not in self._heard]
        self._heard.update((self.run_id, name) for name in new)
        return [
            SettledSignal(request_id=name, status=s.status, message=s.message)
            for name in new
            if (s := outside.settled[name])
        ]

    async def publish(self, name: str, key: str, event_id: str, payload: Any, ttl_ms: int) -> tuple[int, bool]:
        event = External(event_name=name, event_id=event_id, correlation_key=key, payload=payload, time=self._now)
        keep_until = self._now + timedelta(milliseconds=ttl_ms) if ttl_ms else None
        running = self._running
        others = [rows.outside for rows in self.family if rows is not running]
        return running.outside.publish(event, keep_until, others)

    async def follow(self) -> None:
        source = self._running
        born = list(source.born.values())[-1]
        self._rows = source.family.get(born.run_id) or bear(source, born, self._now)

    @property
    def manifest(self) -> Manifest:
        """The manifest of the story's definition."""
        assert self._manifest is not None
        return self._manifest

    async def define(self, definition: dict[str, Any]) -> None:
        self._manifest = compile_definition(definition).manifest
        assert self._manifest is not None
        self._programs = programs_for(self._manifest)

    async def trigger(self, payload: Any, subject_type: str, subject_id: str, actor: str) -> None:
        assert self._manifest is not None
        assert self._programs is not None
        self._triggered += 1
        start = RunStart(
            tenant_id="story",
            run_id=run_id_of(self._triggered),
            definition_id="00000000-0000-7000-8000-00000000000d",
            version_id="00000000-0000-7000-8000-00000000000e",
            version=1,
            family_slug=self._manifest.family_slug,
            create_time=self._now,
            subject_type=subject_type,
            subject_id=subject_id,
            payload=payload,
            actor=actor,
        )
        family = self._rows.family if self._rows is not None else None
        self._rows = Rows(self._manifest, self._programs, start, family)

    async def turn(self, run_id: str) -> None:
        self._rows = self._running.family[run_id]

    async def tick(self) -> list[Transition]:
        rows = self._running
        rows.limits = self._limits
        rows.sweep(self._now)
        transitions = []
        while True:
            told = tuple(rows.digests.facts(self.run_id))
            transition = rows.tick(self._now)
            if transition is not None:
                transitions.append(transition)
            elif told == tuple(rows.digests.facts(self.run_id)):
                return transitions

    async def lease(self, step_ref: str | None) -> list[Task]:
        leased = sorted(self._running.leasable(self._now, step_ref), key=lambda a: (a.name, a.task.attempt))
        for row in leased:
            self._running.lease(row, self._now)
        return [
            Task(
                step_ref=row.name,
                attempt=row.task.attempt,
                action=row.task.action,
                input=row.input,
                idempotency_key=row.task.idempotency_key,
                details=row.previous_details,
            )
            for row in leased
        ]

    async def complete(self, step_ref: str, attempt: int, report: Success | Failure) -> str:
        row = self._row(step_ref, attempt)
        row.living = False
        if isinstance(report, Success):
            if not self._running.report(row, Outcome.SUCCEEDED, self._now):
                self._running.too_late(row, report.output, self._now)
                return "LEASE_LOST"
            row.output, row.has_output = report.output, True
            return "ok"
        if not self._running.report(row, Outcome.FAILED, self._now):
            return "LEASE_LOST"
        row.fault = Fault(code=report.code, message=report.message)
        row.non_retryable, row.retry_after_ms = report.non_retryable, report.retry_after_ms
        return "ok"

    async def release(self, step_ref: str, attempt: int) -> str:
        row = self._row(step_ref, attempt)
        row.living = False
        return "ok" if self._running.report(row, Outcome.RELEASED, self._now) else "LEASE_LOST"

    async def beat(self, step_ref: str, attempt: int, details: Any) -> str:
        return self._running.beat(self._row(step_ref, attempt), self._now, details)

    async def die(self, step_ref: str, attempt: int) -> None:
        self._row(step_ref, attempt).living = False

    async def advance(self, ms: int) -> None:
        end = self._now + timedelta(milliseconds=ms)
        while self._now < end:
            self._now = min(end, self._now + timedelta(milliseconds=HEARTBEAT_MS))
            for rows in self.family:
                for row in rows.attempts.values():
                    if row.living:
                        rows.beat(row, self._now)

    async def now(self) -> datetime:
        return self._now

    async def show(self) -> Snapshot:
        rows = self._running
        refs = tuple(step.ref for step in rows.manifest.steps)
        return Snapshot(
            run=rows.run,
            refs=refs,
            tasks=tuple(
                self._open(row) for key, row in sorted(rows.attempts.items()) if row.status is AttemptStatus.OPEN
            ),
            timers=tuple(
                Timer(kind=kind, step_ref=ref, due_time=due)
                for (kind, ref), due in sorted(rows.timers.items(), key=lambda item: (item[1], item[0]))
            ),
            checkpoints={
                name: (status, {ref: rows.attempts[ref, attempt].output for ref, attempt in refs.items()})
                for name, (status, refs) in sorted(rows.checkpoints.items())
            },
            has_result=rows.result is not None,
            result=self._result(rows),
            born=tuple(
                Born(
                    run_id=born.run_id,
                    context=orjson.loads(born.context_json),
                    reset_from_seq=born.reset_from_seq,
                )
                for born in rows.born.values()
            ),
            listening=tuple(
                Listening(step_ref=ref, attempt=attempt, pattern=pattern)
                for (ref, attempt), patterns in sorted(rows.outside.waits.items())
                for pattern in sorted(patterns, key=lambda p: p.requirement)
            ),
            kept=tuple(rows.outside.kept()),
            receipts=dict(sorted(Counter(receipt.step_ref for receipt in rows.outside.unapplied()).items())),
        )

    def _result(self, rows: Rows) -> Any:
        if rows.result is None or rows.result.refs is None:
            return orjson.loads(rows.result.output_json) if rows.result else None
        return {ref: rows.attempts[ref, attempt].output for ref, attempt in rows.result.refs.items()}

    def _open(self, row: Attempt) -> OpenTask:
        if row.outcome is not None:
            state = "reported"
        elif row.lease:
            state = "leased"
        else:
            state = "on hold" if row.held else "queued" if row.due_time <= self._now else "held"
        return OpenTask(
            step_ref=row.name,
            attempt=row.task.attempt,
            state=state,
            due_time=row.due_time,
            asked=row.asked,
        )

    def _row(self, step_ref: str, attempt: int) -> Attempt:
        return self._running.attempts[step_ref, attempt]

    @property
    def _running(self) -> Rows:
        assert self._rows is not None, "the story has triggered no run"
        return self._rows
