"""The compensation ledger as events fold it: what was registered, what is owed, and what became of it (ruling C7).

Kept beside `evolve`, and under its promise: the ledger changes only by these events. Never looks at a clock, an output or an expression.
"""

from msgspec.structs import replace

from ductord.engine.errors import EngineError
from ductord.model.enums import CompensationStatus, InverseStatus, Outcome, TaskKind
from ductord.model.events import (
    AttemptCreated,
    AttemptEnded,
    CompensationEnded,
    CompensationPlanned,
    InverseEnded,
    InverseRegistered,
    InversesHandedOver,
)
from ductord.model.run import Inverse, Registered, Saga

LedgerEvent = (
    InverseRegistered
    | InversesHandedOver
    | CompensationPlanned
    | AttemptCreated
    | AttemptEnded
    | InverseEnded
    | CompensationEnded
)


def ledgered(saga: Saga, event: LedgerEvent) -> Saga:
    """The ledger after one event. Raises `EngineError` for one that does not follow from it."""
    match event:
        case InverseRegistered():
            entry = Registered(
                step_ref=event.step_ref, attempt=event.attempt, logical=event.logical, item_index=event.item_index
            )
            return replace(saga, registered=(*saga.registered, entry))
        case InversesHandedOver():
            gone = frozenset(event.inverses)
            return replace(saga, registered=tuple(replace(r, spent=r.spent or r in gone) for r in saga.registered))
        case CompensationPlanned():
            return _planned(saga, event)
        case AttemptCreated():
            inverse = _entry(saga, event.position, event.step_ref, InverseStatus.OWED, InverseStatus.RUNNING)
            if event.attempt <= inverse.attempt or event.logical < inverse.logical:
                raise EngineError("ATTEMPT_OUT_OF_ORDER", f"{event.kind} of {event.step_ref}: attempt {event.attempt}")
            return _with(
                saga,
                event.position,
                replace(
                    inverse,
                    status=InverseStatus.RUNNING,
                    attempt=event.attempt,
                    logical=event.logical,
                    due_time=event.due_time,
                ),
            )
        case AttemptEnded():
            inverse = _entry(saga, event.position, event.step_ref, InverseStatus.RUNNING)
            if event.attempt != inverse.attempt:
                raise EngineError("ATTEMPT_OUT_OF_ORDER", f"{event.kind} of {event.step_ref}: attempt {event.attempt}")
            return _with(
                saga,
                event.position,
                replace(
                    inverse,
                    failures=inverse.failures + event.spent,
                    losses=inverse.losses + (event.outcome is Outcome.LOST),
                    due_time=None,
                    fault=event.fault or inverse.fault,
                ),
            )
        case InverseEnded():
            return _ended(saga, event)
        case CompensationEnded():
            return replace(saga, status=event.status)


def _planned(saga: Saga, event: CompensationPlanned) -> Saga:
    """Append entries; the actions whose inverses they are have nothing more to give (exactly once each)."""
    sources = {
        (entry.step_ref, entry.item_index, entry.source_attempt, entry.source_run_id)
        for entry in event.entries
        if entry.kind is TaskKind.COMPENSATION
    }
    registered = tuple(
        replace(r, spent=True) if (r.step_ref, r.item_index, r.attempt, r.run_id) in sources else r
        for r in saga.registered
    )
    return Saga(status=CompensationStatus.RUNNING, registered=registered, plan=(*saga.plan, *event.entries))


def _ended(saga: Saga, event: InverseEnded) -> Saga:
    inverse = _entry(saga, event.position, event.step_ref)
    if event.status is InverseStatus.OWED:
        inverse = replace(inverse, status=event.status, failures=0, losses=0, fault=None)
        return replace(_with(saga, event.position, inverse), status=CompensationStatus.RUNNING)
    return _with(saga, event.position, replace(inverse, status=event.status, due_time=None, fault=event.fault))


def _entry(saga: Saga, position: int | None, step_ref: str, *statuses: InverseStatus) -> Inverse:
    if position is None or not 0 <= position < len(saga.plan) or saga.plan[position].step_ref != step_ref:
        raise EngineError("UNKNOWN_INVERSE", f"{step_ref} at {position}")
    inverse = saga.plan[position]
    if statuses and inverse.status not in statuses:
        raise EngineError("ILLEGAL_TRANSITION", f"inverse {position} of {step_ref} is {inverse.status}")
    return inverse


def _with(saga: Saga, position: int | None, inverse: Inverse) -> Saga:
    assert position is not None
    return replace(saga, plan=(*saga.plan[:position], inverse, *saga.plan[position + 1 :]))
