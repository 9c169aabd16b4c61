"""Reset: a new run from the state that another had after one of its transitions (ruling C5).

The source says which of its transitions can be a beginning (`targets`) and what a new run would make of one (`preview`); the new run, at its first tick,
takes that state as its own (`base_of`, `start`). What `preview` says is what `start` then does; the source's nodes and status are never touched.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from ductord.engine import races, stopping
from ductord.engine.checkpoints import outputs_of
from ductord.engine.evolve import Working, bare_run
from ductord.engine.fans import resuming
from ductord.engine.graph import graph_of
from ductord.engine.inheriting import Taken, compensated, doubts, inherited
from ductord.engine.tick import Tick
from ductord.model.control import Rejection
from ductord.model.effects import AdoptHistory, RecordCheckpoint
from ductord.model.enums import CheckpointStatus, NodeStatus
from ductord.model.events import Event, NodeEnded, RunForked, RunRedriven, RunStarted
from ductord.model.fan import Kin
from ductord.model.fault import OutputRef
from ductord.model.inbox import Inbox
from ductord.model.manifest import Manifest, Step
from ductord.model.run import Node, Registered, Run

_NOBODY: Mapping[str, tuple[Kin, ...]] = {}


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """What a reset would do, node for node; step refs in graph order. `kept`: had ended at the point. `preserved`: later outputs that are taken over.
    `restarted`: all others, which run as far as the graph leads to them. `overridden`: get a given input. `compensated`: kept or preserved steps whose inverses
    have run or are unaccounted for. `inherited`: the registrations that the new run takes over, as the source has them. `doubts`: attempts of kept and
    preserved steps of which nobody knows whether they acted, for the new run to account for. `attached`: child runs of the source that the new run takes over.
    `detached`: open ones that it does not: they stay the source's."""

    seq: int
    kept: tuple[str, ...]
    preserved: dict[str, OutputRef]
    restarted: tuple[str, ...]
    overridden: tuple[str, ...] = ()
    compensated: tuple[str, ...] = ()
    inherited: tuple[Registered, ...] = ()
    doubts: tuple[Registered, ...] = ()
    attached: tuple["Relation", ...] = ()
    detached: tuple["Relation", ...] = ()


