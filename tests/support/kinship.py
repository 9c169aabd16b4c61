"""Runs that are children of other runs' nodes, in memory: what the coordinator's commit would keep in rows, for all runs of a story.

Holds the promises of the real rows: a child is born once, in the commit that knows of it; there is one row per node's attempt and index; an end is told once,
and shown until it is taken.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
import orjson

from ductord.model.control import Control
from ductord.model.enums import CheckpointStatus, RunStatus, Verb
from ductord.model.fan_effects import (
    AttachChildren,
    CloseChildren,
    ControlChildren,
    StartChildren,
    TakeChildren,
    TellCheckpoint,
    TellParent,
)
from ductord.model.fanout import ClosePolicy
from ductord.model.fault import Fault
from ductord.model.ids import control_id
from ductord.model.inbox import ChildFact
from ductord.model.run import RunStart
from tests.support.catalogue import Catalogue

if TYPE_CHECKING:
    from tests.support.rows import Rows


class ChildRow(msgspec.Struct, kw_only=True):
    """A child of a node's attempt. `run_id`: as it is now. `end_time`: when it ended, or reached what was waited for; `status`: its end."""

    parent_run_id: str
    step_ref: str
    item_index: int
    attempt: int
    first_run_id: str
    run_id: str
    sync: bool = True
    checkpoint: str = ""
    close_policy: ClosePolicy = ClosePolicy.REQUEST_CANCEL
    detached: bool = False
    end_time: datetime | None = None
    status: RunStatus | None = None
    checkpoint_status: CheckpointStatus | None = None
    fault: Fault | None = None
    applied_time: datetime | None = None

    @property
    def open(self) -> bool:
        """Whether it belongs to its parent and has not ended: what becomes of the parent becomes of it, as its policy says."""
        return self.status is None and not self.detached


