"""Replay: decide a recorded run again with today's engine, and name the first transition that would come out differently.

A recording says which facts there were, not which tick was told of which: a transition's own events name the reports and controls that it was decided
from, timers follow from the effects of the decisions before, signals and received events say in which transition they were dealt with, what a digest was told
is read off what came of it, as is what it was told of children, and everything else (late reports, rejected controls) changes no history. What a reset run
adopted is folded, not decided: its source decided it. Pure: never looks at a clock, a row or a socket.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from ductord.engine import windows_told
from ductord.engine.attempts_told import Attempts, ReplayError
from ductord.engine.decide import decide
from ductord.engine.evolve import fold
from ductord.engine.expressions import Programs, programs_for
from ductord.engine.fans_told import Fans
from ductord.engine.limits import Limits
from ductord.model.control import Control
from ductord.model.decision import Decision, Missing
from ductord.model.effects import ClearTimers, SetTimer, SettleControl
from ductord.model.enums import OperationStatus, TaskKind, TimerKind, Verb
from ductord.model.events import AttemptEnded, Event, RunStopping
from ductord.model.fan_events import FanExpanded
from ductord.model.inbox import ChildFact, DigestFact, Inbox, Origin, SourceKey, TimerDue
from ductord.model.needs import Need
from ductord.model.recording import Recording, TransitionLine
from ductord.model.run import Run

__all__ = ["Difference", "ReplayError", "replay"]


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first transition that today's engine decides otherwise. `expected`: its recorded events. `found`: today's. `error`: today's engine raised instead, or
    asked for what the recording does not hold."""

    seq: int
    at: datetime
    expected: tuple[Event, ...]
    found: tuple[Event, ...] = ()
    error: str = ""


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
        self._attempts = Attempts(recording)
        self._sources: dict[SourceKey, Any] = {
            (s.run_id, s.step_ref, s.item_index, s.attempt): s.output for s in recording.sources
        }
        self._payloads: dict[str, Any] = {line.signal.key: line.payload for line in recording.signals}
        self._payloads |= {line.receipt.key: line.payload for line in recording.receipts}
        self._refs = {step.ref: index for index, step in enumerate(self._manifest.steps)}
        self._fans = Fans(recording)
        self._origin = self._folded(self._start.reset_from_seq) if self._start.reset_from_seq else None
        for line in recording.transitions:
            if line.seq <= self._start.reset_from_seq:
                self._fans.follow(line.events)
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
        self._fans.follow(decision.events, decision.effects)
        self._carry_out(decision)
        return None

    def _decided(self, line: TransitionLine) -> Decision:
        reports = tuple(self._attempts.reports(line))
        lates = tuple(self._attempts.lates(line, self._run))
        timers = tuple(self._due(line.at))
        controls = tuple(self._controls(line))
        outputs = {
            r.step_ref: self._made(r.step_ref, r.attempt) for r in reports if r.output and r.kind is TaskKind.STEP
        }
        sources: dict[SourceKey, Any] = {}
        payloads: dict[str, Any] = {}
        given: dict[Need, Any] = {}
        digests, collected = self._digests(line)
        self._payloads |= collected
        while True:
            inbox = Inbox(
                start=self._start,
                reports=reports,
                timers=timers,
                outputs=outputs,
                controls=controls,
                lates=lates,
                started=self._started(line),
                origin=Origin(run=self._origin) if self._origin is not None and self._run is None else None,
                points=self._points(controls),
                source_outputs=sources,
                signals=tuple(s.signal for s in self._recording.signals if s.seq == line.seq),
                receipts=tuple(r.receipt for r in self._recording.receipts if r.seq == line.seq),
                payloads=payloads,
                digests=digests,
                children=self._children(line),
                given=given,
            )
            decision = decide(self._manifest, self._programs, self._run, inbox, line.at, self._limits_of(line))
            if not isinstance(decision, Missing):
                return decision
            new, wanted = decision.steps - outputs.keys(), decision.sources - sources.keys()
            letters, needs = decision.payloads - payloads.keys(), decision.needs - given.keys()
            if not new and not wanted and not letters and not needs:
                raise RuntimeError("decide asks for outputs that it was given")
            outputs |= {ref: self._output(ref) for ref in new}
            sources |= {key: self._source(key) for key in wanted}
            payloads |= {key: self._payload(key) for key in letters}
            given |= {need: self._need(need, line) for need in needs}

    def _children(self, line: TransitionLine) -> tuple[ChildFact, ...]:
        run = self._run or self._origin
        found = self._fans.ends(line, run) if run is not None else ()
        return tuple(sorted(found, key=lambda fact: (fact.time, fact.run_id)))

    def _controls(self, line: TransitionLine) -> Iterator[Control]:
        """The controls that the tick was told of and that changed something: which its events name, and the continuation that waits for the run's end."""
        named = _named(line)
        stop = self._run.stop if self._run is not None and not self._run.status.terminal else None
        if stop is not None and stop.continuation is not None:
            named.add(stop.continuation.request_id)
        hastened = stop is not None and any(isinstance(event, RunStopping) for event in line.events)
        for known in self._recording.controls:
            name = known.control.request_id
            # A cancel that hastens a stop leaves the stop its name (G8). One does it; another of that instant may be of a later stop, after a redrive.
            nameless = hastened and name in self._hastening and known.settle_time == line.at
            if name not in self._settled and (name in named or nameless):
                hastened = hastened and not nameless
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

    def _limits_of(self, line: TransitionLine) -> Limits:
        """The settings as they were: the width of a scatter that does not say itself is the one with which it began (F1)."""
        for event in line.events:
            if isinstance(event, FanExpanded) and event.width:
                spec = self._manifest.steps[self._refs[event.step_ref]].scatter
                if spec is not None and spec.action is not None and spec.max_inline_children is None:
                    return replace(self._limits, max_inline_children=event.width)
        return self._limits

    def _folded(self, seq: int) -> Run:
        prefix = [(line.at, line.events) for line in self._recording.transitions if line.seq <= seq]
        if len(prefix) != seq:
            raise ReplayError(f"of the first {seq} transitions the recording has {len(prefix)}")
        return fold(self._manifest, self._start.run_id, prefix)

    def _output(self, ref: str) -> Any:
        """The output of a step that has one, or that a reset gives one."""
        run = self._run or self._origin
        node = run.nodes[self._refs[ref]] if run is not None else None
        reference = node.output if node is not None else None
        reference = reference or self._start.preserved.get(ref)
        row = self._attempts.row((ref, TaskKind.STEP, -1, reference.attempt)) if reference is not None else None
        if row is None:
            raise ReplayError(f"the output of {ref} is not in the recording")
        return row.output

    def _source(self, key: SourceKey) -> Any:
        run_id, ref, item, attempt = key
        if key in self._sources:
            return self._sources[key]
        kind = TaskKind.STEP if item < 0 else TaskKind.ITEM
        row = self._attempts.row((ref, kind, item, attempt)) if run_id == self._start.run_id else None
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
        return self._attempts.output(ref, attempt)

    def _need(self, need: Need, line: TransitionLine) -> Any:
        try:
            return self._fans.give(need, line, self._run or self._origin)
        except (KeyError, IndexError) as error:
            raise ReplayError(f"what transition {line.seq} was told is not in the recording: {need}") from error

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


def _named(line: TransitionLine) -> set[str]:
    """The controls that the events of a transition name."""
    named = {getattr(event, "request_id", "") for event in line.events}
    for stop in (event.stop for event in line.events if isinstance(event, RunStopping)):
        named |= {stop.request_id, stop.continuation.request_id if stop.continuation is not None else ""}
    return named
