"""`ductor workflow validate`, `schema`, `graph`: what needs no server. A definition is judged by the same compile as a publish."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from rich.text import Text as Line

from ductord.cli.ending import DONE, FAILED, CommandFailed
from ductord.cli.output import counted, print_json, show
from ductord.cli.texts import Text, read, told
from ductord.engine.compile import compile_definition, manifest_hash
from ductord.engine.document import read_document
from ductord.engine.export import export_yaml, json_schema, mermaid
from ductord.model.errors import Violation
from ductord.model.jsonvalue import normalise
from ductord.model.manifest import Manifest


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A file's judgement. `manifest` and `tree` are None where a violation that is no warning stands."""

    text: Text
    violations: tuple[Violation, ...]
    manifest: Manifest | None = None
    tree: dict[str, Any] | None = None

    @property
    def valid(self) -> bool:
        """Whether it would publish."""
        return self.manifest is not None


def judged(name: str) -> Judged:
    """Read and judge a file: the faults of its text and of its meaning together. Raises `CommandFailed` when it cannot be read at all."""
    text = read(name)
    document = read_document(text.content, door=text.door)
    if document.definition is None:
        return Judged(text=text, violations=document.violations)
    result = compile_definition(document.definition, positions=document.positions)
    violations = (*document.violations, *result.violations)
    if document.violations or result.manifest is None:
        return Judged(text=text, violations=violations)
    return Judged(text=text, violations=violations, manifest=result.manifest, tree=result.canonical_definition)


async def validate(names: Sequence[str], *, as_json: bool) -> int:
    """Judge every file and tell everything that is wrong; 1 if any is not valid."""
    results = [judged(name) for name in names]
    if as_json:
        print_json({"data": [_told(result) for result in results]})
    else:
        for result in results:
            told(result.text.name, result.violations, sys.stdout)
            if result.manifest is not None:
                steps, edges = len(result.manifest.steps), len(result.manifest.edges)
                summary = f"{result.manifest.family_slug}, {counted(steps, 'step')}, {counted(edges, 'edge')}"
                show(Line.assemble((f"{result.text.name}: ", "bold"), ("valid", "bold green"), f"  {summary}"))
    return DONE if all(result.valid for result in results) else FAILED


async def schema() -> int:
    """The JSON Schema of definition files."""
    print_json(json_schema())
    return DONE


async def graph(name: str) -> int:
    """A file's graph as Mermaid."""
    manifest = _valid(name).manifest
    assert manifest is not None
    sys.stdout.write(mermaid(manifest))
    return DONE


def canonical(name: str) -> tuple[str, str]:
    """Family slug and deterministic YAML of a file. Raises `CommandFailed` when it is not valid."""
    found = _valid(name)
    assert found.manifest is not None
    assert found.tree is not None
    return found.manifest.family_slug, export_yaml(normalise(found.tree))


def _valid(name: str) -> Judged:
    found = judged(name)
    if not found.valid:
        told(found.text.name, found.violations, sys.stderr)
        raise CommandFailed(f"{found.text.name} is not valid")
    return found


def _told(result: Judged) -> dict[str, Any]:
    return {
        "file": result.text.name,
        "valid": result.valid,
        "manifest_hash": manifest_hash(result.manifest) if result.manifest is not None else "",
        "violations": [msgspec.to_builtins(v) for v in result.violations if not v.warning],
        "warnings": [msgspec.to_builtins(v) for v in result.violations if v.warning],
    }
