"""A run and all that it gives birth to, lived under random facts and controls, and checked after every tick.

Knows no law about one control: only what must hold of every run at every moment, whatever operators do to it.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from ductord.engine.decide import decide
from ductord.engine.evolve import fold
from ductord.engine.expressions import programs_for
from ductord.model.control import Control, ControlBody
from ductord.model.decision import Decision, Missing
from ductord.model.enums import (
    AttemptStatus,
    CheckpointStatus,
    CompensationStatus,
    InverseStatus,
    NodeStatus,
    Outcome,
    RaceLosers,
    RunStatus,
    TaskKind,
    TimerKind,
    Verb,
)
from ductord.model.events import NodeReset, RunEnded, RunRedriven
from ductord.model.fault import Fault
from ductord.model.inbox import Inbox
from ductord.model.manifest import Manifest
from ductord.model.run import Run
from tests.engine import fans
from tests.engine.graphs import Fate
from tests.support.births import bear
from tests.support.needs import given
from tests.support.rows import Rows
from tests.support.starts import start_of
from tests.support.tasks import Attempt
from tests.support.world import RUN_ID, START, Transition


class Family:
    """All runs of one definition that descend from one start, under one clock."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.now = START
        self._controls = 0
        start = start_of(run_id=RUN_ID, family_slug="law")
        self.first = Rows(manifest, programs_for(manifest), start)

    @property
    def runs(self) -> list[Rows]:
        return list(self.first.family.values())

    # What may happen

    def ask(self, rows: Rows, verb: Verb, step_ref: str = "", **body: Any) -> Control:
        """An operator's control is accepted; the next tick judges it."""
        self._controls += 1
        control = Control(
            request_id=f"c{self._controls}",
            verb=verb,
            create_time=self.now,
            step_ref=step_ref,
            body=ControlBody(**body),
        )
        rows.controls[control.request_id] = control
        return control

    def play(self, rows: Rows, row: Attempt, fate: Fate) -> None:
        """An attempt is taken and comes to this end."""
        if fate.outcome is not Outcome.QUEUE_TIMED_OUT and not row.lease:
            rows.lease(row, self.now)
        row.outcome, row.report_time = fate.outcome, self.now
        if fate.outcome is Outcome.SUCCEEDED:
            row.output, row.has_output = fate.output, True
        elif fate.outcome is Outcome.FAILED:
            row.fault = Fault(code=fate.code)
            row.non_retryable, row.retry_after_ms = fate.non_retryable, fate.retry_after_ms

    def wait(self) -> None:
        """Let time pass to the next instant at which something is due."""
        due: list[datetime] = []
        for rows in self.runs:
            due += [a.due_time for a in rows.attempts.values() if a.waiting and not a.held]
            due += rows.timers.values()
        self.now = min((d for d in due if d > self.now), default=self.now + timedelta(seconds=1))

    def settle(self, rows: Rows) -> None:
        """Tick a run until nothing more happens, and bear whom it gave birth to."""
        for _ in range(50):
            before, lates = rows.run, tuple(rows._lates())
            # Of a child its row alone says that its report was applied: a closed one is shown to nobody (F1).
            reports = tuple(r for r in rows._reports() if r.kind is not TaskKind.ITEM)
            transition = rows.tick(self.now)
            assert rows.run is not None
            self._check(rows, before, transition)
            inbox = Inbox(start=rows.start, reports=reports, lates=lates, outputs=_outputs(rows))
            if not rows.again:
                again = self._decided(rows, inbox)
                assert not again.events, "a fact twice changes nothing"
                if transition is None:
                    break
        else:
            raise AssertionError("the run does not come to rest")
        for born in rows.born.values():
            if born.run_id not in rows.family:
                bear(rows, born, self.now)

    def finish(self, rows: Rows, fate: Callable[[Attempt], Fate] | None = None) -> None:
        """Nobody holds anything any more, and every task comes to its `fate` (a success, where none is given): the run must come to its end."""
        self.settle(rows)
        for _ in range(300):
            assert rows.run is not None
            if rows.run.status is RunStatus.PAUSED:
                self.ask(rows, Verb.RESUME)
            for step, node in zip(self.manifest.steps, rows.run.nodes, strict=True):
                if node.paused and not node.status.terminal:
                    self.ask(rows, Verb.RESUME_NODE, step.ref)
            ready = [row for row in rows.attempts.values() if row.waiting and not row.held and row.due_time <= self.now]
            for row in ready:
                success = Fate(outcome=Outcome.SUCCEEDED, output={"x": 5, "effect": row.task.idempotency_key})
                self.play(rows, row, fate(row) if fate is not None else success)
            if not ready:
                if rows.run.status.terminal and rows.run.saga.status is not CompensationStatus.RUNNING:
                    return
                self.wait()
            self.settle(rows)
        raise AssertionError("the run does not end")

    def _decided(self, rows: Rows, inbox: Inbox) -> Decision:
        """What a tick with this inbox would decide, which may need what was not given."""
        while isinstance(
            decision := decide(rows.manifest, rows.programs, rows.run, inbox, self.now, rows.limits), Missing
        ):
            assert decision.needs - inbox.given.keys(), decision
            met = {need: given(rows, need) for need in decision.needs}
            inbox = replace(inbox, given={**inbox.given, **met})
        return decision

    # What must hold

    def _check(self, rows: Rows, before: Run | None, transition: Transition | None) -> None:
        run = rows.run
        assert run is not None
        assert fold(self.manifest, run.run_id, ((t.at, t.events) for t in rows.history)) == run
        inbox = Inbox(start=rows.start, outputs=_outputs(rows))
        assert rows.again or self._decided(rows, inbox) == Decision(), "an empty inbox decides nothing"
        assert run.open_nodes == sum(1 for node in run.nodes if not node.status.terminal)
        kinds = {type(event) for event in transition.events} if transition is not None else set()
        if before is not None and before.status.terminal and RunRedriven not in kinds:
            assert (run.status, run.nodes, run.edges) == (before.status, before.nodes, before.edges), (
                "a terminal run stays (G8)"
            )
        if before is not None and not kinds & {RunRedriven, NodeReset}:
            ended = [(was, now) for was, now in zip(before.nodes, run.nodes, strict=False) if was.status.terminal]
            assert all(was == now for was, now in ended), "a terminal node stays"
        if not run.status.terminal and run.status is not RunStatus.PAUSED:
            assert run.open_nodes, "all nodes terminal, run terminal"
        self._attempts(rows, run)
        fans.check(rows, run)
        self._timers(rows, run)
        self._waits(rows, run)
        self._races(rows, run)

    def _attempts(self, rows: Rows, run: Run) -> None:
        """No orphans: an open attempt is the latest of a running node, or of the one entry that is at work."""
        by_ref = {step.ref: node for step, node in zip(self.manifest.steps, run.nodes, strict=True)}
        running = {ref: node for ref, node in by_ref.items() if node.status is NodeStatus.RUNNING and node.fan is None}
        expected = {(ref, node.attempt) for ref, node in running.items()}
        opened = {(a.task.step_ref, a.task.attempt) for a in _open(rows) if a.task.kind is TaskKind.STEP}
        assert opened == expected
        working = [e for e in run.saga.plan if e.status is InverseStatus.RUNNING]
        assert len(working) <= 1
        others = [
            (a.task.step_ref, a.task.item_index, a.task.kind, a.task.attempt)
            for a in _open(rows)
            if a.task.kind in (TaskKind.COMPENSATION, TaskKind.FINALLY)
        ]
        assert others == [(e.step_ref, e.item_index, e.kind, e.attempt) for e in working]
        for row in _open(rows):
            if row.waiting and not row.lease:
                held = run.status is RunStatus.PAUSED or by_ref[row.task.step_ref].paused
                of_node = row.task.kind in (TaskKind.STEP, TaskKind.ITEM)
                assert row.held == (held and of_node), "held as long as an operator says so (C2)"

    def _timers(self, rows: Rows, run: Run) -> None:
        by_ref = {step.ref: node for step, node in zip(self.manifest.steps, run.nodes, strict=True)}
        for kind, ref in rows.timers:
            assert not run.status.terminal, "a terminal run has no timers"
            match kind:
                case TimerKind.TOTAL_TIMEOUT:
                    assert by_ref[ref].status is NodeStatus.RUNNING
                case TimerKind.STOP_GRACE:
                    assert run.stop is not None
                case TimerKind.RUN_TIMEOUT:
                    assert self.manifest.run_timeout_ms is not None
                case TimerKind.NODE_GRACE:
                    assert by_ref[ref].cancelling
                case TimerKind.WAIT | TimerKind.WAIT_TIMEOUT:
                    assert by_ref[ref].status is NodeStatus.WAITING
        for ref, node in by_ref.items():
            if (wait := node.waiting) is not None:
                due = (wait.due_time, wait.timeout_time)
                assert due == tuple(rows.timers.get((k, ref)) for k in (TimerKind.WAIT, TimerKind.WAIT_TIMEOUT))
        for ref, node in by_ref.items():
            if node.cancelling:
                graces = {(TimerKind.STOP_GRACE, ""), (TimerKind.NODE_GRACE, ref)}
                assert graces & rows.timers.keys(), "who was asked to stop has a deadline"

    def _waits(self, rows: Rows, run: Run) -> None:
        """Whatever is not at rest has something that it waits for."""
        parked = any(node.status is NodeStatus.WAITING for node in run.nodes)
        waiting = any(not row.held for row in _open(rows)) or bool(rows.timers) or parked or rows.again
        if not run.status.terminal and not run.held:
            assert waiting
        assert (run.saga.status is CompensationStatus.RUNNING) <= (waiting or not run.status.terminal)
        listening = {
            (step.ref, node.attempt)
            for step, node in zip(self.manifest.steps, run.nodes, strict=True)
            if node.waiting is not None and (node.waiting.event_name or step.event_set is not None)
        }
        assert rows.outside.waits.keys() == listening, "who waits for events listens, and nobody else does (E3)"
        for step, node in zip(self.manifest.steps, run.nodes, strict=True):
            if node.status is NodeStatus.PENDING and not run.held:
                assert any(run.edges[e] == "?" for e in step.incoming), "a pending node waits for an edge"

    def _races(self, rows: Rows, run: Run) -> None:
        """Behind a race that was won, whoever leads to nothing but it has ended or was asked to stop; the winner is of those who succeeded (G7)."""
        steps, edges = self.manifest.steps, self.manifest.edges
        for index, race in enumerate(steps):
            if race.race is None or run.nodes[index].status is not NodeStatus.SUCCEEDED:
                continue
            succeeded = {e for e in race.incoming if run.nodes[edges[e].source].status is NodeStatus.SUCCEEDED}
            if race.ref not in rows.start.preserved:
                assert rows.output_of(race.ref)["winner"] in {steps[edges[e].source].ref for e in succeeded}
            only = {index}
            for before in reversed(range(index)):
                targets = {edges[e].target for e in steps[before].outgoing}
                if race.race.losers is RaceLosers.LET_FINISH or not targets or not targets <= only:
                    continue
                only.add(before)
                node, preserved = run.nodes[before], steps[before].ref in rows.start.preserved
                assert node.status.terminal or node.cancelling or preserved, f"{steps[before].ref} runs for nothing"
                if node.cancelling:
                    assert node.lost or run.stop is not None

    def check_end(self, rows: Rows) -> None:
        """What must hold of every run that has come to its end."""
        run = rows.run
        assert run is not None
        ends = [e for t in rows.history for e in t.events if isinstance(e, RunEnded)]
        redrives = [e for t in rows.history for e in t.events if isinstance(e, RunRedriven)]
        adopted = [t for t in rows.history if t.seq <= rows.start.reset_from_seq]
        assert run.status.terminal
        assert len(ends) == len(redrives) + 1, "one end, and one more for every redrive"
        assert ends[-1].status is run.status
        assert not rows.timers
        assert not any(row.status is AttemptStatus.OPEN for row in rows.attempts.values())
        assert rows.controls.keys() == rows.settled.keys(), "no control stays unapplied (G8)"
        assert not list(rows.outside.kept()), "no signal stays kept (E1)"
        assert not rows.outside.unapplied(), "no receipt stays unapplied (E3)"
        assert run.saga.status is not CompensationStatus.RUNNING
        assert all(entry.status.settled for entry in run.saga.plan)
        assert all(c.status is not CheckpointStatus.PENDING for c in run.checkpoints)
        assert {name: status for name, (status, _) in rows.checkpoints.items()} == {
            known.name: state.status for known, state in zip(self.manifest.checkpoints, run.checkpoints, strict=True)
        }
        assert len(adopted) == rows.start.reset_from_seq


def _open(rows: Rows) -> list[Attempt]:
    return [row for row in rows.attempts.values() if row.status is AttemptStatus.OPEN]


def _outputs(rows: Rows) -> dict[str, Any]:
    assert rows.run is not None
    nodes = zip(rows.manifest.steps, rows.run.nodes, strict=True)
    return {step.ref: rows.output_of(step.ref) for step, node in nodes if node.output is not None}
