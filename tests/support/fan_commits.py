"""What a commit does to the rows of inline children and of child runs, in memory. The base of `commits.Commits`, which writes everything else."""

from datetime import datetime
from typing import TYPE_CHECKING, Any, assert_never, cast

import msgspec
import orjson

from ductord.engine.evolve import fold
from ductord.engine.expressions import Programs
from ductord.model.effects import (
    AdoptHistory,
    QueueTask,
)
from ductord.model.enums import (
    AttemptStatus,
    Outcome,
    TaskKind,
)
from ductord.model.fan_effects import (
    AttachChildren,
    CancelItems,
    CloseChildren,
    CloseItems,
    ControlChildren,
    DetachChildren,
    FanEffect,
    PassChildOn,
    RecordItemFault,
    RecordItems,
    StartChildren,
    TakeChildren,
    TellCheckpoint,
    TellParent,
    TickAgain,
)
from ductord.model.fanout import PAGE
from ductord.model.manifest import Manifest
from ductord.model.run import RunStart
from tests.support.catalogue import Catalogue
from tests.support.kinship import Kinship
from tests.support.naming import task_name
from tests.support.tasks import Attempt, Tasks
from tests.support.world import Transition

if TYPE_CHECKING:
    from tests.support.rows import Rows


class FanCommits(Tasks):
    """What there is of a run's fan-outs. `family`: the rows of all runs that may refer to each other, by id; this one's join them. `catalogue`: what child runs
    can run."""

    def __init__(
        self,
        manifest: Manifest,
        programs: Programs,
        start: RunStart,
        family: "dict[str, Rows] | None",
        catalogue: Catalogue | None,
    ) -> None:
        super().__init__()
        self.manifest = manifest
        self.programs = programs
        self.start = start
        self.family = {} if family is None else family
        self.kinship: Kinship = next((rows.kinship for rows in self.family.values()), None) or Kinship(catalogue)
        self.history: list[Transition] = []
        self.begin_time: datetime | None = None
        """When it is to begin; None: at once."""
        self.put_off: dict[str, datetime] = {}
        """Controls by request id that are to be seen to later."""
        self.pages: dict[tuple[str, int], tuple[list[Any], ...]] = {}
        """Frozen collections, by step and the number of the expansion."""
        self.again = False
        """Whether the last tick had the run woken for another."""
        self._seq = 0
        """The transition that is being committed; 0: none."""

    def _store_fans(self, effect: FanEffect, now: datetime) -> None:
        run_id, rows = self.start.run_id, cast("Rows", self)
        match effect:
            case RecordItems():
                key = (effect.step_ref, effect.attempt)
                assert key not in self.pages, f"{key} is expanded twice"
                self.pages[key] = tuple(orjson.loads(page) for page in effect.pages)
                assert all(len(page) == PAGE for page in self.pages[key][:-1])
            case CancelItems():
                for row in self._open_items(effect.step_ref):
                    self._ask(row, now)
            case CloseItems():
                for row in self._open_items(effect.step_ref):
                    assert row.outcome is None, f"{row.name}#{row.task.attempt} was reported on, and not judged"
                    row.status = effect.status
            case RecordItemFault():
                self._record_item_fault(effect, now)
            case StartChildren():
                self.kinship.start(rows, effect, now)
            case AttachChildren():
                self.kinship.attach(rows, effect, now)
            case TakeChildren():
                self.kinship.take(run_id, effect, now)
            case ControlChildren():
                self.kinship.control(rows, effect, now)
            case DetachChildren():
                self.kinship.detach(run_id, effect.step_ref)
            case CloseChildren():
                self.kinship.close(rows, effect, self._seq, now)
            case TellParent():
                self.kinship.tell_end(run_id, effect, now)
            case TellCheckpoint():
                self.kinship.tell_checkpoint(run_id, effect, now)
            case PassChildOn():
                self.kinship.pass_on(run_id, effect.run_id)
            case TickAgain():
                self.again = True
            case _:
                assert_never(effect)

    def _open_items(self, step_ref: str) -> list[Attempt]:
        rows = (row for row in self.attempts.values() if row.status is AttemptStatus.OPEN)
        return [row for row in rows if (row.task.step_ref, row.task.kind) == (step_ref, TaskKind.ITEM)]

    def _ask(self, row: Attempt, now: datetime) -> None:
        row.asked = True
        if row.waiting and not row.lease:
            # Nobody works on it: there is nothing to wait for.
            row.outcome, row.report_time = Outcome.REVOKED, now

    def _record_item_fault(self, effect: RecordItemFault, now: datetime) -> None:
        """Of a child that never came to an attempt there is a row from now on that has failed."""
        name = task_name(effect.step_ref, TaskKind.ITEM, effect.item_index)
        row = self.attempts.get((name, effect.attempt))
        if row is None:
            task = QueueTask(
                step_ref=effect.step_ref,
                attempt=effect.attempt,
                kind=TaskKind.ITEM,
                item_index=effect.item_index,
                idempotency_key="",
                action="",
                queue="",
                due_time=now,
            )
            row = Attempt(task=task, due_time=now, input=None, outcome=Outcome.FAILED, report_time=now)
            self.attempts[name, effect.attempt] = row
        row.status, row.fault = AttemptStatus.FAILED, effect.fault

    def _adopt_children(self, source: "Rows", effect: AdoptHistory) -> None:
        """What gathers to come may read: the latest attempts of inline children, and how child runs had ended."""
        point = fold(self.manifest, self.start.run_id, ((t.at, t.events) for t in self.history))
        tops = {step.ref: node.attempt for step, node in zip(self.manifest.steps, point.nodes, strict=True)}
        self.kinship.adopt(self.start.run_id, source.start.run_id, {ref: tops[ref] for ref in effect.children})
        for key, row in source.attempts.items():
            of = row.task
            if (
                of.kind is TaskKind.ITEM
                and of.attempt <= effect.items.get(of.step_ref, 0)
                and row.status is not AttemptStatus.OPEN
            ):
                self.attempts[key] = msgspec.structs.replace(row, late=None)
