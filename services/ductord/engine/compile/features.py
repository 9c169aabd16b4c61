"""What the model can say and this release cannot do: refused by name and path, so that nothing is accepted and then ignored (ruling L1).

Judged before the shape, so that a definition for a later release hears of the feature once and not of its fields.
"""

from collections.abc import Mapping
from typing import Any, Final

from ductord.engine.compile.findings import Findings
from ductord.engine.positions import Path

LATER: Final[Mapping[str, tuple[str, ...]]] = {"steps": ("connection_ref", "connection_ref_mode")}
"""Fields by the list whose items have them."""


def without_later_features(tree: dict[str, Any], findings: Findings) -> dict[str, Any]:
    """A copy of the tree without the fields of later releases; each that was written is reported."""
    rest = dict(tree)
    for part, names in LATER.items():
        items = rest.get(part)
        if isinstance(items, list):
            rest[part] = [_without(item, names, (part, number), findings) for number, item in enumerate(items)]
    return rest


def _without(item: Any, names: tuple[str, ...], path: Path, findings: Findings) -> Any:
    if not isinstance(item, dict):
        return item
    for name in names:
        if item.get(name) is not None:
            findings.add(
                "FEATURE_NOT_SUPPORTED", f"this release does not support `{name}` here", (*path, name), on_key=True
            )
    return {key: value for key, value in item.items() if key not in names}
