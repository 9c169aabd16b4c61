"""Replay: decide a recorded run again with today's engine, and name the first transition that would come out differently.

A recording says which facts there were, not which tick was told of which: a transition's own events name the reports and controls that it was decided
from, timers follow from the effects of the decisions before, signals and received events say in which transition they were dealt with, what a digest was told
is read off what came of it, and everything else (late reports, rejected controls) changes no history. What a reset run adopted is folded, not decided: its
source decided it. Pure: never looks at a clock, a row or a socket.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec

from ductord.engine import windows_told
from ductord.engine.decide import decide
from ductord.engine.evolve import fold
from ductord.engine.expressions import Programs, programs_for
from ductord.engine.ledger import keys_of
from ductord.engine.limits import Limits
from ductord.model.control import Control
from ductord.model.decision import Decision, Missing
from ductord.model.effects import ClearTimers, SetTimer, SettleControl
from ductord.model.enums import InverseStatus, OperationStatus, Outcome, TaskKind, TimerKind, Verb
from ductord.model.events import AttemptEnded, Event, InverseEnded, InverseRegistered, RunStopping
from ductord.model.inbox import AttemptReport, DigestFact, Inbox, LateSuccess, Origin, SourceKey, TimerDue
from ductord.model.recording import AttemptLine, Recording, TransitionLine
from ductord.model.run import Run

_Key = tuple[str, TaskKind, int, int]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first transition that today's engine decides otherwise. `expected`: its recorded events. `found`: today's. `error`: today's engine raised instead, or
    asked for what the recording does not hold."""

    seq: int
    at: datetime
    expected: tuple[Event, ...]
    found: tuple[Event, ...] = ()
    error: str = ""


class ReplayError(Exception):
    """The recording does not hold what its own history names."""


def replay(recording: Recording) -> Difference | None:
    """Decide every transition of the recording again; None when all come out as recorded. Raises `ReplayError` for a recording with gaps."""
    stage = _Stage(recording)
    for line in recording.transitions:
        if line.seq <= recording.run.start.reset_from_seq:
            continue
        difference = stage.decide(line)
        if difference is not None:
            return difference
    return None


