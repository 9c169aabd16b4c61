"""Which reports and late successes a transition judged: of the attempts that its events give a last word on. For replay."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ductord.engine.ledger import keys_of
from ductord.model.enums import InverseStatus, Outcome, TaskKind
from ductord.model.events import AttemptEnded, Event, InverseEnded, InverseRegistered
from ductord.model.fan_events import ChildFailed, ChildrenCancelled, ChildrenSucceeded
from ductord.model.inbox import AttemptReport, LateSuccess
from ductord.model.recording import AttemptLine, Recording, TransitionLine
from ductord.model.run import Run

AttemptKey = tuple[str, TaskKind, int, int]
"""Step ref, kind, item index, number."""


class ReplayError(Exception):
    """The recording does not hold what its own history names."""


class Attempts:
    """The attempts of a recording."""

    def __init__(self, recording: Recording) -> None:
        self._rows: dict[AttemptKey, AttemptLine] = {
            (a.step_ref, a.kind, a.item_index, a.attempt): a for a in recording.attempts
        }

    def row(self, key: AttemptKey) -> AttemptLine | None:
        """An attempt, if the recording has it."""
        return self._rows.get(key)

    def output(self, ref: str, attempt: int) -> Any:
        """What an attempt of a step gave. Raises KeyError for one that is not in the recording."""
        return self._rows[ref, TaskKind.STEP, -1, attempt].output

    def reports(self, line: TransitionLine) -> Iterator[AttemptReport]:
        """The reports that the transition judged: of the attempts that it ended, unless the engine itself had ended them; and successes that a timer of the
        same transition had overtaken, and that were registered as the late ones they are (C7)."""
        told: dict[AttemptKey, AttemptReport] = {}
        for event in line.events:
            for key, outcome in _judged(event):
                row = self._rows.get(key)
                if row is None and isinstance(event, AttemptEnded):
                    raise ReplayError(f"attempt {event.attempt} of {event.step_ref} is not in the recording")
                if row is None or row.outcome is None or row.report_time is None or row.report_time > line.at:
                    continue
                if not row.idempotency_key:
                    continue  # A row that nobody worked for: an inline child that could not be made.
                if outcome in (None, row.outcome):
                    told[key] = _report(row, row.outcome, row.report_time)
        yield from sorted(told.values(), key=lambda r: (r.report_time, r.step_ref, r.item_index, r.kind, r.attempt))

    def lates(self, line: TransitionLine, run: Run | None) -> Iterator[LateSuccess]:
        """The late successes that changed something: of an action that was registered by it, of an inverse whose entry it settled."""
        rows: list[AttemptLine | None] = []
        for event in line.events:
            if isinstance(event, InverseRegistered) and event.late:
                row = self._rows.get(_acted(event))
                if row is None or row.outcome is not Outcome.SUCCEEDED:
                    rows.append(row)
            elif isinstance(event, InverseEnded) and event.status is InverseStatus.DONE and not event.request_id:
                rows += self._undone_late(line, event, run)
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

    def _undone_late(self, line: TransitionLine, event: InverseEnded, run: Run | None) -> list[AttemptLine]:
        """The late success behind the end of an entry, unless an attempt's report is behind it: it shows a key of the entry."""
        reported = (e for e in line.events if isinstance(e, AttemptEnded) and e.outcome is Outcome.SUCCEEDED)
        if run is None or any(e.position == event.position for e in reported):
            return []
        keys = keys_of(run.run_id, run.saga.plan[event.position])
        known = (a for a in self._rows.values() if a.idempotency_key in keys and a.late_time is not None)
        return [a for a in known if a.late_time is not None and a.late_time <= line.at]


def _judged(event: Event) -> Iterator[tuple[AttemptKey, Outcome | None]]:
    """The attempts that the event says the last word on, with the outcome that it names."""
    match event:
        case AttemptEnded(outcome=outcome):
            yield (event.step_ref, event.kind, event.item_index, event.attempt), outcome
        case InverseRegistered(late=True):
            # A timer of the same tick overtook the report of a success.
            yield _acted(event), Outcome.SUCCEEDED
        case ChildrenSucceeded(step_ref=ref, children=children):
            yield from (((ref, TaskKind.ITEM, *pair), Outcome.SUCCEEDED) for pair in children if pair[1])
        case ChildrenCancelled(step_ref=ref, children=children):
            yield from (((ref, TaskKind.ITEM, *pair), None) for pair in children if pair[1])
        case ChildFailed(step_ref=ref, item_index=index, attempt=attempt) if attempt:
            yield (ref, TaskKind.ITEM, index, attempt), None
        case _:
            pass


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
        item=row.item,
    )


def _acted(event: InverseRegistered) -> AttemptKey:
    """The attempt that the registration is about."""
    kind = TaskKind.STEP if event.item_index < 0 else TaskKind.ITEM
    return event.step_ref, kind, event.item_index, event.attempt
