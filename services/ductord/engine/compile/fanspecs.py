"""Steps that fan out and compose in their form in the manifest: texts judged in their place, defaults resolved (rulings F1 to F6)."""

from collections.abc import Iterable
from typing import Final

import msgspec

from ductord.engine.compile.texts import UNSOUND, Reachable, Reader, Texts
from ductord.engine.expressions import Site
from ductord.engine.positions import Path
from ductord.model.authored.fans import Dataflow, ForEach, Gather, Scatter, Subworkflow, WorkflowReference
from ductord.model.definition import StepDefinition
from ductord.model.enums import StepType
from ductord.model.fanout import (
    ClosePolicy,
    DataflowSpec,
    ForEachSpec,
    GatherSpec,
    OnChildTimeout,
    OnItemError,
    Operation,
    ScatterMode,
    ScatterSpec,
    StreamError,
    SubworkflowMode,
    SubworkflowSpec,
    WorkflowRef,
)
from ductord.model.specs import ActionSpec, Template

FANNING: Final = frozenset(
    {StepType.SCATTER, StepType.GATHER, StepType.FOR_EACH, StepType.DATAFLOW, StepType.SUBWORKFLOW}
)
"""The types that the fourth level of behaviour brought."""

CHECKPOINT: Final = "checkpoint:"
"""What `wait_for` begins with where it is not the child's end."""


class FanSpecs(msgspec.Struct, frozen=True, kw_only=True):
    """The object of one step; the others are None."""

    scatter: ScatterSpec | None = None
    gather: GatherSpec | None = None
    for_each: ForEachSpec | None = None
    dataflow: DataflowSpec | None = None
    subworkflow: SubworkflowSpec | None = None


def compiled(written: StepDefinition, path: Path, texts: Texts, before: Reachable, raising: frozenset[str]) -> FanSpecs:
    """The manifest's form of what a step says about its own type. `before`: the refs of its ancestors. `raising`: as `raising` gives them."""
    read = Reader(texts, before)
    match written.type:
        case StepType.SCATTER if written.scatter is not None:
            return FanSpecs(scatter=_scatter(written.scatter, (*path, "scatter"), read, written.ref in raising))
        case StepType.GATHER if written.gather is not None:
            return FanSpecs(gather=_gather(written.gather))
        case StepType.FOR_EACH if written.for_each is not None:
            return FanSpecs(for_each=_for_each(written.for_each, (*path, "for_each"), read))
        case StepType.DATAFLOW if written.dataflow is not None:
            return FanSpecs(dataflow=_dataflow(written.dataflow, (*path, "dataflow"), read))
        case StepType.SUBWORKFLOW if written.subworkflow is not None:
            return FanSpecs(subworkflow=_subworkflow(written.subworkflow, (*path, "subworkflow"), read))
    return FanSpecs()


def raising(steps: Iterable[StepDefinition]) -> frozenset[str]:
    """The refs of the scatters whose first failure is the last: a gather of them says `raise` (ruling F2)."""
    gathers = (step.gather for step in steps if step.type == StepType.GATHER and step.gather is not None)
    return frozenset(gather.scatter_ref for gather in gathers if gather.stream_error is StreamError.RAISE)


def _scatter(written: Scatter, path: Path, read: Reader, raises: bool) -> ScatterSpec:
    action = None
    if written.action is not None:
        args = read.template(written.args or {}, (*path, "args"), Site.ITEM)
        action = ActionSpec(action=written.action, args=args or Template())
    share = isinstance(written.tolerated_failures, str)
    return ScatterSpec(
        items=read.items(written.items_expr, (*path, "items_expr")) or UNSOUND,
        mode=written.mode or ScatterMode.INLINE,
        action=action,
        workflow=_workflow(written.workflow),
        input=read.template(written.input, (*path, "input"), Site.ITEM),
        max_inline_children=written.max_inline_children,
        max_concurrency=written.max_concurrency or 0,
        interval_ms=written.interval_ms or 0,
        tolerated=None if isinstance(written.tolerated_failures, str) else written.tolerated_failures,
        tolerated_percent=float(str(written.tolerated_failures).removesuffix("%")) if share else None,
        raises=raises,
        close_policy=written.parent_close_policy or ClosePolicy.REQUEST_CANCEL,
    )


def _gather(written: Gather) -> GatherSpec:
    return GatherSpec(scatter_ref=written.scatter_ref, stream_error=written.stream_error or StreamError.PARTITION)


def _for_each(written: ForEach, path: Path, read: Reader) -> ForEachSpec:
    return ForEachSpec(
        items=read.items(written.items_expr, (*path, "items_expr")) or UNSOUND,
        workflow=_reference(written.workflow),
        input=read.template(written.input, (*path, "input"), Site.ITEM),
        on_item_error=written.on_item_error or OnItemError.STOP,
        close_policy=written.parent_close_policy or ClosePolicy.REQUEST_CANCEL,
    )


def _dataflow(written: Dataflow, path: Path, read: Reader) -> DataflowSpec:
    site = Site.REDUCE if written.operation is Operation.REDUCE else Site.ITEM
    if written.operation in (Operation.FILTER, Operation.PARTITION):
        expr = read.condition(written.expr, (*path, "expr"), site)
    else:
        expr = read.value(written.expr, (*path, "expr"), site)
    return DataflowSpec(
        operation=written.operation,
        items=read.items(written.items_expr, (*path, "items_expr"), ("list", "map")) or UNSOUND,
        expr=expr,
        initial=read.template(written.initial, (*path, "initial")),
        fields={
            name: read.value(source, (*path, "fields", name), site) or UNSOUND
            for name, source in sorted((written.fields or {}).items())
        },
    )


def _subworkflow(written: Subworkflow, path: Path, read: Reader) -> SubworkflowSpec:
    mode = written.mode or SubworkflowMode.SYNC
    default = ClosePolicy.REQUEST_CANCEL if mode is SubworkflowMode.SYNC else ClosePolicy.ABANDON
    wait_for = written.wait_for or ""
    return SubworkflowSpec(
        workflow=_reference(written.workflow),
        input=_input(written, path, read),
        output=read.template(written.output, (*path, "output"), Site.RESULT),
        mode=mode,
        checkpoint=wait_for.removeprefix(CHECKPOINT) if wait_for.startswith(CHECKPOINT) else "",
        timeout_ms=written.timeout_ms,
        on_timeout=written.on_timeout or OnChildTimeout.FAIL_PARENT,
        close_policy=written.parent_close_policy or default,
    )


def _input(written: Subworkflow, path: Path, read: Reader) -> Template:
    default = Template(tree={})
    return default if written.input is None else read.template(written.input, (*path, "input")) or default


def _workflow(written: WorkflowReference | None) -> WorkflowRef | None:
    return None if written is None else _reference(written)


def _reference(written: WorkflowReference) -> WorkflowRef:
    return WorkflowRef(family_slug=written.family_slug, version=written.version or 0)
