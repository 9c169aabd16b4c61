"""Definitions for the tests of the language."""

from typing import Any

from hypothesis import settings

from ductord.engine.compile import CompileResult, compile_definition
from ductord.engine.document import read_document

law = settings(deadline=None, derandomize=True)
"""How property tests of the language run: the same examples every time, on a machine however busy."""

HELLO_WORLD = """\
type: workflow_definition
definition:
  family_slug: hello_world
  title: Hello World
  description: Smallest executable graph, two steps joined by a success edge.
  steps:
    - ref: a
      type: action
      action: noop:noop
      args:
        key: value
    - ref: b
      type: action
      action: noop:noop
  edges:
    - source_ref: a
      target_ref: b
      type: success
  triggers:
    - id: t1
      type: manual
  checkpoints:
    - name: accepted
      step_refs:
        - b
"""


def step(ref: str, **fields: Any) -> dict[str, Any]:
    return {"ref": ref, "type": "action", "action": "core:echo", **fields}


def edge(source: str, target: str, kind: str = "success", **fields: Any) -> dict[str, Any]:
    return {"source_ref": source, "target_ref": target, "type": kind, **fields}


def definition(*steps: dict[str, Any], edges: Any = (), **fields: Any) -> dict[str, Any]:
    return {"family_slug": "f", "steps": list(steps) or [step("a")], "edges": list(edges), **fields}


def compiled(text: str) -> CompileResult:
    """The judgement of a YAML text that reads without a fault."""
    read = read_document(text)
    assert read.violations == ()
    assert read.definition is not None
    return compile_definition(read.definition, positions=read.positions)


def codes(tree: Any, *, warnings: bool = False) -> list[tuple[str, str]]:
    """`(code, path)` of what is wrong with a tree, in order of finding."""
    result = compile_definition(tree)
    return [(found.code, found.path) for found in (result.warnings if warnings else result.errors)]


def doubling(depth: int) -> dict[str, object]:
    """A schema of a few lines that judges a value 2^depth times."""
    levels: dict[str, object] = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(depth)}
    return {"$defs": {**levels, f"a{depth}": {"type": "object"}}, "$ref": "#/$defs/a0"}
