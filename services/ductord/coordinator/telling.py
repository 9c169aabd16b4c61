"""What the log is told of committed ticks: attempts that came to nothing, runs that ended, each with the ids to look it up by.

Bounded by what goes wrong, not by what goes well: runs that completed in one tick share a line, and each has one of its own at debug only. Called after
the commit, so that nothing is told which a rollback took back. Codes are told, messages are not: a message may quote a payload (OB-01).
"""

import logging
from collections.abc import Iterable
from typing import Final

from ductord.coordinator.commit import Decided
from ductord.model.enums import Outcome, RunStatus
from ductord.model.events import AttemptEnded, RunEnded

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


def tell(committed: Iterable[Decided]) -> None:
    """Log what the decisions of one tick brought, where it is worth a line."""
    if not _log.isEnabledFor(logging.INFO):
        return
    completed: list[Decided] = []
    for decided in committed:
        for event in decided.decision.events:
            match event:
                case AttemptEnded(outcome=outcome) if outcome is not Outcome.SUCCEEDED:
                    _attempt(decided, event)
                case RunEnded(status=RunStatus.COMPLETED):
                    completed.append(decided)
                case RunEnded(status=status, fault=fault):
                    _run(logging.INFO, decided, status, fault.code if fault else "")
    if len(completed) == 1:
        _run(logging.INFO, completed[0], RunStatus.COMPLETED)
    elif completed:
        _log.info("%d runs completed", len(completed), extra={"count": len(completed)})
        if _log.isEnabledFor(logging.DEBUG):
            for decided in completed:
                _run(logging.DEBUG, decided, RunStatus.COMPLETED)


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
