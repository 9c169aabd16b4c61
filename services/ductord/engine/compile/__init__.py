"""Compile: from a definition's tree to its manifest, or to everything that is wrong with it (rulings L1, L2; spec: Compiled plan).

    limits → features → shape → triggers → graph → rules → actions → fields → waits → fans → compensations → texts → manifest

Limits are judged alone, since a definition beyond them is not worth more; every later pass adds to one list, so that an author sees all
faults at once. A pure function of the tree and the action catalog: publish, `validate` offline and the boot loader judge alike.
"""

import hashlib
from typing import Any

import msgspec

from ductord.engine.compile.arguments import judge_action
from ductord.engine.compile.assemble import assemble
from ductord.engine.compile.compensations import MAX_COMPENSATING_ACTIONS, judge_compensations
from ductord.engine.compile.fans import judge_fans
from ductord.engine.compile.fields import judge_fields
from ductord.engine.compile.findings import Findings
from ductord.engine.compile.network import resolve
from ductord.engine.compile.rules import judge_rules
from ductord.engine.compile.shape import MAX_EDGES, MAX_STEPS, checked_tree, shape
from ductord.engine.compile.triggers import judge_triggers
from ductord.engine.compile.waits import judge_waits
from ductord.engine.positions import Positions
from ductord.model.actions import BUILT_IN, ActionCatalog
from ductord.model.canonical import canonical
from ductord.model.errors import Violation
from ductord.model.manifest import Manifest

__all__ = [
    "MAX_COMPENSATING_ACTIONS",
    "MAX_EDGES",
    "MAX_STEPS",
    "CompileResult",
    "compile_definition",
    "manifest_hash",
]


class CompileResult(msgspec.Struct, frozen=True, kw_only=True):
    """`manifest` is None exactly when a violation is no warning. `canonical_definition`: the fields that were written, in the model's order,
    nulls left out; None when the tree has faults of shape."""

    manifest: Manifest | None
    violations: tuple[Violation, ...] = ()
    canonical_definition: dict[str, Any] | None = None

    @property
    def errors(self) -> tuple[Violation, ...]:
        """The violations that stop a publish."""
        return tuple(violation for violation in self.violations if not violation.warning)

    @property
    def warnings(self) -> tuple[Violation, ...]:
        """Those that do not."""
        return tuple(violation for violation in self.violations if violation.warning)


def compile_definition(
    definition_tree: dict[str, Any], *, positions: Positions | None = None, actions: ActionCatalog = BUILT_IN
) -> CompileResult:
    """Compile a definition (the tree under `definition:`). With `positions`, violations carry line and column. Never raises for what the tree says."""
    findings = Findings(positions, definition_tree if isinstance(definition_tree, dict) else {})
    tree = checked_tree(definition_tree, findings)
    if tree is None:
        return CompileResult(manifest=None, violations=findings.violations())
    shaped = shape(tree, findings)
    definition = shaped.definition
    if definition is None:
        return CompileResult(manifest=None, violations=findings.violations())
    judge_triggers(tree, definition, shaped, findings)
    network = resolve(definition, shaped, findings)
    judge_rules(definition, shaped, network, findings)
    for number, step in zip(shaped.numbers["steps"], definition.steps, strict=True):
        judge_action(step, number, actions, findings)
    judge_fields(tree, network, findings)
    judge_waits(network, findings)
    judge_fans(shaped, network, actions, findings)
    judge_compensations(definition, shaped.numbers["steps"], actions, findings)
    manifest = assemble(definition, shaped, network, findings)
    written = (
        definition.model_dump(mode="json", exclude_unset=True, exclude_none=True, by_alias=True)
        if shaped.whole
        else None
    )
    return CompileResult(manifest=manifest, violations=findings.violations(), canonical_definition=written)


def manifest_hash(manifest: Manifest) -> str:
    """SHA-256 over the manifest's canonical JSON, in hex. The same definition has the same hash, whatever its key order and its door."""
    return hashlib.sha256(canonical(msgspec.to_builtins(manifest))).hexdigest()
