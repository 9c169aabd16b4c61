"""Steps that fan out and compose, judged: what stands together in a type's own object, and around such a step (rulings F1 to F6).

Judges words and what is known before a run. Whether a child's definition exists, and whether its input suits it, is judged when its parent
begins it, since what is published then counts (ruling F5).
"""

from typing import Final

from ductord.engine.compile.arguments import judge_call
from ductord.engine.compile.fanspecs import CHECKPOINT, raising
from ductord.engine.compile.findings import Findings
from ductord.engine.compile.network import Network
from ductord.engine.compile.shape import Shaped
from ductord.engine.positions import Path
from ductord.engine.steps import SUPPORTED
from ductord.engine.suggest import suggestion
from ductord.model.actions import ActionCatalog
from ductord.model.authored.fans import Dataflow, Gather, Scatter, Subworkflow
from ductord.model.definition import StepDefinition
from ductord.model.enums import StepType
from ductord.model.fanout import Operation, ScatterMode, SubworkflowMode

_OF_OTHER_MODE: Final = {
    ScatterMode.INLINE: ("workflow", "input", "parent_close_policy"),
    ScatterMode.CHILD_WORKFLOW: ("action", "args", "max_inline_children"),
}
_OTHER_MODE: Final = {
    "workflow": ": children that are runs are of `mode: child_workflow`",
    "action": ": children that are an action are of `mode: inline`",
}
_NEEDED: Final = {ScatterMode.INLINE: "action", ScatterMode.CHILD_WORKFLOW: "workflow"}
_OF_WAITING: Final = ("wait_for", "timeout_ms", "on_timeout", "output")
"""What a subworkflow step says about the end of its child."""


def judge_fans(shaped: Shaped, network: Network, actions: ActionCatalog, findings: Findings) -> None:
    """Report every breach by a step of a type that this release can run."""
    raised = raising(network.steps)
    for position, step in enumerate(network.steps):
        if step.type not in SUPPORTED:
            continue
        path: Path = ("steps", network.numbers[position])
        match step.type:
            case StepType.SCATTER if step.scatter is not None:
                _judge_scatter(step, step.scatter, (*path, "scatter"), actions, findings)
                if step.ref in raised:
                    _judge_tolerance(step.scatter, (*path, "scatter"), findings)
            case StepType.GATHER if step.gather is not None:
                _judge_gather(step.gather, position, (*path, "gather", "scatter_ref"), shaped, network, findings)
            case StepType.DATAFLOW if step.dataflow is not None:
                _judge_dataflow(step.dataflow, (*path, "dataflow"), findings)
            case StepType.SUBWORKFLOW if step.subworkflow is not None:
                _judge_subworkflow(step.subworkflow, (*path, "subworkflow"), findings)


def _judge_scatter(
    step: StepDefinition, written: Scatter, path: Path, actions: ActionCatalog, findings: Findings
) -> None:
    mode = written.mode or ScatterMode.INLINE
    if written.mode is None and written.action is None and written.workflow is not None:
        message = "children that are runs need `mode: child_workflow`"
        findings.add("MISSING_FIELD", message, (*path, "mode"))
        mode = ScatterMode.CHILD_WORKFLOW
    for name in _OF_OTHER_MODE[mode]:
        if getattr(written, name) is not None:
            message = f"`{name}` says nothing under `mode: {mode}`{_OTHER_MODE.get(name, '')}"
            findings.add("FIELD_NOT_APPLICABLE", message, (*path, name), on_key=True)
    needed = _NEEDED[mode]
    if getattr(written, needed) is None:
        message = f"`mode: {mode}` needs the `{needed}` of the children"
        findings.add("MISSING_FIELD", message, (*path, needed))
    if mode is ScatterMode.INLINE and written.action is not None:
        judge_call(written.action, written.args, step.queue, path, actions, findings)


def _judge_tolerance(written: Scatter, path: Path, findings: Findings) -> None:
    tolerated = written.tolerated_failures
    if tolerated is not None and float(str(tolerated).removesuffix("%")) > 0:
        message = f"no failure is tolerated where the gather says `stream_error: raise`: leave one of them out, or write 0 for {tolerated}"
        findings.add("TOLERANCE_CONFLICT", message, (*path, "tolerated_failures"))


def _judge_gather(
    written: Gather, position: int, path: Path, shaped: Shaped, network: Network, findings: Findings
) -> None:
    ref = written.scatter_ref
    scatters = [step.ref for step in network.steps if step.type == StepType.SCATTER]
    if ref not in network.index:
        if ref not in shaped.lost_refs:
            message = f"no step is named `{ref}`{suggestion(ref, scatters)}"
            findings.add("UNKNOWN_STEP_REF", message, path)
        return
    kind = network.steps[network.index[ref]].type
    if kind != StepType.SCATTER:
        message = (
            f"a gather collects the children of a scatter; step `{ref}` is of type `{kind}`{suggestion(ref, scatters)}"
        )
        findings.add("SCATTER_REQUIRED", message, path)
    elif ref not in network.ancestors(position):
        message = f"scatter `{ref}` does not run before this gather: let a path of edges lead from it here"
        findings.add("STEP_NOT_ANCESTOR", message, path)


def _judge_dataflow(written: Dataflow, path: Path, findings: Findings) -> None:
    operation = written.operation
    if operation is Operation.PROJECT:
        if written.expr is None and written.fields is None:
            findings.add("MISSING_FIELD", "`operation: project` needs its `fields`, or an `expr`", (*path, "fields"))
        elif written.expr is not None and written.fields is not None:
            message = "a projection says its `fields` or an `expr`, not both"
            findings.add("FIELDS_EXCLUSIVE", message, (*path, "expr"), on_key=True)
    else:
        if written.expr is None:
            findings.add("MISSING_FIELD", f"`operation: {operation}` needs an `expr`", (*path, "expr"))
        if written.fields is not None:
            message = f"`fields` says nothing under `operation: {operation}`: it belongs to `project`"
            findings.add("FIELD_NOT_APPLICABLE", message, (*path, "fields"), on_key=True)
    if operation is Operation.REDUCE and written.initial is None:
        message = "ACC is null for the first element, as there is no `initial`"
        findings.add("INITIAL_MISSING", message, path, warning=True, on_key=True)
    elif operation is not Operation.REDUCE and written.initial is not None:
        message = f"`initial` says nothing under `operation: {operation}`: it belongs to `reduce`"
        findings.add("FIELD_NOT_APPLICABLE", message, (*path, "initial"), on_key=True)


def _judge_subworkflow(written: Subworkflow, path: Path, findings: Findings) -> None:
    if written.mode is SubworkflowMode.ASYNC:
        for name in _OF_WAITING:
            if getattr(written, name) is not None:
                message = f"`{name}` says nothing under `mode: async`, which does not wait for the child; that is `mode: sync`"
                findings.add("FIELD_NOT_APPLICABLE", message, (*path, name), on_key=True)
        return
    if written.output is not None and (written.wait_for or "").startswith(CHECKPOINT):
        message = (
            f"`output` says nothing with `wait_for: {written.wait_for}`: the child has no output yet when it gets there"
        )
        findings.add("FIELD_NOT_APPLICABLE", message, (*path, "output"), on_key=True)
    if written.on_timeout is not None and written.timeout_ms is None:
        message = "`on_timeout` has no effect without `timeout_ms`"
        findings.add("TIMEOUT_UNUSED", message, (*path, "on_timeout"), warning=True, on_key=True)
