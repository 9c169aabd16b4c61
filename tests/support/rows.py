"""The rows of one run, in memory: what the coordinator's commit and dispatch's leases would keep in Postgres.

It decides nothing; `tick` only loads, calls `decide`, checks what `evolve` makes of it, and stores.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ductord.engine.decide import decide
from ductord.engine.evolve import evolve, fold
from ductord.model import events as history
from ductord.model.control import Control
from ductord.model.decision import Missing
from ductord.model.enums import (
    TaskKind,
    Verb,
)
from ductord.model.inbox import Inbox, Origin, SourceKey, TimerDue
from ductord.model.needs import Need
from ductord.model.run import Run
from tests.support.commit_order import commit_order
from tests.support.commits import Commits
from tests.support.naming import task_name
from tests.support.needs import given
from tests.support.world import Transition


class Rows(Commits):
    """Everything stored of one run, and its ticks."""

    # The coordinator's side

    def _waits(self, controls: Sequence[Control], now: datetime) -> bool:
        """Whether a run that has ended is to be redriven, and not yet (F1)."""
        ended = self.run is not None and self.run.status.terminal
        return ended and bool(controls) and all(now < self.put_off.get(c.request_id, now) for c in controls)

    def tick(self, now: datetime) -> Transition | None:
        """One tick; the transition it committed, if it changed anything."""
        controls = tuple(c for c in self.asked if c.request_id not in self.settled)
        signals = tuple(self.outside.kept())
        if self.run is None and not (controls or signals) and now < (self.begin_time or now):
            return None
        reports = tuple(self._reports())
        lates = tuple(self._lates())
        if self._waits(controls, now) and not (signals or reports or lates):
            return None
        timers = tuple(
            TimerDue(kind=kind, step_ref=ref, due_time=due)
            for (kind, ref), due in sorted(self.timers.items(), key=lambda item: (item[1], item[0]))
            if due <= now
        )
        outputs = {
            r.step_ref: self.attempts[r.step_ref, r.attempt].output
            for r in reports
            if r.output is not None and r.kind is TaskKind.STEP
        }
        sources: dict[SourceKey, Any] = {}
        payloads: dict[str, Any] = {}
        needs: dict[Need, Any] = {}
        children = self.kinship.facts(self.start.run_id)
        receipts = tuple(self.outside.unapplied())
        digests = tuple(self.digests.facts(self.start.run_id))
        origin = self._origin() if self.run is None else None
        points = self._points(controls)
        while True:
            inbox = Inbox(
                start=self.start,
                reports=reports,
                timers=timers,
                outputs=outputs,
                controls=controls,
                lates=lates,
                started=self._started() if timers or controls else frozenset(),
                origin=origin,
                points=points,
                source_outputs=sources,
                signals=signals,
                receipts=receipts,
                payloads=payloads,
                digests=digests,
                children=children,
                given=needs,
            )
            decision = decide(self.manifest, self.programs, self.run, inbox, now, self.limits)
            if not isinstance(decision, Missing):
                break
            new = decision.steps - outputs.keys()
            wanted = decision.sources - sources.keys()
            letters = decision.payloads - payloads.keys()
            lacking = decision.needs - needs.keys()
            assert new or wanted or letters or lacking, "decide asks for what it was given"
            outputs |= {ref: self._output(ref, origin) for ref in new}
            sources |= {key: self.source_output(key) for key in wanted}
            payloads |= {key: self._payload(key) for key in letters}
            needs |= {need: given(self, need) for need in lacking}
        self.again = False
        seq = self._seq = decision.run.seq if decision.run is not None else 0
        for effect in sorted(decision.effects, key=commit_order):
            self._store(effect, now)
        settled = [s.request_id for s in signals if s.request_id in self.outside.settled]
        self.told_in.update((name, seq) for name in settled)
        self.told_at.update((name, now) for name in settled)
        self.told_in.update((r, seq) for r in receipts if self.outside.receipts[r])
        if not decision.events:
            assert decision.run is None
            return None
        events = history.decode(history.encode(decision.events))
        # A reset run folds from the history that it adopted, every other one from what it was.
        before = self.run if self.run is not None or not self.history else self._folded()
        run = evolve(self.manifest, before, self.start.run_id, events, now)
        assert run == decision.run, "decide and evolve disagree"
        self.run = run
        transition = Transition(seq=run.seq, at=now, events=events)
        self.history.append(transition)
        return transition

    def _payload(self, key: str) -> Any:
        arrived = (rows.start for rows in self.family.values() if key == f"arrival:{rows.start.run_id}")
        start = next(arrived, None)
        return start.payload if start is not None else self.outside.payload(key)

    def _origin(self) -> Origin | None:
        if not self.start.reset_from_seq:
            return None
        source = self.family[self.start.reset_from_run_id]
        prefix = [(t.at, t.events) for t in source.history if t.seq <= self.start.reset_from_seq]
        return Origin(run=fold(self.manifest, source.start.run_id, prefix))

    def _points(self, controls: tuple[Control, ...]) -> dict[str, Run]:
        """The run as it was after the transition that a reset names."""
        seq = self.run.seq if self.run is not None else 0
        resets = (c for c in controls if c.verb is Verb.RESET and 1 <= c.body.seq <= seq)
        return {c.request_id: self._folded(c.body.seq) for c in resets}

    def source_output(self, key: SourceKey) -> Any:
        """The output that an inverse reads, of this run or of one that it continues; that of a late success too."""
        run_id, ref, index, number = key
        kind = TaskKind.STEP if index < 0 else TaskKind.ITEM
        row = self.family[run_id].attempts[task_name(ref, kind, index), number]
        return row.output if row.has_output else (row.late[1] if row.late is not None else None)

    def output_of(self, ref: str) -> Any:
        """The output of a node that has one."""
        return self._output(ref, None)

    def _output(self, ref: str, origin: Origin | None) -> Any:
        """The output of a node that has one, or that a reset gives one. At a reset run's first tick its source has it."""
        run = origin.run if origin is not None else self.run
        assert run is not None
        index = next(i for i, step in enumerate(self.manifest.steps) if step.ref == ref)
        reference = run.nodes[index].output or self.start.preserved.get(ref)
        assert reference is not None, f"{ref} has no output"
        holder = self.family[self.start.reset_from_run_id] if origin is not None else self
        return holder.attempts[ref, reference.attempt].output
