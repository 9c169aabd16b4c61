"""What the log is told of committed ticks: attempts that came to nothing, runs that ended, controls that were settled, each with the ids to look it up by.

Bounded by what goes wrong, not by what goes well: runs that completed in one tick share a line, and each has one of its own at debug only. Called after
the commit, so that nothing is told which a rollback took back. Codes are told, messages are not: a message may quote a payload (OB-01).
"""

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Final

from ductord.coordinator.decided import Decided
from ductord.model.effects import ForwardControl, RecordInverse, SettleControl
from ductord.model.enums import CompensationStatus, OperationStatus, Outcome, RunStatus
from ductord.model.events import AttemptEnded, CompensationEnded, HistoryLong, InverseEnded, RunEnded, RunRedriven

_log: Final = logging.getLogger("ductor.coordinator")

_WORDS: Final = {
    Outcome.FAILED: "an attempt failed",
    Outcome.TIMED_OUT: "an attempt ran out of time",
    Outcome.HEARTBEAT_TIMED_OUT: "an attempt fell silent",
    Outcome.QUEUE_TIMED_OUT: "no worker took an attempt in time",
    Outcome.LOST: "an attempt was lost with its worker",
    Outcome.RELEASED: "an attempt was given back",
    Outcome.REVOKED: "an attempt was revoked",
}

_WORTH_A_LINE: Final = frozenset({RunEnded, RunRedriven, HistoryLong, InverseEnded, CompensationEnded})
_SUCCEEDED: Final = Outcome.SUCCEEDED
_FORWARDED: Final = "forwarded"


class Told:
    """Counts for metrics: settled controls by verb and outcome, settled ledger entries by status."""

    __slots__ = ("controls", "inverses")

    def __init__(self) -> None:
        self.controls: Counter[tuple[str, str]] = Counter()
        self.inverses: Counter[str] = Counter()

    def __add__(self, other: "Told") -> "Told":
        total = Told()
        total.controls = self.controls + other.controls
        total.inverses = self.inverses + other.inverses
        return total


def tell(committed: Iterable[Decided]) -> Told:
    """Log what the decisions of one tick brought, where it is worth a line, and count what operators and sagas did."""
    told = Told()
    completed: list[Decided] = []
    for decided in committed:
        if decided.loaded.inbox.controls:
            _controls(decided, told)
        for event in decided.decision.events:
            if type(event) is AttemptEnded:
                if event.outcome is not _SUCCEEDED:
                    _attempt(decided, event)
                continue
            if type(event) not in _WORTH_A_LINE:
                continue
            match event:
                case RunEnded(status=RunStatus.COMPLETED):
                    completed.append(decided)
                case RunEnded(status=status, fault=fault):
                    _run(logging.INFO, decided, status, fault.code if fault else "")
                case RunRedriven():
                    _log.info("a run was redriven", extra=_ids(decided))
                case HistoryLong(moves=moves):
                    _log.warning("a run's history is long: %d attempts and ends of steps", moves, extra=_ids(decided))
                case InverseEnded(status=status) if status.settled:
                    told.inverses[status] += 1
                case CompensationEnded(status=status):
                    _compensated(decided, status)
    if len(completed) == 1:
        _run(logging.INFO, completed[0], RunStatus.COMPLETED)
    elif completed:
        _log.info("%d runs completed", len(completed), extra={"count": len(completed)})
        if _log.isEnabledFor(logging.DEBUG):
            for decided in completed:
                _run(logging.DEBUG, decided, RunStatus.COMPLETED)
    return told


def _controls(decided: Decided, told: Told) -> None:
    asked = {control.request_id: control for control in decided.loaded.inbox.controls}
    for effect in decided.decision.effects:
        if not isinstance(effect, SettleControl | ForwardControl):
            continue
        control = asked.get(effect.request_id)
        outcome = _FORWARDED if isinstance(effect, ForwardControl) else effect.status.value
        verb = control.verb.value if control is not None else ""
        told.controls[verb, outcome] += 1
        code = effect.code if isinstance(effect, SettleControl) and effect.status is OperationStatus.REJECTED else ""
        fields = {
            "request_id": effect.request_id,
            "step_ref": control.step_ref if control is not None else "",
            "actor": control.actor if control is not None else "",
            "reason": code,
        }
        _log.info("control %s %s", verb, outcome, extra=_ids(decided) | fields)


def _compensated(decided: Decided, status: CompensationStatus) -> None:
    if status in (CompensationStatus.MANUAL_REPAIR, CompensationStatus.FAILED):
        entries = [e.entry for e in decided.decision.effects if isinstance(e, RecordInverse) and e.entry.fault]
        last = entries[-1] if entries else None
        fields = {"step_ref": last.step_ref, "reason": last.fault.code} if last is not None and last.fault else {}
        _log.warning("a run is not undone: compensation %s", status.value, extra=_ids(decided) | fields)
    else:
        _log.info("a run's compensation ended: %s", status.value, extra=_ids(decided))


def _attempt(decided: Decided, event: AttemptEnded) -> None:
    fields = {
        "step_ref": event.step_ref,
        "item_index": event.item_index if event.item_index >= 0 else None,
        "attempt": event.attempt,
        "reason": event.fault.code if event.fault is not None else "",
    }
    _log.info(_WORDS[event.outcome], extra=_ids(decided) | fields)


def _run(level: int, decided: Decided, status: RunStatus, reason: str = "") -> None:
    _log.log(level, "a run ended: %s", status.value, extra=_ids(decided) | {"reason": reason})


def _ids(decided: Decided) -> dict[str, object]:
    start = decided.loaded.known.start
    return {
        "tenant_id": start.tenant_id,
        "definition_id": start.definition_id,
        "version": start.version,
        "run_id": start.run_id,
        "trace_id": start.traceparent[3:35],
    }
