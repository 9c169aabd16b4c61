"""What the model can say and this release cannot do: refused by name and path, so that nothing is accepted and then ignored (ruling L1).

Judged before the shape, so that a definition for a later release hears of the feature once and not of its fields.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ductord.engine.compile.findings import Findings
from ductord.engine.positions import Path
from ductord.model.definition import Definition

LATER: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("schedule",),
    "steps": ("connection_ref", "connection_ref_mode"),
    "triggers": ("filter", "input", "tier"),
}
"""Fields by the list whose items have them; those of the definition itself under the empty name."""

_LATER_TRIGGERS: Final = ("event", "schedule")
_OF_OTHER_TRIGGERS: Final[Mapping[str, str]] = {"patterns": "event", "schedule": "schedule"}


def without_later_features(tree: dict[str, Any], findings: Findings) -> dict[str, Any]:
    """A copy of the tree without the fields of later releases; each that was written is reported, unless its trigger is of a later type as a
    whole."""
    rest: dict[str, Any] = _without(tree, LATER[""], (), findings)
    for part in ("steps", "triggers"):
        items = rest.get(part)
        if isinstance(items, list):
            rest[part] = [_without(item, LATER[part], (part, number), findings) for number, item in enumerate(items)]
    return rest


def judge_triggers(definition: Definition, numbers: Iterable[int], findings: Findings) -> None:
    """Only manual triggers start runs yet."""
    for number, trigger in zip(numbers, definition.triggers or (), strict=True):
        if trigger.type != "manual":
            message = f"this release has no triggers of type `{trigger.type}`"
            findings.add("FEATURE_NOT_SUPPORTED", message, ("triggers", number, "type"))
            continue
        for name, kind in _OF_OTHER_TRIGGERS.items():
            if getattr(trigger, name) is not None:
                message = f"`{name}` belongs to triggers of type `{kind}`"
                findings.add("FIELD_NOT_APPLICABLE", message, ("triggers", number, name), on_key=True)


def _without(item: Any, names: tuple[str, ...], path: Path, findings: Findings) -> Any:
    if not isinstance(item, dict):
        return item
    told = path[:1] != ("triggers",) or item.get("type") not in _LATER_TRIGGERS
    for name in names if told else ():
        if item.get(name) is not None:
            findings.add(
                "FEATURE_NOT_SUPPORTED", f"this release does not support `{name}` here", (*path, name), on_key=True
            )
    return {key: value for key, value in item.items() if key not in names}
