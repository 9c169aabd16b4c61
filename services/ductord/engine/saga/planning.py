"""What the end of a run owes: the inverses of what succeeded, in reverse order, and then the final actions (ruling C7).

The plan is append-only. At the end itself it gets all that is owed; later only what turned out to have succeeded after all. Which actions those are
follows from the run's status and the manifest; no expression is evaluated here.
"""

from collections.abc import Iterator
from typing import Final

from ductord.engine.ledger import actions_of, settled, successes
from ductord.engine.tick import Tick
from ductord.model.enums import CompensationBlock, InverseStatus, NodeStatus, RunStatus, SkipReason, TaskKind
from ductord.model.events import CompensationPlanned, InverseEnded, RunEnded
from ductord.model.fault import Fault
from ductord.model.run import Inverse, Node, Registered

OUTCOME_UNKNOWN: Final = "outcome_unknown"
EFFECT_TURNED_UP: Final = "effect_turned_up"

_UNKNOWN = Fault(
    code=OUTCOME_UNKNOWN,
    message="an attempt was at work and ended without a word: whether there is something to undo is not known",
)
_TURNED_UP = Fault(
    code=EFFECT_TURNED_UP,
    message="the step succeeded after all, after a person had said what became of this: look again",
)
_UNDOING = {
    RunStatus.FAILED: CompensationBlock.ON_FAILURE,
    RunStatus.TIMED_OUT: CompensationBlock.ON_FAILURE,
    RunStatus.CANCELLED: CompensationBlock.ON_CANCEL,
}
_REACHED_SKIPS = (SkipReason.CONDITION, SkipReason.TIMEOUT)
"""A step that was skipped by its own condition or time was reached (G3)."""


def undoing(status: RunStatus) -> CompensationBlock | None:
    """The block whose actions undo steps after this end; None where nothing is undone (C3)."""
    return _UNDOING.get(status)


def plan(tick: Tick) -> None:
    """Append what is owed and not planned yet."""
    ended = any(isinstance(event, RunEnded) for event in tick.events)
    entries: list[Inverse] = []
    block = undoing(tick.work.run.status)
    if block is not None:
        known = successes(tick.work.run.saga)
        for registered in reversed(tick.work.run.saga.registered):
            if registered.spent or settled(registered, known):
                continue
            if not registered.attempt or not _found(tick, registered, block):
                entries += _inverses(tick, registered, block)
        if ended:
            entries += _doubtful(tick, block)
    if ended:
        entries += _finals(tick)
    if entries:
        tick.emit(CompensationPlanned(entries=tuple(entries)))


def _found(tick: Tick, registered: Registered, block: CompensationBlock) -> bool:
    """Whether entries of unknown outcome stand for this success, which came to light since: they are owed now. An entry that ran, asked for by a person,
    has undone it, and one that runs is awaited; one that a person settled otherwise is shown to a person again."""
    entries = {
        position: entry
        for position, entry in enumerate(tick.work.run.saga.plan)
        if (entry.step_ref, entry.item_index, entry.block) == (registered.step_ref, registered.item_index, block)
        and entry.source_logical == registered.logical
        and not (entry.source_attempt or entry.source_run_id or registered.run_id)
    }
    if not any(entry.status is InverseStatus.RUNNING for entry in entries.values()):
        for position, entry in entries.items():
            status, fault = _after_all(entry)
            tick.emit(
                InverseEnded(
                    position=position,
                    step_ref=entry.step_ref,
                    status=status,
                    fault=fault,
                    source_attempt=registered.attempt,
                )
            )
    return bool(entries)


def _after_all(entry: Inverse) -> tuple[InverseStatus, Fault | None]:
    match entry.status:
        case InverseStatus.MANUAL_REPAIR | InverseStatus.FAILED | InverseStatus.IGNORED:
            return InverseStatus.OWED, None
        case InverseStatus.DONE if not entry.attempt:
            return InverseStatus.MANUAL_REPAIR, _TURNED_UP
        case _:
            return entry.status, entry.fault


def _inverses(tick: Tick, registered: Registered, block: CompensationBlock) -> Iterator[Inverse]:
    step = tick.manifest.steps[tick.graph.index[registered.step_ref]]
    for number, _ in enumerate(actions_of(step, block)):
        yield Inverse(
            step_ref=step.ref,
            kind=TaskKind.COMPENSATION,
            block=block,
            number=number,
            item_index=registered.item_index,
            source_attempt=registered.attempt,
            source_run_id=registered.run_id,
            source_logical=registered.logical,
            status=InverseStatus.OWED if registered.attempt else InverseStatus.MANUAL_REPAIR,
            fault=None if registered.attempt else _UNKNOWN,
        )


def _doubtful(tick: Tick, block: CompensationBlock) -> Iterator[Inverse]:
    """Entries for what may have acted without anybody's knowing: a person has to look (SA-02)."""
    saga = tick.work.run.saga
    known = {(r.step_ref, r.logical) for r in saga.registered if not r.run_id}
    known |= {
        (e.step_ref, e.source_logical) for e in saga.plan if e.kind is TaskKind.COMPENSATION and not e.source_run_id
    }
    for step, node in _backwards(tick):
        for logical in reversed((*node.doubts, *node.unknown)):
            if (step, logical) not in known:
                yield from _inverses(tick, Registered(step_ref=step, attempt=0, logical=logical), block)


def _finals(tick: Tick) -> Iterator[Inverse]:
    stop = tick.work.run.stop
    if stop is not None and stop.skip_finally:
        return
    for ref, node in _backwards(tick):
        if not _reached(node):
            continue
        for number, _ in enumerate(actions_of(tick.manifest.steps[tick.graph.index[ref]], CompensationBlock.FINALLY)):
            yield Inverse(
                step_ref=ref,
                kind=TaskKind.FINALLY,
                block=CompensationBlock.FINALLY,
                number=number,
                source_attempt=node.output.attempt if node.output is not None else 0,
            )


def _backwards(tick: Tick) -> Iterator[tuple[str, Node]]:
    """Steps that have actions here, and their nodes, the last of the graph first."""
    for index in tick.graph.compensated:
        yield tick.manifest.steps[index].ref, tick.work.nodes[index]


def _reached(node: Node) -> bool:
    if node.status is NodeStatus.SKIPPED:
        return node.skip_reason in _REACHED_SKIPS
    return node.status is not NodeStatus.PENDING
