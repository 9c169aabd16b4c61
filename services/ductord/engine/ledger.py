"""The compensation ledger as events fold it: what was registered, what is owed, and what became of it (ruling C7).

Kept beside `evolve`, and under its promise: the ledger changes only by these events. Never looks at a clock, an output or an expression. What the
services show of a ledger they ask here too.
"""

from typing import assert_never

from msgspec.structs import replace

from ductord.engine.doubt import may_have_acted, unsaid
from ductord.engine.errors import EngineError
from ductord.engine.graph import graph_of
from ductord.model.enums import CompensationBlock, CompensationStatus, InverseStatus, Outcome, TaskKind
from ductord.model.events import (
    AttemptCreated,
    AttemptEnded,
    CompensationEnded,
    CompensationPlanned,
    InverseEnded,
    InverseRegistered,
    InversesHandedOver,
)
from ductord.model.ids import idempotency_key
from ductord.model.manifest import Manifest, Step
from ductord.model.run import Inverse, Registered, Saga
from ductord.model.specs import InverseSpec

_Source = tuple[str, int, int, str]
Logical = tuple[str, int, int]
"""A logical attempt: step ref, item index, number."""

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
            if may_have_acted(event.outcome, event.fault, started=event.started):
                inverse = replace(inverse, doubts=tuple(dict.fromkeys((*inverse.doubts, inverse.logical))))
            return _with(
                saga,
                event.position,
                replace(
                    inverse,
                    failures=inverse.failures + event.spent,
                    losses=inverse.losses + (event.outcome is Outcome.LOST),
                    returned=inverse.returned + event.outcome.returned,
                    unknown=unsaid(event.outcome, event.fault),
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
    sources = {_source(entry) for entry in event.entries if entry.kind is TaskKind.COMPENSATION}
    return Saga(
        status=CompensationStatus.RUNNING,
        registered=_spent(saga.registered, sources),
        plan=(*saga.plan, *event.entries),
    )


def _ended(saga: Saga, event: InverseEnded) -> Saga:
    inverse = _entry(saga, event.position, event.step_ref)
    if event.source_attempt:
        inverse = replace(inverse, source_attempt=event.source_attempt)
        saga = replace(saga, registered=_spent(saga.registered, {_source(inverse)}))
    inverse = replace(inverse, status=event.status, due_time=None, fault=event.fault)
    if event.status is InverseStatus.OWED:
        inverse = replace(inverse, failures=0, losses=0, returned=0)
        saga = replace(saga, status=CompensationStatus.RUNNING)
    return _with(saga, event.position, inverse)


def _source(entry: Inverse) -> _Source:
    return entry.step_ref, entry.item_index, entry.source_attempt, entry.source_run_id


def _spent(registered: tuple[Registered, ...], sources: set[_Source]) -> tuple[Registered, ...]:
    return tuple(
        replace(r, spent=True) if (r.step_ref, r.item_index, r.attempt, r.run_id) in sources else r for r in registered
    )


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


def verdict(saga: Saga) -> CompensationStatus:
    """Where a compensation stands by its entries: one that needs a person outweighs one that failed, and that outweighs what was done (C7)."""
    statuses = {entry.status for entry in saga.plan}
    if not statuses:
        return CompensationStatus.NONE
    if not all(status.settled for status in statuses):
        return CompensationStatus.RUNNING
    if InverseStatus.MANUAL_REPAIR in statuses:
        return CompensationStatus.MANUAL_REPAIR
    return CompensationStatus.FAILED if InverseStatus.FAILED in statuses else CompensationStatus.DONE


def actions_of(step: Step, block: CompensationBlock) -> tuple[InverseSpec, ...]:
    """The actions of one block of a step, in the order in which they run."""
    if step.compensation is None:
        return ()
    match block:
        case CompensationBlock.ON_FAILURE:
            return step.compensation.on_failure
        case CompensationBlock.ON_CANCEL:
            return step.compensation.on_cancel
        case CompensationBlock.FINALLY:
            return step.compensation.final
        case _:
            assert_never(block)


def undoable(step: Step) -> bool:
    """Whether the step declares inverses."""
    blocks = step.compensation
    return blocks is not None and bool(blocks.on_failure or blocks.on_cancel)


def successes(saga: Saga) -> set[Logical]:
    """The logical attempts of the run itself that are registered as successes."""
    return {(r.step_ref, r.item_index, r.logical) for r in saga.registered if r.attempt and not r.run_id}


def settled(registered: Registered, known: set[Logical]) -> bool:
    """Whether the entry is a doubt of the run itself that a success, one of `known`, has settled."""
    place = (registered.step_ref, registered.item_index, registered.logical)
    return not registered.attempt and not registered.run_id and place in known


def keys_of(run_id: str, entry: Inverse) -> frozenset[str]:
    """The idempotency keys under which the entry may have been done: that of its latest attempt, and those of which nobody knows."""
    return frozenset(
        idempotency_key(run_id, entry.step_ref, entry.item_index, logical, entry.kind)
        for logical in (entry.logical, *entry.doubts)
        if logical
    )


def action_of(manifest: Manifest, entry: Inverse) -> InverseSpec:
    """What an entry of the ledger is to do. Raises `EngineError` for an entry of another manifest."""
    index = graph_of(manifest).index.get(entry.step_ref)
    actions = actions_of(manifest.steps[index], entry.block) if index is not None else ()
    if not 0 <= entry.number < len(actions):
        raise EngineError("UNKNOWN_INVERSE", f"{entry.step_ref} has no {entry.block} {entry.number}")
    return actions[entry.number]


def in_need(saga: Saga, step_ref: str, position: int | None = None) -> tuple[int, ...]:
    """The positions of a step's entries that wait for a person; only `position`, if it is given and is one of them."""
    return tuple(
        number
        for number, entry in enumerate(saga.plan)
        if entry.step_ref == step_ref and entry.status is InverseStatus.MANUAL_REPAIR and position in (None, number)
    )
