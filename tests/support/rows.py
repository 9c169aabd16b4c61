"""The rows of one run, in memory: what the coordinator's commit and dispatch's leases would keep in Postgres.

Holds the same promises as the real rows: an outcome is written once (first writer wins), a lease is fenced, a verdict closes an attempt for good,
one timer per key. It decides nothing; `tick` only loads, calls `decide`, checks what `evolve` makes of it, and stores.
"""

from datetime import datetime
from typing import Any, assert_never

import msgspec
import orjson

from ductord.engine.decide import decide
from ductord.engine.evolve import evolve, fold
from ductord.engine.expressions import Programs
from ductord.engine.limits import LIMITS, Limits
from ductord.model import events as history
from ductord.model.control import Control
from ductord.model.decision import Missing
from ductord.model.effects import (
    AdoptHistory,
    ClearCheckpoint,
    ClearTimers,
    CloseAttempt,
    CloseDigest,
    CloseLate,
    CloseWait,
    Effect,
    FlushDigest,
    ForwardControl,
    HoldTasks,
    JoinDigest,
    LeaveDigest,
    MoveSignals,
    OpenWait,
    QueueTask,
    RecordAudit,
    RecordCheckpoint,
    RecordInverse,
    RecordOutput,
    RecordResult,
    ReleaseTasks,
    RequestCancel,
    SetTimer,
    SettleControl,
    SettleSignal,
    StartRun,
    TakeDigest,
    TakeReceipts,
)
from ductord.model.enums import (
    AttemptStatus,
    CheckpointStatus,
    OperationStatus,
    Outcome,
    SignalStatus,
    TaskKind,
    TimerKind,
    Verb,
)
from ductord.model.inbox import Inbox, Origin, Receipt, SourceKey, TimerDue
from ductord.model.manifest import Manifest
from ductord.model.run import Inverse, Run, RunStart
from tests.support.digests import Digests
from tests.support.outside import Outside
from tests.support.tasks import Attempt, Tasks
from tests.support.world import Transition, task_name


