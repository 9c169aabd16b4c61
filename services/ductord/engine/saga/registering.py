"""Registering what succeeded, so that it can be undone: once per logical attempt, whoever reports it and whenever (rulings C7, A6).

A logical attempt has one idempotency key, so two successes under it are one effect. Nothing here plans: what is owed is known at the run's end.
"""

from ductord.engine.ledger import Logical, settled, successes, undoable
from ductord.engine.saga import unwinding
from ductord.engine.saga.planning import undoing
from ductord.engine.tick import Tick
from ductord.model.effects import CloseLate, RecordAudit
from ductord.model.enums import TaskKind
from ductord.model.events import InverseRegistered
from ductord.model.ids import idempotency_key
from ductord.model.inbox import LateSuccess
from ductord.model.manifest import Manifest
from ductord.model.run import Registered, Run


def register(tick: Tick, index: int, attempt: int, logical: int, *, item_index: int = -1, late: bool = False) -> None:
    """An action of the step at `index` has succeeded: register its inverses, if it declares any and this logical attempt is not known yet.

    `late`: its report came too late to count for the node.
    """
    step = tick.manifest.steps[index]
    if undoable(step) and (step.ref, item_index, logical) not in _registered(tick):
        tick.emit(
            InverseRegistered(step_ref=step.ref, attempt=attempt, logical=logical, item_index=item_index, late=late)
        )
        _registered(tick).add((step.ref, item_index, logical))


def doubt(tick: Tick, index: int, item_index: int, logical: int) -> None:
    """Nobody knows whether this logical attempt of an inline child has acted, and the child has ended: a person has to look, unless a success of it is known
    or turns up (SA-02). Of a step itself its node keeps this (`Node.unknown`)."""
    step = tick.manifest.steps[index]
    if undoable(step) and (step.ref, item_index, logical) not in _registered(tick):
        tick.emit(InverseRegistered(step_ref=step.ref, attempt=0, logical=logical, item_index=item_index))


def late(tick: Tick) -> None:
    """Judge the successes that were reported too late: that of an action is registered, that of an inverse settles its entry."""
    for success in tick.inbox.lates:
        tick.do(
            CloseLate(
                step_ref=success.step_ref, attempt=success.attempt, kind=success.kind, item_index=success.item_index
            )
        )
        match success.kind:
            case TaskKind.STEP | TaskKind.ITEM:
                _acted(tick, success)
            case TaskKind.COMPENSATION | TaskKind.FINALLY:
                unwinding.undone_late(tick, success)


def carried(manifest: Manifest, run: Run) -> tuple[Registered, ...]:
    """What a successor of the run takes over (C6): what was registered and is not spent, and what may have acted; with the run that holds its output."""
    known = successes(run.saga)
    doubtful = tuple(
        Registered(step_ref=step.ref, attempt=0, logical=logical, run_id=run.run_id)
        for step, node in zip(manifest.steps, run.nodes, strict=True)
        if undoable(step)
        for logical in (*node.doubts, *node.unknown)
        if (step.ref, -1, logical) not in known
    )
    registered = tuple(
        Registered(
            step_ref=r.step_ref,
            attempt=r.attempt,
            logical=r.logical,
            item_index=r.item_index,
            run_id=r.run_id or run.run_id,
        )
        for r in run.saga.registered
        if not r.spent and not settled(r, known)
    )
    return (*registered, *doubtful)


def _registered(tick: Tick) -> set[Logical]:
    """The same as the tick sees it, worked out once: a scatter registers every item of it."""
    if tick.registered is None:
        tick.registered = successes(tick.work.run.saga)
    return tick.registered


def _acted(tick: Tick, success: LateSuccess) -> None:
    index = tick.graph.index.get(success.step_ref)
    if index is None:
        return
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    # Of a child, logical attempts are numbered by their first attempt.
    last = node.logical if success.item_index < 0 else node.top
    for logical in range(last, 0, -1):
        key = idempotency_key(tick.run_id, step.ref, success.item_index, logical, success.kind)
        if key == success.idempotency_key:
            before = len(tick.events)
            register(tick, index, success.attempt, logical, item_index=success.item_index, late=True)
            if len(tick.events) > before:
                _tell(tick, step.ref, logical)
            return


def _tell(tick: Tick, step_ref: str, logical: int) -> None:
    """An effect that turned up after an end that owes nothing is nobody's to undo; it shall at least be seen."""
    status = tick.work.run.status
    if status.terminal and undoing(status) is None:
        message = f"{step_ref} succeeded after all, when the run was {status}: nothing undoes it"
        tick.do(RecordAudit(key=f"late_success:{step_ref}:{logical}", action="late_success", message=message))