class Kinship:
    """The rows of all children, in the order of their birth."""

    def __init__(self, catalogue: Catalogue | None = None) -> None:
        self.catalogue = catalogue or Catalogue()
        self.rows: list[ChildRow] = []
        self._places: set[tuple[str, str, int, int]] = set()

    # What is seen

    def facts(self, run_id: str) -> tuple[ChildFact, ...]:
        """What a run's tick is shown of its children."""
        new = [
            row
            for row in self.rows
            if row.parent_run_id == run_id
            and row.end_time is not None
            and row.applied_time is None
            and row.sync
            and not row.detached
        ]
        return tuple(
            ChildFact(
                step_ref=row.step_ref,
                attempt=row.attempt,
                item_index=row.item_index,
                run_id=row.run_id,
                time=row.end_time,
                status=row.status,
                checkpoint=row.checkpoint_status,
                fault=row.fault,
            )
            for row in sorted(new, key=lambda row: (row.end_time, row.run_id))
            if row.end_time is not None
        )

    def latest(self, run_id: str, step_ref: str, top: int = 2**31 - 1) -> list[ChildRow]:
        """The children of a node, of the latest attempt (up to `top`) per index, in order of index."""
        rows = [r for r in self.rows if (r.parent_run_id, r.step_ref) == (run_id, step_ref) and r.attempt <= top]
        by_index = {row.item_index: row for row in sorted(rows, key=lambda row: row.attempt)}
        return [row for _, row in sorted(by_index.items())]

    def of(self, run_id: str) -> list[ChildRow]:
        """All children of a run, once each: as those of the latest attempt whose they are; by step, attempt and index."""
        rows = [row for row in self.rows if row.parent_run_id == run_id]
        by_run = {(row.step_ref, row.run_id): row for row in sorted(rows, key=lambda row: row.attempt)}
        return sorted(by_run.values(), key=lambda row: (row.step_ref, row.attempt, row.item_index))

    def _open(self, run_id: str, step_ref: str | None = None) -> Iterator[ChildRow]:
        return (
            row for row in self.rows if row.parent_run_id == run_id and step_ref in (None, row.step_ref) and row.open
        )

    # What the parent's commit does

    def start(self, parent: "Rows", effect: StartChildren, now: datetime) -> None:
        """Give birth to children."""
        version = self.catalogue.version(effect.version_id)
        assert (version.definition_id, version.number) == (effect.definition_id, effect.version)
        of = parent.start
        for birth in effect.births:
            assert birth.run_id not in parent.family, f"{effect.step_ref}[{birth.item_index}] is born twice"
            start = RunStart(
                tenant_id=of.tenant_id,
                run_id=birth.run_id,
                definition_id=effect.definition_id,
                version_id=effect.version_id,
                version=effect.version,
                family_slug=effect.family_slug,
                create_time=now,
                subject_type=of.subject_type,
                subject_id=of.subject_id,
                labels=of.labels,
                payload=orjson.loads(birth.input_json),
                variables=version.manifest.variables,
                tier=effect.tier,
                traceparent=of.traceparent,
                root_run_id=of.root_run_id or of.run_id,
                parent_run_id=of.run_id,
                nesting_depth=of.nesting_depth + 1,
                journey_id=of.journey_id,
                actor=of.actor,
            )
            child = type(parent)(version.manifest, version.programs, start, parent.family)
            child.begin_time = birth.due_time
            child.outside.events = parent.outside.events
            self._add(
                ChildRow(
                    parent_run_id=of.run_id,
                    step_ref=effect.step_ref,
                    item_index=birth.item_index,
                    attempt=effect.attempt,
                    first_run_id=birth.run_id,
                    run_id=birth.run_id,
                    sync=effect.sync,
                    checkpoint=effect.checkpoint,
                    close_policy=effect.close_policy,
                )
            )

    def attach(self, parent: "Rows", effect: AttachChildren, now: datetime) -> None:
        """Runs that there are become children of the node's present attempt. What the parent knew of an open one by an older attempt is put away. One that is
        not to be redriven is followed to where it goes on, and of its end the parent is told at once."""
        parent_id = parent.start.run_id
        for place, (index, run_id) in enumerate(effect.children):
            older = [
                row
                for row in self.rows
                if (row.run_id, row.step_ref, row.item_index) == (run_id, effect.step_ref, index)
            ]
            source = [row for row in older if row.parent_run_id == (effect.from_run_id or parent_id)]
            for row in older:
                if row.parent_run_id == parent_id and row.status is None:
                    row.detached = True
            row = ChildRow(
                parent_run_id=parent_id,
                step_ref=effect.step_ref,
                item_index=index,
                attempt=effect.attempt,
                first_run_id=source[-1].first_run_id if source else run_id,
                run_id=run_id,
                checkpoint=effect.checkpoint,
                close_policy=effect.close_policy,
            )
            self._add(row)
            if effect.redrive:
                request_id = control_id(parent_id, effect.step_ref, Verb.REDRIVE, effect.request_id)
                reason = "its parent run is redriven"
                self._send(parent, row, Verb.REDRIVE, request_id, reason, now)
                if effect.due_times:
                    parent.family[run_id].put_off[request_id] = effect.due_times[place]
            else:
                self._look(parent, row, now)

    def _look(self, parent: "Rows", row: ChildRow, now: datetime) -> None:
        """What has become of a child in the meantime."""
        child = parent.family[row.run_id]
        while child.run is not None and child.run.continued_to_run_id:
            row.run_id = child.run.continued_to_run_id
            child = parent.family[row.run_id]
        if child.run is not None and child.run.status.terminal:
            row.end_time, row.status, row.fault = now, child.run.status, child.run.fault
        if row.checkpoint in child.checkpoints:
            row.end_time, row.checkpoint_status = now, child.checkpoints[row.checkpoint][0]

    def adopt(self, run_id: str, source_run_id: str, tops: dict[str, int]) -> None:
        """What a reset run keeps of finished fan-outs: how children of these steps had ended, up to this attempt of the node (C5)."""
        kept = [
            row
            for row in self.rows
            if row.parent_run_id == source_run_id
            and row.status is not None
            and row.attempt <= tops.get(row.step_ref, -1)
        ]
        for row in kept:
            self._add(msgspec.structs.replace(row, parent_run_id=run_id))

    def _add(self, row: ChildRow) -> None:
        place = (row.parent_run_id, row.step_ref, row.item_index, row.attempt)
        assert place not in self._places, f"{place} has a child already"
        self._places.add(place)
        self.rows.append(row)

    def take(self, run_id: str, effect: TakeChildren, now: datetime) -> None:
        """The parent has gone by what it was told."""
        for row in self.rows:
            if row.parent_run_id == run_id and row.run_id in effect.run_ids and row.end_time is not None:
                row.applied_time = row.applied_time or now

    def control(self, parent: "Rows", effect: ControlChildren, now: datetime) -> None:
        """Send a control to the open children of a node."""
        run_id = parent.start.run_id
        request_id = control_id(run_id, effect.step_ref, effect.verb, effect.key)
        for row in self._open(run_id, effect.step_ref):
            self._send(parent, row, effect.verb, request_id, effect.reason, now)

    def detach(self, run_id: str, step_ref: str) -> None:
        """The open children of a node are let go."""
        for row in list(self._open(run_id, step_ref)):
            row.detached = True

    def close(self, parent: "Rows", effect: CloseChildren, seq: int, now: datetime) -> None:
        """The run has ended in this transition: its open children get what their policy says, or are the successor's (F5, C6). Nobody waits for them any
        more."""
        run_id = parent.start.run_id
        closed = list(self._open(run_id))
        handed = [row for row in closed if not row.sync or row.end_time is not None]
        for row in closed:
            verb = _CLOSING[row.close_policy]
            if effect.continued_to_run_id and row in handed:
                # Numbers that no attempt of the successor's own node will have.
                of_place = [r.attempt for r in handed if (r.step_ref, r.item_index) == (row.step_ref, row.item_index)]
                changed = {"parent_run_id": effect.continued_to_run_id, "attempt": row.attempt - max(of_place)}
                self._add(msgspec.structs.replace(row, sync=False, **changed, **_UNTOLD))
            elif verb is not None and not (effect.status is RunStatus.TIMED_OUT and verb is Verb.CANCEL):
                reason = f"its parent run ended: {effect.status}"
                self._send(parent, row, verb, control_id(run_id, "", verb, f"close:{seq}"), reason, now)
            if row.end_time is None:
                row.sync = False
        if effect.continued_to_run_id:
            for row in handed:
                row.detached = True

    def _send(self, parent: "Rows", row: ChildRow, verb: Verb, request_id: str, reason: str, now: datetime) -> None:
        """A control of a child, as an operator would send it: once per request id."""
        control = Control(
            request_id=request_id,
            verb=verb,
            create_time=now,
            actor=f"run:{parent.start.run_id}",
            reason=reason,
        )
        parent.family[row.run_id].controls.setdefault(request_id, control)

    # What a child's commit tells

    def tell_end(self, run_id: str, effect: TellParent, now: datetime) -> None:
        """The run has ended."""
        for row in self.rows:
            if row.run_id == run_id and row.status is None:
                row.status, row.fault = effect.status, effect.fault
                row.end_time = row.end_time or now

    def tell_checkpoint(self, run_id: str, effect: TellCheckpoint, now: datetime) -> None:
        """The run has come to a checkpoint, or never will."""
        for row in self.rows:
            if row.run_id == run_id and row.checkpoint == effect.name and row.end_time is None:
                row.checkpoint_status, row.end_time = effect.status, now

    def pass_on(self, run_id: str, successor: str) -> None:
        """The run goes on as another."""
        for row in self.rows:
            if row.run_id == run_id and row.status is None:
                row.run_id = successor


_UNTOLD: dict[str, Any] = {"end_time": None, "applied_time": None, "checkpoint_status": None}
_CLOSING = {
    ClosePolicy.REQUEST_CANCEL: Verb.CANCEL,
    ClosePolicy.TERMINATE: Verb.TERMINATE,
    ClosePolicy.ABANDON: None,
}
