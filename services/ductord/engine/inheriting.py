"""What a reset run has of its source's effects without running them: which were undone, which it owes from then on, which nobody knows (rulings C5, C7).

Each inverse runs at most once, by whichever run has the effect. Pure; part of `engine.forks`, which says what a reset does.
"""

from collections.abc import Mapping

import msgspec

from ductord.engine.ledger import settled, successes
from ductord.model.enums import TaskKind
from ductord.model.fault import OutputRef
from ductord.model.manifest import Manifest
from ductord.model.run import Registered, Run


class Taken(msgspec.Struct, frozen=True):
    """What the new run will have without running it: of these steps the attempts up to these numbers, and of their inline children likewise."""

    attempts: dict[str, int]
    items: dict[str, int]

    def has(self, step_ref: str, item_index: int, attempt: int) -> bool:
        """Whether the attempt of the step, or of a child of it, is among them."""
        return attempt <= (self.attempts if item_index < 0 else self.items).get(step_ref, -1)


def compensated(manifest: Manifest, source: Run, taken: Taken) -> tuple[str, ...]:
    """Of the steps that the new run will have without running them: those whose effect was undone, or may have been."""
    found = {
        entry.step_ref
        for entry in source.saga.plan
        if entry.kind is TaskKind.COMPENSATION
        and (
            entry.source_run_id not in ("", source.run_id)
            or taken.has(entry.step_ref, entry.item_index, entry.source_attempt)
        )
    }
    return tuple(step.ref for step in manifest.steps if step.ref in found)


def inherited(source: Run, taken: Taken) -> tuple[Registered, ...]:
    """What a source that has ended does not owe any more itself, of the attempts that the new run takes for its own; what it had from a run that it continues
    comes along. An open source keeps its own, and a continued one has given them to its successor (C6)."""
    known = successes(source.saga)
    return tuple(
        r
        for r in source.saga.registered
        if not r.spent
        and not settled(r, known)
        and (r.run_id or taken.has(r.step_ref, r.item_index, r.attempt or r.logical))
    )


def doubts(manifest: Manifest, base: Run, source: Run, preserved: Mapping[str, OutputRef]) -> tuple[Registered, ...]:
    """Logical attempts of these steps that may have acted and that nothing in the source's ledger stands for."""
    known = {(r.step_ref, r.logical) for r in source.saga.registered if not r.run_id}
    known |= {(e.step_ref, e.source_logical) for e in source.saga.plan if e.kind is TaskKind.COMPENSATION}
    return tuple(
        Registered(step_ref=step.ref, attempt=0, logical=logical, run_id=source.run_id)
        for step, then, now in zip(manifest.steps, base.nodes, source.nodes, strict=True)
        if step.compensation is not None and (then.status.terminal or step.ref in preserved)
        for node in (now if step.ref in preserved else then,)
        for logical in (*node.doubts, *node.unknown)
        if (step.ref, logical) not in known
    )
