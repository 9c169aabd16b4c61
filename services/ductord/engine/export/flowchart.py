"""A manifest as a Mermaid flowchart: steps as boxes, edges with what decides them."""

from typing import Final

from ductord.model.enums import EdgeType, Join
from ductord.model.manifest import Edge, Manifest, Step
from ductord.model.specs import Compensation, InverseSpec, WaitSpec

_MAX_LABEL: Final = 60


def mermaid(manifest: Manifest) -> str:
    """The flowchart's text, ending with a newline; deterministic."""
    lines = ["flowchart TD"]
    lines += [f'    s{index}["{_label(step)}"]' for index, step in enumerate(manifest.steps)]
    lines += [f"    s{edge.source} {_arrow(edge)} s{edge.target}" for edge in manifest.edges]
    for number, checkpoint in enumerate(manifest.checkpoints):
        lines.append(f'    c{number}(["checkpoint {_escaped(checkpoint.name)}"])')
        lines += [f"    s{index} -.- c{number}" for index in checkpoint.steps]
    return "\n".join(lines) + "\n"


def _label(step: Step) -> str:
    parts = [_escaped(step.ref), _escaped(_work(step))]
    if step.run_if is not None:
        parts.append(f"if {_escaped(step.run_if.source)}")
    if step.join is Join.ANY:
        parts.append("join any")
    if step.compensation is not None:
        parts.append(", ".join(f"{mark} {len(block)}" for mark, block in _marked(step.compensation) if block))
    return "<br/>".join(parts)


def _work(step: Step) -> str:
    """What the step does: its action, or its type and what it waits for."""
    if step.action is not None:
        return step.action.action
    words = [step.type.value.replace("_", " ")]
    if step.wait is not None:
        words.append(_awaited(step.wait))
    elif step.human_loop is not None:
        words.append(step.human_loop.case_type)
    elif step.event_set is not None:
        words.append(", ".join(requirement.name for requirement in step.event_set.requirements))
    return " ".join(words)


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
