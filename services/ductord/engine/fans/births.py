"""Child runs are born, or taken up: the one way in which a node begins them (rulings F3 to F5, C4).

What they run and what they are given is `inputs`'s to say. Ids are derived, so that doing it twice makes no second run. It never ends a node, and never begins
more than it is told.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from ductord.engine.fans import expanding
from ductord.engine.fans.expanding import fan_of
from ductord.engine.fans.inputs import Inputs, bearing_of, workflow
from ductord.engine.faults import NodeFault
from ductord.engine.tick import Tick
from ductord.model import ids
from ductord.model.enums import RunStatus
from ductord.model.fan import Kin, Workflow
from ductord.model.fan_effects import AttachChildren, Birth, RecordItemFault, StartChildren
from ductord.model.fan_events import ChildFailed, ChildrenBegun
from ductord.model.fault import Fault
from ductord.model.run import Waiting
from ductord.model.specs import Expression

_NOBODY: Final[Mapping[int, Kin]] = {}


class Brood(msgspec.Struct, frozen=True, kw_only=True):
    """The children of a node that is about to have some: the frozen list, the version, and how their inputs are made."""

    collection: expanding.Collection
    workflow: Workflow
    inputs: Inputs


def brood(tick: Tick, index: int, items: Expression) -> Brood | None:
    """Freeze the list and the version, and make the first input: a mapping that is broken for all is found before there is a child. None where something is
    still to be loaded. Raises `ExpressionError`, `PayloadInvalid` and `NodeFault`."""
    collection = expanding.freeze(tick, items)
    found = workflow(tick, index)
    if not isinstance(found, Workflow):
        return None
    inputs = Inputs(tick, index, found.input_schema)
    if collection.items:
        try:
            inputs.render(collection.items[0], 0)
        except NodeFault as error:
            raise NodeFault.of(error.fault, "item 0: ") from None
    return Brood(collection=collection, workflow=found, inputs=inputs)


def expand(tick: Tick, index: int, found: Brood, waiting: Waiting) -> None:
    """Park the node with so many children, of which none is born."""
    expanding.expand(tick, index, found.collection, waiting=waiting, workflow=found.workflow)
    tick.fresh[index] = found.inputs


def run_id_of(run_id: str, step_ref: str, attempt: int, number: int) -> str:
    """The id of a child: of run, step, the attempt of the node, and the child's index."""
    return ids.derived("child", run_id, step_ref, attempt, number)


def bear(
    tick: Tick,
    index: int,
    first: int,
    items: Sequence[Any],
    inputs: Inputs,
    *,
    due_times: Sequence[datetime] = (),
    kin: Mapping[int, Kin] = _NOBODY,
    from_run_id: str = "",
) -> None:
    """Begin the children `first`, `first` + 1 … of these items; not all of them where their inputs are more than one tick may begin. A child that there is
    already (`kin`, of the node itself or of run `from_run_id`) is taken up. One whose input does not evaluate fails alone."""
    births: list[Birth] = []
    kept: list[tuple[Kin, datetime | None]] = []
    failed: list[tuple[int, Fault]] = []
    step, attempt = tick.manifest.steps[index], tick.work.nodes[index].attempt
    count = 0
    for item in items:
        if count and tick.begun_bytes >= tick.limits.children_max_bytes:
            break
        number = first + count
        due = due_times[count] if due_times else None
        if number in kin:
            kept.append((kin[number], due))
        else:
            try:
                text = inputs.render(item, number)
            except NodeFault as error:
                failed.append((number, error.fault))
            else:
                tick.begun_bytes += len(text)
                child = run_id_of(tick.run_id, step.ref, attempt, number)
                births.append(Birth(item_index=number, run_id=child, input_json=text, due_time=due))
        count += 1
    tick.begun += count
    last = births[-1].run_id if births else kept[-1][0].run_id if kept else ""
    tick.emit(
        ChildrenBegun(
            step_ref=step.ref,
            first=first,
            count=count,
            run_id=last if step.scatter is None else "",
            due_time=due_times[count - 1] if due_times else None,
        )
    )
    _start(tick, index, births)
    _attach(tick, index, kept, from_run_id)
    for number, fault in failed:
        tick.emit(ChildFailed(step_ref=step.ref, item_index=number, fault=fault))
        tick.do(RecordItemFault(step_ref=step.ref, item_index=number, attempt=attempt, fault=fault))


def _attach(tick: Tick, index: int, kin: Sequence[tuple[Kin, datetime | None]], from_run_id: str) -> None:
    """Children that there are become children of this attempt of the node. Those of its own that have not completed are redriven: at once if they have ended,
    when they have if they are being stopped, and not at all if they are at work (C4)."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    bearing = bearing_of(step)
    for redrive in (False, True):
        found = [(k, due) for k, due in kin if _wants_redrive(k, from_run_id) is redrive]
        if found:
            tick.do(
                AttachChildren(
                    step_ref=step.ref,
                    attempt=node.attempt,
                    children=tuple((k.item_index, k.run_id) for k, _ in found),
                    redrive=redrive,
                    request_id=ids.derived("redrive", tick.run_id, step.ref, node.attempt) if redrive else "",
                    due_times=tuple(due for _, due in found if due is not None) if redrive else (),
                    from_run_id=from_run_id,
                    checkpoint=bearing.checkpoint,
                    close_policy=bearing.close_policy,
                )
            )


def _start(tick: Tick, index: int, births: Sequence[Birth]) -> None:
    if not births:
        return
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    bearing, fan = bearing_of(step), fan_of(tick, index)
    tick.do(
        StartChildren(
            step_ref=step.ref,
            attempt=node.attempt,
            family_slug=bearing.workflow.family_slug,
            definition_id=fan.definition_id,
            version_id=fan.version_id,
            version=fan.version,
            tier=fan.tier,
            births=tuple(births),
            sync=bearing.sync,
            checkpoint=bearing.checkpoint,
            close_policy=bearing.close_policy,
        )
    )


def _wants_redrive(kin: Kin, from_run_id: str) -> bool:
    return not from_run_id and kin.status is not RunStatus.COMPLETED
