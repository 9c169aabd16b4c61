"""Child runs are born: what they run, what they are given, and the one way in which a node begins them (ruling F5).

Everything that can be wrong is found here, before there is a child: an unknown or archived version, a nesting that is too deep, an input that does not evaluate
or does not meet the child's schema. Ids are derived, so that doing it twice makes no second run. It never ends a node, and never begins more than it is told.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from ductord.engine import faults
from ductord.engine.errors import EngineError
from ductord.engine.expressions import ExpressionError
from ductord.engine.fans import expanding
from ductord.engine.fans.expanding import fan_of
from ductord.engine.faults import NodeFault
from ductord.engine.reading import bindings
from ductord.engine.tick import Tick
from ductord.model import ids, jsonvalue
from ductord.model.enums import RunStatus
from ductord.model.errors import PayloadInvalid
from ductord.model.fan import Kin, Workflow
from ductord.model.fan_effects import AttachChildren, Birth, RecordItemFault, StartChildren
from ductord.model.fan_events import ChildFailed, ChildrenBegun
from ductord.model.fanout import MAX_DEPTH, ClosePolicy, SubworkflowMode, WorkflowRef
from ductord.model.fault import Fault
from ductord.model.manifest import Step
from ductord.model.needs import WorkflowNeed
from ductord.model.run import Waiting
from ductord.model.schemas import Schema
from ductord.model.specs import Expression, Template

_SHOWN_FAULTS: Final = 3

_Element = Callable[[Any, int], Any]
_NOBODY: Final[Mapping[int, Kin]] = {}


class Bearing(msgspec.Struct, frozen=True, kw_only=True):
    """What a step says about its child runs, whatever its type. `many`: it has one per item of a list."""

    workflow: WorkflowRef
    input: Template | None
    close_policy: ClosePolicy
    many: bool = True
    sync: bool = True
    checkpoint: str = ""


def bearing_of(step: Step) -> Bearing:
    """What the step says about its child runs. Raises `EngineError` for one that has none."""
    if step.subworkflow is not None:
        spec = step.subworkflow
        return Bearing(
            workflow=spec.workflow,
            input=spec.input,
            close_policy=spec.close_policy,
            many=False,
            sync=spec.mode is SubworkflowMode.SYNC,
            checkpoint=spec.checkpoint,
        )
    if step.for_each is not None:
        each = step.for_each
        return Bearing(workflow=each.workflow, input=each.input, close_policy=each.close_policy)
    if step.scatter is not None and step.scatter.workflow is not None:
        scatter = step.scatter
        return Bearing(workflow=step.scatter.workflow, input=scatter.input, close_policy=scatter.close_policy)
    raise EngineError("MANIFEST_INVALID", f"step {step.ref} has no child runs")


def workflow(tick: Tick, index: int) -> Workflow | msgspec.UnsetType:
    """The version that the children of the node will run; UNSET where it is still to be loaded. Raises `NodeFault` for one that there is not, and for a nesting
    that is too deep (SW-02)."""
    wanted = bearing_of(tick.manifest.steps[index]).workflow
    depth = tick.inbox.start.nesting_depth
    if depth >= MAX_DEPTH:
        raise NodeFault(
            faults.DEPTH_LIMIT_EXCEEDED, f"the run is nested {depth} deep, and no deeper than {MAX_DEPTH} can be"
        )
    found: Workflow | msgspec.UnsetType = tick.given(
        WorkflowNeed(family_slug=wanted.family_slug, version=wanted.version)
    )
    if isinstance(found, Workflow) and found.problem:
        raise _problem(wanted, found.problem)
    return found


class Inputs:
    """What the children of one node are given, rendered one by one. Whoever makes it has seen that the outputs that are read are at hand (`ready`)."""

    __slots__ = ("_element", "_limit", "_schema")

    def __init__(self, tick: Tick, index: int, schema: dict[str, object] | None) -> None:
        bearing = bearing_of(tick.manifest.steps[index])
        self._schema = Schema(schema) if schema is not None else None
        self._limit = tick.limits.payload_max_bytes
        self._element: _Element = _pair
        if bearing.input is not None:
            self._element = tick.programs.per_element(bearing.input, bindings(tick, bearing.input))

    def render(self, item: Any, number: int) -> str:
        """The input of one child as JSON text. Raises `NodeFault`."""
        try:
            value = self._element(item, number)
            text = jsonvalue.encode(value, root="input", max_bytes=self._limit)
        except ExpressionError as error:
            raise NodeFault.of(faults.of_expression(error)) from None
        except PayloadInvalid as error:
            raise NodeFault.of(faults.of_payload(error)) from None
        self._judge(value)
        return text

    def _judge(self, value: Any) -> None:
        if not isinstance(value, dict):
            raise NodeFault(faults.CHILD_INPUT_INVALID, "the input of a run is a map, and this is none")
        wrong = self._schema.faults(value, root="input") if self._schema is not None else ()
        if wrong:
            shown = "; ".join(f"{fault.path}: {fault.message}" for fault in wrong[:_SHOWN_FAULTS])
            raise NodeFault(faults.CHILD_INPUT_INVALID, f"the child does not take this input: {shown}")


class Brood(msgspec.Struct, frozen=True, kw_only=True):
    """The children of a node that is about to have some: the frozen list, the version, and how their inputs are made."""

    collection: expanding.Collection
    workflow: Workflow
    inputs: Inputs


def brood(tick: Tick, index: int, items: Expression) -> Brood | None:
    """Freeze the list and the version, and make the first input: a mapping that is broken for all is found before there is a child. None where something is
    still to be loaded. Raises `ExpressionError`, `PayloadInvalid` and `NodeFault`."""
    collection = expanding.freeze(tick, index, items)
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


def inputs_of(tick: Tick, index: int) -> Inputs | None:
    """What to render the inputs of the node's children with: what it prepared in this very tick, else with the version that its fan has frozen, which still has
    children if it has been archived since. None where something is still to be loaded."""
    known: Inputs | None = tick.fresh.get(index)
    if known is not None:
        return known
    template = bearing_of(tick.manifest.steps[index]).input
    found = version_of(tick, index)
    if (template is not None and tick.lacks(template.steps)) or not isinstance(found, Workflow):
        return None
    return Inputs(tick, index, found.input_schema)


def version_of(tick: Tick, index: int) -> Workflow | msgspec.UnsetType:
    """The version that the node has frozen; UNSET where it is still to be loaded."""
    family = bearing_of(tick.manifest.steps[index]).workflow.family_slug
    found: Workflow | msgspec.UnsetType = tick.given(
        WorkflowNeed(family_slug=family, version=fan_of(tick, index).version)
    )
    return found


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
    kept: list[Kin] = []
    failed: list[tuple[int, Fault]] = []
    step, attempt = tick.manifest.steps[index], tick.work.nodes[index].attempt
    count = 0
    for item in items:
        if count and tick.begun_bytes >= tick.limits.children_max_bytes:
            break
        number = first + count
        if number in kin:
            kept.append(kin[number])
        else:
            try:
                text = inputs.render(item, number)
            except NodeFault as error:
                failed.append((number, error.fault))
            else:
                tick.begun_bytes += len(text)
                due = due_times[count] if due_times else None
                child = run_id_of(tick.run_id, step.ref, attempt, number)
                births.append(Birth(item_index=number, run_id=child, input_json=text, due_time=due))
        count += 1
    tick.begun += count
    last = births[-1].run_id if births else kept[-1].run_id if kept else ""
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


def _attach(tick: Tick, index: int, kin: Sequence[Kin], from_run_id: str) -> None:
    """Children that there are become children of this attempt of the node. Those of its own that have not completed are redriven: at once if they have ended,
    when they have if they are being stopped, and not at all if they are at work (C4)."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    bearing = bearing_of(step)
    for redrive in (False, True):
        children = tuple((k.item_index, k.run_id) for k in kin if _wants_redrive(k, from_run_id) is redrive)
        if children:
            tick.do(
                AttachChildren(
                    step_ref=step.ref,
                    attempt=node.attempt,
                    children=children,
                    redrive=redrive,
                    request_id=ids.derived("redrive", tick.run_id, step.ref, node.attempt) if redrive else "",
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


def _problem(wanted: WorkflowRef, problem: str) -> NodeFault:
    family = wanted.family_slug
    match problem:
        case "unknown_family":
            return NodeFault("child_workflow_unknown", f"there is no published definition {family}")
        case "unknown_version":
            return NodeFault("child_version_unknown", f"{family} has no version {wanted.version}")
        case "archived":
            which = f"version {wanted.version}" if wanted.version else "the newest version"
            return NodeFault("child_version_archived", f"{which} of {family} is archived: nothing new runs it")
    raise EngineError("UNKNOWN_PROBLEM", f"{family}: {problem}")


def _pair(item: Any, number: int) -> dict[str, Any]:
    """What a child is given where its step does not say."""
    return {"item": item, "index": number}
