"""A `World` in memory: the pure engine with its rows, and nothing else. Fast enough to play every story at every test run."""

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from ductord.engine.compile import compile_definition
from ductord.engine.limits import LIMITS, Limits
from ductord.model.control import Control
from ductord.model.enums import Outcome
from ductord.model.fault import Fault
from ductord.model.inbox import External, Signal
from ductord.model.manifest import Manifest
from ductord.model.run import RunStart
from tests.support.births import bear_all
from tests.support.catalogue import Catalogue
from tests.support.memory_view import children_of, snapshot
from tests.support.naming import Target, in_story_order
from tests.support.needs import fans_are_counted
from tests.support.rows import Rows
from tests.support.tasks import Attempt
from tests.support.world import (
    HEARTBEAT_MS,
    RUN_ID,
    START,
    Cascaded,
    Child,
    Failure,
    Settled,
    SettledSignal,
    Snapshot,
    Success,
    Task,
    Transition,
    run_id_of,
)


class MemoryWorld:
    """Definitions, their runs, and those that they give birth to."""

    def __init__(self) -> None:
        self._now = START
        self._catalogue = Catalogue()
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
        names = (control.request_id for control in rows.asked)
        new = [name for name in names if name in rows.settled and (self.run_id, name) not in self._told]
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
        self._rows = source.family[list(source.born.values())[-1].run_id]

    @property
    def manifest(self) -> Manifest:
        """What the run runs."""
        return self._running.manifest

    async def definition(self) -> Manifest:
        return self.manifest

    async def define(self, definition: dict[str, Any]) -> None:
        manifest = compile_definition(definition).manifest
        assert manifest is not None
        self._catalogue.publish(manifest)

    async def archive(self, family_slug: str, version: int) -> None:
        self._catalogue.archive(family_slug, version)

    async def trigger(
        self, payload: Any, subject_type: str, subject_id: str, actor: str, family_slug: str = ""
    ) -> None:
        version = self._catalogue.newest(family_slug)
        self._triggered += 1
        run_id = run_id_of(self._triggered)
        start = RunStart(
            tenant_id="story",
            run_id=run_id,
            definition_id=version.definition_id,
            version_id=version.version_id,
            version=version.number,
            family_slug=version.manifest.family_slug,
            create_time=self._now,
            root_run_id=run_id,
            journey_id=run_id,
            variables=version.manifest.variables,
            subject_type=subject_type,
            subject_id=subject_id,
            payload=payload,
            actor=actor,
        )
        family = self._rows.family if self._rows is not None else None
        self._rows = Rows(version.manifest, version.programs, start, family, self._catalogue)

    async def turn(self, run_id: str) -> None:
        self._rows = self._running.family[run_id]

    async def tick(self) -> list[Transition]:
        rows = self._running
        rows.limits = self._limits
        for one in self.family:
            one.sweep(self._now)
        transitions = []
        while True:
            told = self._facts(rows)
            transition = rows.tick(self._now)
            bear_all(rows.family, self._now)
            if transition is not None:
                transitions.append(transition)
                fans_are_counted(rows)
            elif told == self._facts(rows):
                return transitions

    @staticmethod
    def _facts(rows: Rows) -> tuple[Any, ...]:
        run_id = rows.start.run_id
        return tuple(rows.digests.facts(run_id)), rows.kinship.facts(run_id)

    async def parent(self) -> str:
        return self._running.start.parent_run_id

    async def children(self) -> list[Child]:
        return children_of(self._running)

    async def cascaded(self) -> list[Cascaded]:
        return [
            Cascaded(request_id=c.request_id, verb=c.verb, parent_run_id=c.actor.removeprefix("run:"))
            for c in self._running.asked
            if c.actor.startswith("run:")
        ]

    async def lease(self, wanted: Target | None) -> list[Task]:
        found = self._running.leasable(self._now, wanted)
        leased = sorted(found, key=lambda a: (in_story_order(a.name), a.task.attempt))
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
        return snapshot(self._running, self._now)

    def _row(self, step_ref: str, attempt: int) -> Attempt:
        return self._running.attempts[step_ref, attempt]

    @property
    def _running(self) -> Rows:
        assert self._rows is not None, "the story has triggered no run"
        return self._rows