class Relation(msgspec.Struct, frozen=True, kw_only=True):
    """A child run, as a preview names it."""

    step_ref: str
    item_index: int
    run_id: str


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A transition that the run can be reset to. `ended`: steps that ended in it. `at_work`: steps that were at work after it and would run again."""

    seq: int
    at: datetime
    ended: tuple[str, ...]
    at_work: tuple[str, ...]


def targets(
    manifest: Manifest, run_id: str, transitions: Iterable[tuple[datetime, tuple[Event, ...]]]
) -> Iterator[Target]:
    """The transitions of a history that the run can be reset to, oldest first. `transitions`: (at, events) from the first on. Every event is folded once,
    and only the nodes that it names are looked at."""
    work = Working(manifest, bare_run(run_id))
    index = graph_of(manifest).index
    at_work: set[int] = set()
    failed: set[int] = set()
    amid: set[int] = set()
    for at, events in transitions:
        ended: set[int] = set()
        for event in events:
            work.apply(event, at)
            whole = isinstance(event, RunStarted | RunForked | RunRedriven)
            changed = range(len(work.nodes)) if whole else [index[ref] for ref in _about(event)]
            for i in changed:
                status = work.nodes[i].status
                (at_work.add if status.begun else at_work.discard)(i)
                (failed.add if status is NodeStatus.FAILED else failed.discard)(i)
                (amid.add if _amid(manifest.steps[i], work.nodes[i]) else amid.discard)(i)
            if isinstance(event, NodeEnded):
                ended.update(changed)
        work.run = replace(work.run, seq=work.run.seq + 1)
        if not _unfit(work.run, failed=bool(failed), amid=manifest.steps[min(amid)].ref if amid else ""):
            refs = [tuple(manifest.steps[i].ref for i in sorted(found)) for found in (ended, at_work)]
            yield Target(seq=work.run.seq, at=at, ended=refs[0], at_work=refs[1])


def preview(
    manifest: Manifest,
    base: Run | None,
    source: Run,
    *,
    seq: int,
    overrides: Mapping[str, Any],
    preserve: Iterable[str],
    force: bool,
    kin: Mapping[str, tuple[Kin, ...]] = _NOBODY,
) -> Preview | Rejection:
    """What a reset of `source` to its transition `seq` would do, or why it is refused. `base`: the run as it was after that transition, None if it has none.
    `overrides` and `preserve` name steps that there are (`resetting.refusal`). `kin`: the child runs of the source's steps as they stand now, by ref."""
    point = {"transition_seq": str(seq), "last_transition_seq": str(source.seq)}
    failed = base is not None and any(node.status is NodeStatus.FAILED for node in base.nodes)
    amid = next((s.ref for s, n in zip(manifest.steps, base.nodes, strict=True) if _amid(s, n)), "") if base else ""
    unfit = _unfit(base, failed=failed, amid=amid) if base is not None else "there is no such transition"
    if base is None or unfit:
        message = f"the run cannot be reset to transition {seq}: {unfit}"
        return Rejection(reason="RESET_POINT_INVALID", message=message, metadata=point)
    kept = [step.ref for step, node in zip(manifest.steps, base.nodes, strict=True) if node.status.terminal]
    wanted = dict.fromkeys(preserve)
    refused = _refused_steps(manifest, source, frozenset(kept), overrides, wanted)
    if refused is not None:
        ref, why = refused
        metadata = {"step_ref": ref, "transition_seq": str(seq)}
        return Rejection(reason="RESET_STEP_INVALID", message=f"step {ref} {why}", metadata=metadata)
    preserved = {
        step.ref: node.output
        for step, node in zip(manifest.steps, source.nodes, strict=True)
        if step.ref in wanted and node.output is not None
    }
    then = {ref: base.nodes[graph_of(manifest).index[ref]] for ref in kept}
    taken = Taken(
        attempts={ref: node.attempt for ref, node in then.items()}
        | {ref: output.attempt for ref, output in preserved.items()},
        items={ref: node.top for ref, node in then.items()},
    )
    undone = compensated(manifest, source, taken)
    if undone and not force:
        refs = ",".join(undone)
        message = (
            f"inverses of {', '.join(undone)} have run or are unaccounted for, and the new run would keep these steps; "
            "`force` says that this is meant"
        )
        metadata = {"compensation_status": source.saga.status.value, "step_refs": refs}
        return Rejection(reason="RUN_COMPENSATED", message=message, metadata=metadata)
    hands_over = source.status.terminal and not source.continued_to_run_id
    attached = _attached(manifest, base, kin) if source.status.terminal else ()
    return Preview(
        seq=seq,
        kept=tuple(kept),
        preserved=preserved,
        restarted=tuple(step.ref for step in manifest.steps if step.ref not in taken.attempts),
        overridden=tuple(step.ref for step in manifest.steps if step.ref in overrides),
        compensated=undone,
        inherited=inherited(source, taken) if hands_over else (),
        doubts=doubts(manifest, base, source, preserved) if hands_over else (),
        attached=attached,
        detached=tuple(r for r in _open(manifest, kin) if r not in attached),
    )


def base_of(inbox: Inbox) -> Run | None:
    """The state that a reset run begins with, as its own; None for every other run, and for one that has begun."""
    return replace(inbox.origin.run, run_id=inbox.start.run_id) if inbox.origin is not None else None


