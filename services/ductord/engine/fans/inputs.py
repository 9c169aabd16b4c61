"""What child runs run, and what they are given (ruling F5).

Everything that can be wrong is found here, before there is a child: an unknown or archived version, a nesting that is too deep, an input that does not evaluate
or does not meet the child's schema. It begins nobody.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from ductord.engine import faults
from ductord.engine.errors import EngineError
from ductord.engine.expressions import ExpressionError
from ductord.engine.fans.expanding import fan_of
from ductord.engine.faults import NodeFault
from ductord.engine.reading import bindings
from ductord.engine.tick import Tick
from ductord.model import jsonvalue
from ductord.model.errors import PayloadInvalid
from ductord.model.fan import Workflow
from ductord.model.fanout import MAX_DEPTH, ClosePolicy, SubworkflowMode, WorkflowRef
from ductord.model.manifest import Step
from ductord.model.needs import WorkflowNeed
from ductord.model.schemas import Schema
from ductord.model.specs import Template

_SHOWN_FAULTS: Final = 3

_Element = Callable[[Any, int], Any]


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
