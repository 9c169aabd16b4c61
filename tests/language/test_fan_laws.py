"""Whatever a definition says about fan-outs and children is judged and never breaks the judge: the same through a file, and what is published reads back
(rulings L1, F1 to F6; YM-01)."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from ductord.engine.compile import compile_definition, manifest_hash
from ductord.engine.document import read_document
from ductord.engine.export import export_yaml, mermaid
from ductord.model.authored.fans import Dataflow, ForEach, Gather, Scatter, Subworkflow
from ductord.model.manifest import decode, encode
from tests.language.documents import definition, edge, law
from tests.language.fan_words import LEAST, MOST, of

MODELS: dict[str, type[BaseModel]] = {
    "scatter": Scatter,
    "gather": Gather,
    "for_each": ForEach,
    "dataflow": Dataflow,
    "subworkflow": Subworkflow,
}
ODD: list[Any] = [
    True, 0, 1, -1, 10_001, 1 << 40, 1.5, "", "x", "ITEM", "ACC", "[1]", "true", "${{ ITEM }}", "${{", "10%", "100.5%", "terminal", "checkpoint:a",
    "checkpoint:", "child_workflow", "reduce", "project", "async", "raise", "core:echo", "core:sleep", "s", "a", [], [1], {}, {"family_slug": "p"},
    {"family_slug": "p", "version": 1}, {"family_slug": 5}, {"a": "ITEM"}, {"a": 1}, {"a b": "1"}, {"ms": "${{ INDEX }}"}, [{"x": "${{ ITEM }}"}],
]  # fmt: skip
"""Values that are right somewhere and wrong elsewhere."""

AROUND = (
    "run_if",
    "join",
    "on_error",
    "result_expr",
    "retry_max_attempts",
    "timeout_ms",
    "queue",
    "compensation",
    "args",
)


@st.composite
def steps(draw: st.DrawFn, ref: str) -> dict[str, Any]:
    """A step of one of the types, of which some fields say something odd."""
    kind = draw(st.sampled_from(list(MODELS)))
    said = dict(draw(st.sampled_from([LEAST[kind], MOST[kind], {}])))
    names = st.sampled_from([*MODELS[kind].model_fields, "unheard_of"])
    said |= draw(st.dictionaries(names, st.sampled_from(ODD), max_size=2))
    around = draw(st.dictionaries(st.sampled_from(AROUND), st.sampled_from(ODD), max_size=1))
    return of(kind, said, ref, **around)


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    scatter = of("scatter", LEAST["scatter"], "s")
    kinds = st.sampled_from(["success", "error", "done"])
    edges = [edge(source, target, draw(kinds)) for source, target in (("s", "a"), ("a", "b"), ("s", "b"))]
    return definition(scatter, draw(steps("a")), draw(steps("b")), edges=edges, variables={"kind": 1})


@pytest.mark.timeout(120)
@settings(parent=law, max_examples=200)
@given(definitions())
def test_whatever_is_said_is_judged_alike_through_a_file(tree: dict[str, Any]) -> None:
    result = compile_definition(tree)
    read = read_document(export_yaml(tree))
    assert read.definition is not None
    through = compile_definition(read.definition, positions=read.positions)
    assert sorted((v.code, v.path) for v in through.violations) == sorted((v.code, v.path) for v in result.violations)
    assert all(found.line is not None for found in through.violations)
    assert (result.manifest is None) == bool(result.errors)
    if result.manifest is not None:
        assert decode(encode(result.manifest)) == result.manifest
        assert through.manifest is not None
        assert manifest_hash(through.manifest) == manifest_hash(result.manifest)
        assert mermaid(result.manifest).startswith("flowchart TD")
