"""What a commit does to the rows of one run, in memory. The base of `rows.Rows`, which loads and decides.

Holds the same promises as the real rows: a verdict closes an attempt for good, one timer per key, nothing is told twice.
"""

from datetime import datetime
from typing import TYPE_CHECKING, cast

import msgspec
import orjson

from ductord.engine.evolve import fold
from ductord.engine.expressions import Programs
from ductord.engine.limits import LIMITS, Limits
from ductord.model.control import Control
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
    TimerKind,
)
from ductord.model.inbox import Receipt
from ductord.model.manifest import Manifest
from ductord.model.run import Inverse, Run, RunStart
from tests.support.catalogue import Catalogue
from tests.support.digests import Digests
from tests.support.fan_commits import FanCommits
from tests.support.naming import task_name
from tests.support.outside import Outside
from tests.support.tasks import Attempt

if TYPE_CHECKING:
    from tests.support.rows import Rows


class Commits(FanCommits):
    """Everything stored of one run. `family`: the rows of all runs that may refer to each other, by id; this one's join them. `catalogue`: what child runs
    can run."""

    def __init__(
        self,
        manifest: Manifest,
        programs: Programs,
        start: RunStart,
        family: "dict[str, Rows] | None" = None,
        catalogue: Catalogue | None = None,
    ) -> None:
        super().__init__(manifest, programs, start, family, catalogue)
        self.limits: Limits = LIMITS
        self.digests: Digests = next((rows.digests for rows in self.family.values()), None) or Digests()
        self.family[start.run_id] = cast("Rows", self)
        self.controls: dict[str, Control] = {}
        self.settled: dict[str, SettleControl] = {}
        self.settle_times: dict[str, datetime] = {}
        self.born: dict[str, StartRun] = {}
        self.ledger: dict[int, Inverse] = {}
        self.audit: dict[str, RecordAudit] = {}
        self.run: Run | None = None
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

    @property
    def asked(self) -> list[Control]:
        """The controls in the order of their creation; of one instant those of operators first, as they came, then those of parents, by id."""

        def place(control: Control) -> tuple[datetime, bool, str]:
            of_parent = control.actor.startswith("run:")
            return control.create_time, of_parent, control.request_id if of_parent else ""

        return sorted(self.controls.values(), key=place)

    def _store(self, effect: Effect, now: datetime) -> None:
        match effect:
            case QueueTask():
                self._queue(effect)
            case CloseAttempt():
                row = self._attempt(effect)
                if row.status is AttemptStatus.OPEN:
                    row.status = effect.status
            case RequestCancel():
                self._ask(self._attempt(effect), now)
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
                self._attempt(effect).late_judged = True
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
                self._move(effect)
            case _:
                self._store_fans(effect, now)

    def _attempt(self, of: CloseAttempt | RequestCancel | CloseLate) -> Attempt:
        return self.attempts[task_name(of.step_ref, of.kind, of.item_index), of.attempt]

    def _queue(self, effect: QueueTask) -> None:
        name = task_name(effect.step_ref, effect.kind, effect.item_index)
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

    def _move(self, effect: MoveSignals) -> None:
        successor = self.family.get(effect.run_id)
        for name in effect.request_ids:
            self.moved[name] = effect.run_id
            if successor is not None:
                successor.outside.tell(*self.outside.signals[name])
            self.outside.settle(
                SettleSignal(request_id=name, status=SignalStatus.APPLIED, message="forwarded to the successor")
            )

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
        if (successor := self.family.get(effect.run_id)) is not None:
            successor.controls.setdefault(effect.request_id, self.controls[effect.request_id])

    def forwarded(self, run_id: str) -> list[Control]:
        """The controls that were handed on to this successor."""
        return [
            self.controls[name]
            for name, effect in self.settled.items()
            if effect.result.get("forwarded_to_run_id") == run_id
        ]

    def _folded(self, seq: int | None = None) -> Run:
        return fold(self.manifest, self.start.run_id, ((t.at, t.events) for t in self.history[:seq]))

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
        self._adopt_children(source, effect)