class Rows(Tasks):
    """Everything stored of one run. `family`: the rows of all runs that may refer to each other, by id; this one's join them."""

    def __init__(
        self, manifest: Manifest, programs: Programs, start: RunStart, family: "dict[str, Rows] | None" = None
    ) -> None:
        super().__init__()
        self.manifest = manifest
        self.programs = programs
        self.start = start
        self.limits: Limits = LIMITS
        self.family = {} if family is None else family
        self.digests: Digests = next((rows.digests for rows in self.family.values()), None) or Digests()
        self.family[start.run_id] = self
        self.controls: dict[str, Control] = {}
        self.settled: dict[str, SettleControl] = {}
        self.settle_times: dict[str, datetime] = {}
        self.born: dict[str, StartRun] = {}
        self.ledger: dict[int, Inverse] = {}
        self.audit: dict[str, RecordAudit] = {}
        self.run: Run | None = None
        self.history: list[Transition] = []
        self.timers: dict[tuple[TimerKind, str], datetime] = {}
        self.checkpoints: dict[str, tuple[CheckpointStatus, dict[str, int]]] = {}
        self.result: RecordResult | None = None
        self.outside = Outside()
        self.told_in: dict[str | Receipt, int] = {}
        """The transition in which a signal or a receipt was dealt with; 0: none was made by it."""
        self.told_at: dict[str, datetime] = {}
        """When a signal was settled."""
        self.moved: dict[str, str] = {}
        """Signals that went on to a successor: its id by request id."""

    # The coordinator's side

    def tick(self, now: datetime) -> Transition | None:
        """One tick; the transition it committed, if it changed anything."""
        reports = tuple(self._reports())
        lates = tuple(self._lates())
        controls = tuple(c for name, c in self.controls.items() if name not in self.settled)
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
        signals = tuple(self.outside.kept())
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
            )
            decision = decide(self.manifest, self.programs, self.run, inbox, now, self.limits)
            if not isinstance(decision, Missing):
                break
            new = decision.steps - outputs.keys()
            wanted = decision.sources - sources.keys()
            letters = decision.payloads - payloads.keys()
            assert new or wanted or letters, "decide asks for what it was given"
            outputs |= {ref: self._output(ref, origin) for ref in new}
            sources |= {key: self.source_output(key) for key in wanted}
            payloads |= {key: self._payload(key) for key in letters}
        for effect in sorted(decision.effects, key=_commit_order):
            self._store(effect, now)
        seq = decision.run.seq if decision.run is not None else 0
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

    def _folded(self, seq: int | None = None) -> Run:
        return fold(self.manifest, self.start.run_id, ((t.at, t.events) for t in self.history[:seq]))

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
        run_id, ref, _, number = key
        row = self.family[run_id].attempts[ref, number]
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

    def _store(self, effect: Effect, now: datetime) -> None:
        match effect:
            case QueueTask():
                name = task_name(effect.step_ref, effect.kind)
                key = (name, effect.attempt)
                assert key not in self.attempts, f"{key} is dispatched twice"
                before = self.attempts[name, effect.retry_of] if effect.retry_of is not None else None
                self.attempts[key] = Attempt(
                    task=effect,
                    due_time=effect.due_time,
                    held=effect.held,
                    input=before.input if before else orjson.loads(effect.input_json),
                    previous_details=(before.details or before.previous_details) if before else None,
                )
            case CloseAttempt():
                row = self.attempts[task_name(effect.step_ref, effect.kind), effect.attempt]
                if row.status is AttemptStatus.OPEN:
                    row.status = effect.status
            case RequestCancel():
                row = self.attempts[task_name(effect.step_ref, effect.kind), effect.attempt]
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
                self.result = effect
            case ClearCheckpoint():
                del self.checkpoints[effect.name]
            case HoldTasks() | ReleaseTasks():
                self._hold(effect, now)
            case CloseLate():
                self.attempts[task_name(effect.step_ref, effect.kind), effect.attempt].late_judged = True
            case SettleControl():
                assert effect.request_id not in self.settled, f"{effect.request_id} is settled twice"
                assert effect.request_id in self.controls
                self.settled[effect.request_id] = effect
                self.settle_times[effect.request_id] = now
            case ForwardControl():
                self.settle_times[effect.request_id] = now
                self._forward(effect)
            case StartRun():
                assert effect.run_id not in self.born, "a run is born twice"
                self.born[effect.run_id] = effect
            case AdoptHistory():
                self._adopt(effect)
            case RecordInverse():
                self.ledger[effect.position] = effect.entry
            case RecordAudit():
                assert effect.key not in self.audit
                self.audit[effect.key] = effect
            case RecordOutput():
                self._record_output(effect, now)
            case OpenWait():
                self.outside.open(effect, now)
            case CloseWait():
                self.outside.close(effect)
            case TakeReceipts():
                self.outside.take(effect)
            case JoinDigest():
                self.digests.join(self.start, effect, now)
            case TakeDigest():
                self.digests.take(self.start.run_id, effect)
            case CloseDigest():
                self.digests.close(effect.window_id)
            case FlushDigest():
                self.digests.flush(effect.window_id, now)
            case LeaveDigest():
                self.digests.leave(self.start.run_id, effect)
            case SettleSignal():
                self.outside.settle(effect)
            case MoveSignals():
                for name in effect.request_ids:
                    self.moved[name] = effect.run_id
                    self.outside.settle(
                        SettleSignal(request_id=name, status=SignalStatus.APPLIED, message="forwarded to the successor")
                    )
            case _:
                assert_never(effect)

    def _record_output(self, effect: RecordOutput, now: datetime) -> None:
        """The row of an attempt that nobody worked for: born a success."""
        key = (effect.step_ref, effect.attempt)
        assert key not in self.attempts, f"{key} has an output already"
        task = QueueTask(
            step_ref=effect.step_ref,
            attempt=effect.attempt,
            idempotency_key="",
            action=effect.action,
            queue="",
            due_time=effect.begin_time,
            input_json="null",
        )
        self.attempts[key] = Attempt(
            task=task,
            due_time=effect.begin_time,
            input=None,
            status=AttemptStatus.SUCCEEDED,
            outcome=Outcome.SUCCEEDED,
            start_time=effect.begin_time,
            report_time=now,
            output=orjson.loads(effect.output_json),
            has_output=True,
        )

    def _forward(self, effect: ForwardControl) -> None:
        self.settled[effect.request_id] = SettleControl(
            request_id=effect.request_id,
            status=OperationStatus.APPLIED,
            message="forwarded to the successor",
            result={"forwarded_to_run_id": effect.run_id},
        )

    def forwarded(self, run_id: str) -> list[Control]:
        """The controls that were handed on to this successor."""
        return [
            self.controls[name]
            for name, effect in self.settled.items()
            if effect.result.get("forwarded_to_run_id") == run_id
        ]

    def _adopt(self, effect: AdoptHistory) -> None:
        source = self.family[effect.source_run_id]
        self.history = [t for t in source.history if t.seq <= effect.seq]
        outputs = set(effect.outputs.items())
        for state, checkpoint in zip(self._folded().checkpoints, self.manifest.checkpoints, strict=True):
            if state.status is CheckpointStatus.REACHED:
                self.checkpoints[checkpoint.name] = source.checkpoints[checkpoint.name]
                outputs |= source.checkpoints[checkpoint.name][1].items()
        for ref, attempt in sorted(outputs):
            row = source.attempts[ref, attempt]
            self.attempts[ref, attempt] = msgspec.structs.replace(
                row,
                status=AttemptStatus.SUCCEEDED,
                outcome=Outcome.SUCCEEDED,
                output=source.source_output((effect.source_run_id, ref, -1, attempt)),
                has_output=True,
                late=None,
            )


def _commit_order(effect: Effect) -> int:
    """The order in which the commit's statements run: adopting, listening, closing, asking, releasing, holding, queueing, clearing, setting, telling."""
    order = (
        AdoptHistory,
        TakeReceipts,
        CloseWait,
        OpenWait,
        TakeDigest,
        LeaveDigest,
        CloseDigest,
        FlushDigest,
        JoinDigest,
        CloseAttempt,
        CloseLate,
        RequestCancel,
        ReleaseTasks,
        HoldTasks,
        QueueTask,
        RecordOutput,
        ClearTimers,
        SetTimer,
        ClearCheckpoint,
        RecordCheckpoint,
        RecordResult,
        RecordInverse,
        StartRun,
        SettleControl,
        ForwardControl,
        SettleSignal,
        MoveSignals,
        RecordAudit,
    )
    return order.index(type(effect))
