"""A manifest as a Mermaid flowchart: steps as boxes, edges with what decides them.

A box shows by its shape what becomes of the run there: it widens where children begin, narrows where they are collected, and has double sides where
a run of another definition is.
"""

from typing import Final

from ductord.model.enums import EdgeType, Join, StepType
from ductord.model.fanout import ScatterSpec, SubworkflowMode, SubworkflowSpec, WorkflowRef
from ductord.model.manifest import Edge, Manifest, Step
from ductord.model.specs import Compensation, InverseSpec, WaitSpec

_MAX_LABEL: Final = 60
_SHAPES: Final = {
    StepType.SCATTER: ("[/", "\\]"),
    StepType.GATHER: ("[\\", "/]"),
    StepType.FOR_EACH: ("[[", "]]"),
    StepType.SUBWORKFLOW: ("[[", "]]"),
}


def mermaid(manifest: Manifest) -> str:
    """The flowchart's text, ending with a newline; deterministic."""
    lines = ["flowchart TD"]
    lines += [f"    s{index}{_box(step)}" for index, step in enumerate(manifest.steps)]
    lines += [f"    s{edge.source} {_arrow(edge)} s{edge.target}" for edge in manifest.edges]
    for number, checkpoint in enumerate(manifest.checkpoints):
        lines.append(f'    c{number}(["checkpoint {_escaped(checkpoint.name)}"])')
        lines += [f"    s{index} -.- c{number}" for index in checkpoint.steps]
    return "\n".join(lines) + "\n"


def _box(step: Step) -> str:
    begin, end = _SHAPES.get(step.type, ("[", "]"))
    return f'{begin}"{_label(step)}"{end}'


def _label(step: Step) -> str:
    parts = [_escaped(step.ref), *map(_escaped, (_work(step), *_of_fan(step)))]
    if step.run_if is not None:
        parts.append(f"if {_escaped(step.run_if.source)}")
    if step.join is Join.ANY:
        parts.append("join any")
    if step.compensation is not None:
        parts.append(", ".join(f"{mark} {len(block)}" for mark, block in _marked(step.compensation) if block))
    return "<br/>".join(parts)


def _work(step: Step) -> str:
    """What the step does: its action, or its type and what it waits for or works with."""
    if step.action is not None:
        return step.action.action
    words = [step.type.value.replace("_", " ")]
    if step.wait is not None:
        words.append(_awaited(step.wait))
    elif step.human_loop is not None:
        words.append(step.human_loop.case_type)
    elif step.event_set is not None:
        words.append(", ".join(requirement.name for requirement in step.event_set.requirements))
    elif step.scatter is not None:
        words.append(_children(step.scatter))
    elif step.gather is not None:
        words.append(f"{step.gather.scatter_ref}, {step.gather.stream_error}")
    elif step.for_each is not None:
        words.append(_run_of(step.for_each.workflow))
    elif step.dataflow is not None:
        words.append(step.dataflow.operation)
    elif step.subworkflow is not None:
        words.append(_child(step.subworkflow))
    return " ".join(words)


def _of_fan(step: Step) -> list[str]:
    """What a step of many works through."""
    of_many = step.scatter or step.for_each or step.dataflow
    return [] if of_many is None else [f"over {of_many.items.source}"]


def _children(scatter: ScatterSpec) -> str:
    what = scatter.action.action if scatter.action is not None else ""
    what = _run_of(scatter.workflow) if scatter.workflow is not None else what
    return f"{what}, {scatter.max_concurrency} at once" if scatter.max_concurrency else what


def _child(subworkflow: SubworkflowSpec) -> str:
    what = _run_of(subworkflow.workflow)
    if subworkflow.mode is SubworkflowMode.ASYNC:
        return f"{what}, not waited for"
    return f"{what}, until {subworkflow.checkpoint}" if subworkflow.checkpoint else what


def _run_of(workflow: WorkflowRef) -> str:
    return f"{workflow.family_slug} v{workflow.version}" if workflow.version else workflow.family_slug


def _awaited(wait: WaitSpec) -> str:
    if wait.duration is not None:
        return str(wait.duration.tree)
    if wait.timestamp is not None:
        return f"until {wait.timestamp.tree}"
    if wait.cron:
        return f"until {wait.cron} {wait.timezone}"
    if wait.until is not None:
        return f"until {wait.until.source}"
    return f"for {wait.event.event_name.tree}" if wait.event is not None else f"for {wait.signal}"


def _marked(compensation: Compensation) -> tuple[tuple[str, tuple[InverseSpec, ...]], ...]:
    return (
        ("on_failure", compensation.on_failure),
        ("on_cancel", compensation.on_cancel),
        ("finally", compensation.final),
    )


def _arrow(edge: Edge) -> str:
    words = [] if edge.type is EdgeType.SUCCESS else [edge.type.value]
    if edge.choice_group is not None:
        words.append(f"{_escaped(edge.choice_group)}{' default' if edge.default else ''}")
    if edge.condition is not None:
        words.append(_escaped(edge.condition.source))
    line, dotted = ("-->", "-.->") if not words else (f'-- "{": ".join(words)}" -->', f'-. "{": ".join(words)}" .->')
    return dotted if edge.type is EdgeType.DONE else line


def _escaped(text: str) -> str:
    """Text for a quoted label: on one line, cut, and with nothing in it that Mermaid reads as markup."""
    text = " ".join(text.split())
    text = text if len(text) <= _MAX_LABEL else f"{text[: _MAX_LABEL - 1]}…"
    return "".join(f"#{ord(character)};" if character in '#"<>`&\\{}[]|' else character for character in text)