class _Stage:
    """A run being replayed: its state, the timers that are set, the controls that are settled."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._start = recording.run.start
        self._manifest = recording.run.manifest
        self._programs: Programs = programs_for(self._manifest)
        self._limits = msgspec.convert(recording.run.limits, Limits)
        self._attempts: dict[_Key, AttemptLine] = {
            (a.step_ref, a.kind, a.item_index, a.attempt): a for a in recording.attempts
        }
        self._sources: dict[SourceKey, Any] = {
            (s.run_id, s.step_ref, s.item_index, s.attempt): s.output for s in recording.sources
        }
        self._payloads: dict[str, Any] = {line.signal.key: line.payload for line in recording.signals}
        self._payloads |= {line.receipt.key: line.payload for line in recording.receipts}
        self._refs = {step.ref: index for index, step in enumerate(self._manifest.steps)}
        self._origin = self._folded(self._start.reset_from_seq) if self._start.reset_from_seq else None
        self._run: Run | None = None
        self._timers: dict[tuple[TimerKind, str, int], datetime] = {}
        self._settled: set[str] = set()
        named = set[str]().union(*map(_named, recording.transitions))
        self._hastening = {
            known.control.request_id
            for known in recording.controls
            if known.control.verb is Verb.CANCEL
            and known.status is OperationStatus.APPLIED
            and known.control.request_id not in named
        }

    def decide(self, line: TransitionLine) -> Difference | None:
        """Decide one transition again, and go on from it if it came out as recorded."""
        expected_seq = (self._run.seq if self._run is not None else self._start.reset_from_seq) + 1
        if line.seq != expected_seq:
            raise ReplayError(f"transition {expected_seq} is not in the recording")
        try:
            decision = self._decided(line)
        except ReplayError:
            raise
        except Exception as error:  # whatever an engine raises in a tick is the difference
            return Difference(seq=line.seq, at=line.at, expected=line.events, error=f"{type(error).__name__}: {error}")
        if decision.events != line.events:
            return Difference(seq=line.seq, at=line.at, expected=line.events, found=decision.events)
        self._run = decision.run
        self._carry_out(decision)
        return None

    def _decided(self, line: TransitionLine) -> Decision:
        reports = tuple(self._reports(line))
        timers = tuple(self._due(line.at))
        controls = tuple(self._controls(line))
        outputs = {r.step_ref: self._attempts[_key(r)].output for r in reports if r.output and r.kind is TaskKind.STEP}
        sources: dict[SourceKey, Any] = {}
        payloads: dict[str, Any] = {}
        digests, collected = self._digests(line)
        self._payloads |= collected
        while True:
            inbox = Inbox(
                start=self._start,
                reports=reports,
                timers=timers,
                outputs=outputs,
                controls=controls,
                lates=tuple(self._lates(line)),
                started=self._started(line),
                origin=Origin(run=self._origin) if self._origin is not None and self._run is None else None,
                points=self._points(controls),
                source_outputs=sources,
                signals=tuple(s.signal for s in self._recording.signals if s.seq == line.seq),
                receipts=tuple(r.receipt for r in self._recording.receipts if r.seq == line.seq),
                payloads=payloads,
                digests=digests,
            )
            decision = decide(self._manifest, self._programs, self._run, inbox, line.at, self._limits)
            if not isinstance(decision, Missing):
                return decision
            new, wanted = decision.steps - outputs.keys(), decision.sources - sources.keys()
            letters = decision.payloads - payloads.keys()
            if not new and not wanted and not letters:
                raise RuntimeError("decide asks for outputs that it was given")
            outputs |= {ref: self._output(ref, reports) for ref in new}
            sources |= {key: self._source(key) for key in wanted}
            payloads |= {key: self._payload(key) for key in letters}

    def _reports(self, line: TransitionLine) -> Iterator[AttemptReport]:
        """The reports that the transition judged: of the attempts that it ended, unless the engine itself had ended them; and successes that a timer of the
        same transition had overtaken, and that were registered as the late ones they are (C7)."""
        told: list[AttemptReport] = []
        for event in line.events:
            if isinstance(event, AttemptEnded):
                row = self._attempts.get((event.step_ref, event.kind, event.item_index, event.attempt))
                if row is None:
                    raise ReplayError(f"attempt {event.attempt} of {event.step_ref} is not in the recording")
                outcome = event.outcome
            elif isinstance(event, InverseRegistered) and event.late:
                # A timer of the same tick overtook the report of a success.
                row = self._attempts.get((event.step_ref, TaskKind.STEP, event.item_index, event.attempt))
                outcome = Outcome.SUCCEEDED
            else:
                continue
            if (
                row is not None
                and row.outcome is outcome
                and row.report_time is not None
                and row.report_time <= line.at
            ):
                told.append(_report(row, outcome, row.report_time))
        yield from sorted(told, key=lambda r: (r.report_time, r.step_ref, r.item_index, r.kind, r.attempt))

    def _lates(self, line: TransitionLine) -> Iterator[LateSuccess]:
        """The late successes that changed something: of an action that was registered by it, of an inverse whose entry it settled."""
        rows: list[AttemptLine | None] = []
        for event in line.events:
            if isinstance(event, InverseRegistered) and event.late:
                row = self._attempts.get((event.step_ref, TaskKind.STEP, event.item_index, event.attempt))
                if row is None or row.outcome is not Outcome.SUCCEEDED:
                    rows.append(row)
            elif isinstance(event, InverseEnded) and event.status is InverseStatus.DONE and not event.request_id:
                rows += self._undone_late(line, event)
        for row in rows:
            if row is None or row.late_time is None or row.late_reference is None:
                raise ReplayError(f"a late success that transition {line.seq} names is not in the recording")
            yield LateSuccess(
                step_ref=row.step_ref,
                attempt=row.attempt,
                idempotency_key=row.idempotency_key,
                report_time=row.late_time,
                output=row.late_reference,
                kind=row.kind,
                item_index=row.item_index,
            )

    def _undone_late(self, line: TransitionLine, event: InverseEnded) -> list[AttemptLine]:
        """The late success behind the end of an entry, unless an attempt's report is behind it: it shows a key of the entry."""
        reported = (e for e in line.events if isinstance(e, AttemptEnded) and e.outcome is Outcome.SUCCEEDED)
        if self._run is None or any(e.position == event.position for e in reported):
            return []
        keys = keys_of(self._start.run_id, self._run.saga.plan[event.position])
        known = (a for a in self._attempts.values() if a.idempotency_key in keys and a.late_time is not None)
        return [a for a in known if a.late_time is not None and a.late_time <= line.at]

    def _controls(self, line: TransitionLine) -> Iterator[Control]:
        """The controls that the tick was told of and that changed something: which its events name, and the continuation that waits for the run's end."""
        named = _named(line)
        stop = self._run.stop if self._run is not None and not self._run.status.terminal else None
        if stop is not None and stop.continuation is not None:
            named.add(stop.continuation.request_id)
        hastened = stop is not None and any(isinstance(event, RunStopping) for event in line.events)
        for known in self._recording.controls:
            name = known.control.request_id
            # A cancel that hastens a stop leaves the stop its name (G8).
            nameless = hastened and name in self._hastening and known.settle_time == line.at
            if name not in self._settled and (name in named or nameless):
                yield known.control

    def _due(self, at: datetime) -> Iterator[TimerDue]:
        for (kind, ref, item), due in sorted(self._timers.items(), key=lambda timer: (timer[1], timer[0])):
            if due <= at:
                yield TimerDue(kind=kind, step_ref=ref, item_index=item, due_time=due)

    def _started(self, line: TransitionLine) -> frozenset[str]:
        """Steps whose open attempt a worker had taken, as far as the tick ended it without a report: its events say so."""
        ends = (event for event in line.events if isinstance(event, AttemptEnded) and event.kind is TaskKind.STEP)
        return frozenset(event.step_ref for event in ends if event.started)

    def _points(self, controls: tuple[Control, ...]) -> dict[str, Run]:
        seq = self._run.seq if self._run is not None else 0
        resets = (c for c in controls if c.verb is Verb.RESET and 1 <= c.body.seq <= seq)
        return {c.request_id: self._folded(c.body.seq) for c in resets}

    def _folded(self, seq: int) -> Run:
        prefix = [(line.at, line.events) for line in self._recording.transitions if line.seq <= seq]
        if len(prefix) != seq:
            raise ReplayError(f"of the first {seq} transitions the recording has {len(prefix)}")
        return fold(self._manifest, self._start.run_id, prefix)

    def _output(self, ref: str, reports: tuple[AttemptReport, ...]) -> Any:
        """The output of a step that has one, or that is about to by a report or by a reset."""
        run = self._run or self._origin
        node = run.nodes[self._refs[ref]] if run is not None else None
        reference = node.output if node is not None else None
        reference = reference or self._start.preserved.get(ref)
        row = self._attempts.get((ref, TaskKind.STEP, -1, reference.attempt)) if reference is not None else None
        if row is None:
            raise ReplayError(f"the output of {ref} is not in the recording")
        return row.output

    def _source(self, key: SourceKey) -> Any:
        run_id, ref, item, attempt = key
        if key in self._sources:
            return self._sources[key]
        row = self._attempts.get((ref, TaskKind.STEP, item, attempt)) if run_id == self._start.run_id else None
        if row is None:
            raise ReplayError(f"the output of {ref}#{attempt} is not in the recording")
        return row.output if row.reference is not None else row.late_output

    def _digests(self, line: TransitionLine) -> tuple[tuple[DigestFact, ...], dict[str, Any]]:
        if self._run is None or not any(step.digest is not None for step in self._manifest.steps):
            return (), {}
        try:
            return windows_told.read(self._manifest, self._run, line.events, self._made)
        except KeyError as error:
            raise ReplayError(f"the output of a digest is not in the recording: {error}") from error

    def _made(self, ref: str, attempt: int) -> Any:
        return self._attempts[ref, TaskKind.STEP, -1, attempt].output

    def _payload(self, key: str) -> Any:
        if key not in self._payloads:
            raise ReplayError(f"the payload of {key} is not in the recording")
        return self._payloads[key]

    def _carry_out(self, decision: Decision) -> None:
        """Keep the timers as the commit would: it clears before it sets."""
        for effect in decision.effects:
            if isinstance(effect, ClearTimers):
                whole = not effect.step_ref and effect.kind is None
                for kind, ref, item in list(self._timers):
                    if whole or (ref == effect.step_ref and effect.kind in (None, kind)):
                        del self._timers[kind, ref, item]
            elif isinstance(effect, SettleControl):
                self._settled.add(effect.request_id)
        for effect in decision.effects:
            if isinstance(effect, SetTimer):
                self._timers[effect.kind, effect.step_ref, effect.item_index] = effect.due_time


def _report(row: AttemptLine, outcome: Outcome, report_time: datetime) -> AttemptReport:
    return AttemptReport(
        step_ref=row.step_ref,
        attempt=row.attempt,
        outcome=outcome,
        report_time=report_time,
        kind=row.kind,
        item_index=row.item_index,
        start_time=row.start_time,
        output=row.reference,
        fault=row.fault,
        non_retryable=row.non_retryable,
        retry_after_ms=row.retry_after_ms,
    )


def _named(line: TransitionLine) -> set[str]:
    """The controls that the events of a transition name."""
    named = {getattr(event, "request_id", "") for event in line.events}
    for stop in (event.stop for event in line.events if isinstance(event, RunStopping)):
        named |= {stop.request_id, stop.continuation.request_id if stop.continuation is not None else ""}
    return named


def _key(report: AttemptReport) -> _Key:
    return (report.step_ref, report.kind, report.item_index, report.attempt)
