"""Actions and their args against the catalog, of steps and of their compensations (contract: Actions).

Args are checked as far as they are known: what a template will fill in is left to the worker, the rest is judged at publish.
"""

from typing import Any, Final

from ductord.engine import templates
from ductord.engine.compile.findings import Findings, path_of
from ductord.engine.positions import Path
from ductord.engine.steps import SUPPORTED
from ductord.engine.suggest import suggestion
from ductord.model.actions import ActionCatalog
from ductord.model.definition import StepDefinition
from ductord.model.enums import StepType
from ductord.model.schemas import Schema

_ABOUT_WHAT_IS_BELOW: Final = frozenset(
    {"not", "anyOf", "oneOf", "oneOfNotValid", "oneOfMultipleValid", "if", "const", "enum", "contains"}
)


def judge_action(step: StepDefinition, number: int, actions: ActionCatalog, findings: Findings) -> None:
    """Report an action that nobody brings and args that its schema refuses."""
    path: Path = ("steps", number)
    if step.type not in SUPPORTED:  # refused as a whole
        return
    if step.type != StepType.ACTION:
        for name in ("action", "args"):
            if getattr(step, name) is not None:
                owner = "; a scatter has its own under `scatter`" if step.type == StepType.SCATTER else ""
                message = f"`{name}` belongs to steps of type `action`{owner}"
                findings.add("FIELD_NOT_APPLICABLE", message, (*path, name), on_key=True)
        return
    if step.action is None:
        findings.add("MISSING_FIELD", "`action` is missing", (*path, "action"))
        return
    judge_call(step.action, step.args, step.queue, path, actions, findings)


def judge_call(
    action: str, args: dict[str, Any] | None, queue: str | None, path: Path, actions: ActionCatalog, findings: Findings
) -> None:
    """Report an action at `path` that nobody brings, and args that its schema refuses. `queue`: the written one, whose workers bring what is not built in."""
    info = actions.get(action)
    if info is None:
        if queue is None:
            hint = suggestion(action, actions) or "; an action of remote workers needs the `queue` that they poll"
            findings.add("UNKNOWN_ACTION", f"no action is named `{action}`{hint}", (*path, "action"))
        return
    written: dict[str, Any] = args or {}
    rendered_later = _dynamic(written, "")
    for fault in Schema(dict(info.args)).faults(written):
        if fault.path in rendered_later:
            continue
        if fault.keyword in _ABOUT_WHAT_IS_BELOW and any(later.startswith(fault.path) for later in rendered_later):
            continue
        message = f"{fault.message} (`{action}`, {fault.path or 'args'})"
        findings.add("INVALID_ACTION_ARGS", message, (*path, "args", *path_of(fault.path)))


def _dynamic(tree: Any, path: str) -> set[str]:
    """Paths, as the schema engine writes them, of the strings that a template fills in."""
    if isinstance(tree, str):
        return set() if templates.is_static(tree) else {path.removeprefix(".")}
    if isinstance(tree, dict):
        return set().union(*(_dynamic(value, f"{path}.{key}") for key, value in tree.items()))
    if isinstance(tree, list):
        return set().union(*(_dynamic(item, f"{path}[{number}]") for number, item in enumerate(tree)))
    return set()
