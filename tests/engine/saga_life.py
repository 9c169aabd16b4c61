"""A run with compensations under way, and the world outside: what happens to it, and what must hold after every tick (ruling C7).

The checks read the rules off the history and write them again, differently from the engine.
"""

from datetime import timedelta

import pytest

from ductord.engine.decide import decide
from ductord.engine.doubt import NO_WORD, unsaid
from ductord.engine.evolve import fold
from ductord.engine.expressions import programs_for
from ductord.engine.ledger import actions_of, verdict
from ductord.model.control import Control, ControlBody
from ductord.model.decision import Decision
from ductord.model.enums import (
    AttemptStatus,
    CompensationBlock,
    CompensationStatus,
    InverseStatus,
    NodeStatus,
    Outcome,
    RunStatus,
    SkipReason,
    TaskKind,
    Verb,
)
from ductord.model.events import (
    AttemptCreated,
    AttemptEnded,
    CompensationPlanned,
    InverseRegistered,
    RunEnded,
    RunRedriven,
)
from ductord.model.fault import Fault
from ductord.model.ids import idempotency_key
from ductord.model.inbox import Inbox
from ductord.model.manifest import Manifest
from ductord.model.run import Run
from tests.engine.sagas import Outside, Word
from tests.support.rows import Rows
from tests.support.starts import start_of
from tests.support.tasks import Attempt
from tests.support.world import START, Transition

BLOCKS = {
    RunStatus.FAILED: CompensationBlock.ON_FAILURE,
    RunStatus.TIMED_OUT: CompensationBlock.ON_FAILURE,
    RunStatus.CANCELLED: CompensationBlock.ON_CANCEL,
}
"""What undoes a step, by the end of the run."""

SUCCESS = Word(outcome=Outcome.SUCCEEDED, acts=True)