def start(tick: Tick) -> None:
    """Take a reset run up: what was open at the source is pending again, and everything pending is looked at, since the source may have been held. What was to
    end because it had lost a race does not run for it again (G7)."""
    begun = tick.inbox.start
    attached = [
        step.ref
        for step, node in zip(tick.manifest.steps, tick.work.nodes, strict=True)
        if node.fan is not None and resuming.awaited(step, node) and resuming.origin(tick, step, node.fan)
    ]
    tick.emit(
        RunForked(
            source_run_id=begun.reset_from_run_id,
            source_seq=begun.reset_from_seq,
            inverses=begun.inverses,
            attached=tuple(attached),
        )
    )
    outputs = outputs_of(tick, tuple(range(len(tick.work.nodes))))
    outputs |= {ref: output.attempt for ref, output in begun.preserved.items()}
    fans = [(i, tick.manifest.steps[i].ref) for i in tick.graph.fans if tick.work.nodes[i].status.terminal]
    tick.do(
        AdoptHistory(
            source_run_id=begun.reset_from_run_id,
            seq=begun.reset_from_seq,
            outputs=outputs,
            items={ref: tick.work.nodes[i].top for i, ref in fans if tick.work.nodes[i].top},
            children=tuple(ref for i, ref in fans if i in tick.graph.parents and tick.work.nodes[i].fan is not None),
        )
    )
    for state, checkpoint in zip(tick.work.checkpoints, tick.manifest.checkpoints, strict=True):
        if state.status is CheckpointStatus.UNREACHABLE:
            tick.do(RecordCheckpoint(name=checkpoint.name, status=state.status))
    tick.touched.update(range(len(tick.manifest.checkpoints)))
    for race in races.over(tick):
        stopping.call_off(tick, race)
    tick.reach(range(len(tick.work.nodes)))


def _unfit(run: Run, *, failed: bool, amid: str) -> str:
    """Why no run can begin in this state; empty if one can. `failed`: one of its nodes has failed. `amid`: a step that is in the middle of its children."""
    if run.status.terminal:
        return "the run had ended there"
    if run.stop is not None:
        return "the run was being stopped there"
    if failed:
        return "a step had failed there, and only a pause kept the run from being stopped"
    if amid:
        return (
            f"step {amid} was in the middle of its children there: take a transition before it began, or after it ended"
        )
    return ""


def _amid(step: Step, node: Node) -> bool:
    """Whether the node has begun some of a list of children, and is not through with them (C5)."""
    return node.fan is not None and step.subworkflow is None and not node.status.terminal


def _attached(manifest: Manifest, base: Run, kin: Mapping[str, tuple[Kin, ...]]) -> tuple[Relation, ...]:
    """The children that a run takes over which begins in the state of `base`, as its first tick will find them (RR-01)."""
    return tuple(
        Relation(step_ref=step.ref, item_index=k.item_index, run_id=k.run_id)
        for step, node in zip(manifest.steps, base.nodes, strict=True)
        if node.fan is not None and resuming.awaited(step, node)
        for k in kin.get(step.ref, ())
        if resuming.attachable(k, node.fan)
    )


def _open(manifest: Manifest, kin: Mapping[str, tuple[Kin, ...]]) -> Iterator[Relation]:
    """The children that have not ended."""
    for step in manifest.steps:
        for k in kin.get(step.ref, ()):
            if not k.status.terminal:
                yield Relation(step_ref=step.ref, item_index=k.item_index, run_id=k.run_id)


def _about(event: Event) -> tuple[str, ...]:
    ref: str | None = getattr(event, "step_ref", None)
    return (ref,) if ref is not None else ()


def _refused_steps(
    manifest: Manifest, source: Run, kept: frozenset[str], overrides: Mapping[str, Any], preserve: Mapping[str, None]
) -> tuple[str, str] | None:
    """The first step that cannot be what the reset wants it to be, and why."""
    nodes = dict(zip((step.ref for step in manifest.steps), source.nodes, strict=True))
    for ref in (*overrides, *preserve):
        if ref in kept:
            return (
                ref,
                "had ended at that transition: it stays as it was and can be given neither an input nor an output",
            )
    for ref in preserve:
        if manifest.steps[graph_of(manifest).index[ref]].scatter is not None:
            return ref, "is a scatter, whose children would stay behind: preserve the steps that read them"
    for step in manifest.steps:
        if step.ref in overrides and step.action is None:
            return step.ref, f"is of type {step.type}: it takes no input"
    for ref in preserve:
        if ref in overrides:
            return ref, "is to be preserved and to get another input: it does not run, so it is given none"
        if nodes[ref].status is not NodeStatus.SUCCEEDED or nodes[ref].output is None:
            return ref, f"is {nodes[ref].status} in the source: only what succeeded can be preserved"
    return None