class Life:
    """A run under way and the world outside, checked after every tick."""

    def __init__(self, manifest: Manifest) -> None:
        start = start_of(family_slug="law")
        self.rows = Rows(manifest, programs_for(manifest), start)
        self.manifest = manifest
        self.outside = Outside()
        self.now = START
        self.silent: list[Attempt] = []
        """Attempts that acted, and whose workers may still say so."""
        self.asked = 0

    @property
    def run(self) -> Run:
        assert self.rows.run is not None
        return self.rows.run

    @property
    def over(self) -> bool:
        return self.run.status.terminal and all(entry.status.settled for entry in self.run.saga.plan)

    def settle(self) -> None:
        for _ in range(20):
            before = self.rows.run
            transition = self.rows.tick(self.now)
            if transition is None:
                break
            self._check(before, transition)
        else:
            pytest.fail("the run does not come to rest")
        decision = decide(self.manifest, self.rows.programs, self.run, Inbox(start=self.rows.start), self.now)
        assert decision == Decision(), "an empty inbox decides nothing"

    def workable(self) -> list[Attempt]:
        """The tasks of which a worker may say something: those that are taken, and those that are free."""
        free = self.rows.leasable(self.now)
        return [row for row in self.rows.attempts.values() if row.waiting and (row.lease or row in free)]

    def resettable(self) -> list[str]:
        """Steps of which an attempt is at work that has acted, so that a reset leaves a doubt; any step where there is none."""
        return [row.task.step_ref for row in self.silent if row.waiting] or [step.ref for step in self.manifest.steps]

    def late_words(self) -> list[Attempt]:
        """Attempts that acted and were judged otherwise: their workers may say so, too late."""
        return [row for row in self.silent if not row.waiting]

    def take(self, row: Attempt, *, acts: bool) -> None:
        """A worker takes the task, and has acted before it says a word, or not."""
        self.rows.lease(row, self.now)
        if acts:
            self.outside.acts(row)
            self.silent.append(row)

    def work(self, row: Attempt, word: Word) -> None:
        """A worker is done with the task, or silent for good; under a key that has acted it cannot fail."""
        if not row.lease:
            self.take(row, acts=False)
        unsaid = word.outcome is Outcome.FAILED and word.code in NO_WORD
        if word.outcome is Outcome.FAILED and not unsaid and self.outside.known(row):
            word = SUCCESS
        row.outcome, row.report_time, row.living = word.outcome, self.now, False
        if word.outcome is Outcome.SUCCEEDED:
            row.output, row.has_output = self.outside.output(row), True
            self.silent = [other for other in self.silent if other is not row]
            return
        if word.outcome is Outcome.FAILED:
            row.fault = Fault(code=word.code)
        if word.acts and not any(other is row for other in self.silent):
            self.outside.acts(row)
            self.silent.append(row)

    def say_late(self, row: Attempt) -> None:
        """A worker that was given up says that it has acted."""
        self.silent.remove(row)
        self.rows.too_late(row, self.outside.output(row), self.now)

    def ask(self, verb: Verb, step_ref: str = "", body: ControlBody = ControlBody()) -> None:  # noqa: B008 (frozen)
        self.asked += 1
        name = f"{verb}-{self.asked}"
        self.rows.controls[name] = Control(
            request_id=name, verb=verb, create_time=self.now, step_ref=step_ref, body=body
        )

    def wait(self) -> None:
        """Let time pass to the next instant at which something is due; whoever was asked to stop and says nothing is revoked then."""
        due = [a.due_time for a in self.rows.attempts.values() if a.waiting] + list(self.rows.timers.values())
        self.now = min((d for d in due if d > self.now), default=self.now + timedelta(seconds=1))

    def _check(self, before: Run | None, transition: Transition) -> None:
        run, plan = self.run, self.run.saga.plan
        assert fold(self.manifest, "r", ((t.at, t.events) for t in self.rows.history)) == run
        redriven = any(isinstance(event, RunRedriven) for event in transition.events)
        if before is not None and before.status.terminal and not redriven:
            assert (run.status, run.nodes, run.edges) == (before.status, before.nodes, before.edges)
        if before is not None:
            assert [e.kind for e in plan[: len(before.saga.plan)]] == [e.kind for e in before.saga.plan], "append-only"
        assert dict(enumerate(plan)) == self.rows.ledger, "the ledger's rows are the run's entries"
        self._one_at_a_time()
        if run.status.terminal:
            assert run.saga.status is verdict(run.saga)
        else:
            assert run.saga.status is CompensationStatus.NONE
        for event in transition.events:
            if isinstance(event, RunEnded):
                self._planned_as_ruled(before, transition)
            if isinstance(event, AttemptCreated) and event.position is not None:
                begun = (event.kind is TaskKind.FINALLY, event.position)
                owed = [(e.kind is TaskKind.FINALLY, n) for n, e in enumerate(plan) if e.status is InverseStatus.OWED]
                first = (
                    before is None
                    or len(before.saga.plan) <= event.position
                    or not before.saga.plan[event.position].attempt
                )
                assert not first or all(begun < other for other in owed), "in the order of the plan, final actions last"

    def _one_at_a_time(self) -> None:
        """A compensating run has exactly one open attempt, and it is its running entry's; no other run has one of an inverse."""
        running = [entry for entry in self.run.saga.plan if entry.status is InverseStatus.RUNNING]
        open_rows = [
            row
            for row in self.rows.attempts.values()
            if row.status is AttemptStatus.OPEN and row.task.kind is not TaskKind.STEP
        ]
        assert len(running) == (self.run.saga.status is CompensationStatus.RUNNING)
        assert [(row.task.step_ref, row.task.kind, row.task.attempt) for row in open_rows] == [
            (entry.step_ref, entry.kind, entry.attempt) for entry in running
        ]

    def _planned_as_ruled(self, before: Run | None, transition: Transition) -> None:
        """What the end owes, read off the history and written again, differently from the engine."""
        entries = [e for event in transition.events if isinstance(event, CompensationPlanned) for e in event.entries]
        block = BLOCKS.get(self.run.status)
        spent = set[tuple[str, int]]()
        if before is not None:
            spent = {(e.step_ref, e.source_attempt) for e in before.saga.plan if e.kind is TaskKind.COMPENSATION}
        undo = [
            (e.step_ref, e.source_attempt, e.number)
            for e in entries
            if e.kind is TaskKind.COMPENSATION and e.source_attempt
        ]
        assert not spent & {(ref, attempt) for ref, attempt, _ in undo}, "what is in the plan is not planned again"
        steps = {step.ref: step for step in self.manifest.steps}
        successes = [
            (event.step_ref, event.attempt)
            for t in self.rows.history
            for event in t.events
            if isinstance(event, InverseRegistered)
        ]
        assert spent or undo == [
            (ref, attempt, number)
            for ref, attempt in reversed(successes)
            if block is not None
            for number, _ in enumerate(actions_of(steps[ref], block))
        ], "the last success is undone first, its actions in their order"
        stop = self.run.stop
        skipped = stop is not None and stop.skip_finally
        assert [(e.step_ref, e.number) for e in entries if e.kind is TaskKind.FINALLY] == [
            (step.ref, number)
            for step, node in reversed(list(zip(self.manifest.steps, self.run.nodes, strict=True)))
            if not skipped and (node.status is not NodeStatus.SKIPPED or node.skip_reason is SkipReason.CONDITION)
            for number, _ in enumerate(actions_of(step, CompensationBlock.FINALLY))
        ]

    def check_end(self) -> None:
        """What must hold of every run whose compensation is over, whatever its inverses did."""
        assert self.over
        assert not self.rows.timers
        assert not [row for row in self.rows.attempts.values() if row.status is AttemptStatus.OPEN], "no orphans"
        assert all(count == 1 for count in self.outside.times().values()), "an effect is undone once at most"
        assert all(effect in self.outside.acted for effect, _, _ in self.outside.undone.values())
        self._keys_as_ruled()
        ends = [e.status for t in self.rows.history for e in t.events if isinstance(e, RunEnded)]
        if not set(ends) & set(BLOCKS):
            assert not self.outside.undone, "only failed, timed-out and cancelled runs undo"

    def _keys_as_ruled(self) -> None:
        """Every entry has idempotency keys of its own; the next attempt has the key of before exactly while nobody has said what became of it (A6)."""
        owner: dict[str, int] = {}
        latest: dict[int, int] = {}
        unknown: set[int] = set()
        for event in (e for t in self.rows.history for e in t.events):
            match event:
                case AttemptCreated(position=int(position)):
                    key = idempotency_key("r", event.step_ref, event.item_index, event.logical, event.kind)
                    assert owner.setdefault(key, position) == position
                    assert (latest.get(position) == event.logical) == (position in unknown)
                    latest[position] = event.logical
                case AttemptEnded(position=int(position)):
                    (unknown.add if unsaid(event.outcome, event.fault) else unknown.discard)(position)

    def check_balance(self) -> None:
        """Everybody was heard and every inverse succeeds: no effect is left that the run's end should have undone."""
        block = BLOCKS.get(self.run.status)
        if block is None:
            return
        times = self.outside.times()
        steps = {step.ref: step for step in self.manifest.steps}
        for effect, ref in self.outside.acted.items():
            undone = {
                known: [times[effect, known.value, number] for number, _ in enumerate(actions_of(steps[ref], known))]
                for known in (CompensationBlock.ON_FAILURE, CompensationBlock.ON_CANCEL)
            }
            if actions_of(steps[ref], block):
                assert any(counts and all(counts) for counts in undone.values()), f"{ref} acted and is not undone"
