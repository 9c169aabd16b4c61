"""What a definition says about fan-outs and children, in its manifest, in files, in the schema and in flowcharts (rulings F1 to F6, L1, L3, A1)."""

from typing import Any

import pytest

from ductord.engine.compile import compile_definition, manifest_hash
from ductord.engine.document import read_document
from ductord.engine.export import export_yaml, mermaid
from ductord.engine.graph import graph_of
from ductord.model.fanout import (
    ClosePolicy,
    DataflowSpec,
    ForEachSpec,
    GatherSpec,
    OnChildTimeout,
    OnItemError,
    Operation,
    ScatterMode,
    ScatterSpec,
    SubworkflowMode,
    SubworkflowSpec,
    WorkflowRef,
)
from ductord.model.manifest import decode, encode
from ductord.model.specs import ActionSpec, Expression, Template
from tests.language.documents import definition, edge, step
from tests.language.fan_words import (
    CHILD,
    CHILDREN,
    INLINE,
    ITEMS,
    LEAST,
    MAP,
    MOST,
    PAGES,
    PROJECT,
    RUNS,
    after,
    manifest_of,
    of,
    step_of,
)


@pytest.mark.parametrize("kind", LEAST)
def test_each_type_compiles_with_the_least_and_with_the_most_it_can_say(kind: str) -> None:
    for said in (LEAST[kind], MOST[kind]):
        manifest = manifest_of(after(of(kind, said)))
        assert getattr(manifest.steps[-1], kind) is not None
        assert decode(encode(manifest)) == manifest


@pytest.mark.parametrize("kind", LEAST)
def test_manifests_with_such_steps_need_the_fourth_level(kind: str) -> None:
    """An older engine leaves their runs alone."""
    assert manifest_of(after(of(kind, LEAST[kind]))).engine_level == 4


def test_the_defaults() -> None:
    inline, runs = step_of("scatter", INLINE).scatter, step_of("scatter", RUNS).scatter
    assert inline == ScatterSpec(items=PAGES, action=ActionSpec(action="core:echo", args=Template(tree={})))
    assert runs == ScatterSpec(items=PAGES, mode=ScatterMode.CHILD_WORKFLOW, workflow=WorkflowRef(family_slug="page"))
    assert step_of("gather", LEAST["gather"]).gather == GatherSpec(scatter_ref="s")
    assert step_of("for_each", LEAST["for_each"]).for_each == ForEachSpec(
        items=PAGES, workflow=WorkflowRef(family_slug="page")
    )
    assert step_of("subworkflow", CHILD).subworkflow == SubworkflowSpec(workflow=WorkflowRef(family_slug="page"))
    not_waited_for = step_of("subworkflow", CHILD | {"mode": "async"}).subworkflow
    assert not_waited_for is not None
    assert (not_waited_for.mode, not_waited_for.close_policy) == (SubworkflowMode.ASYNC, ClosePolicy.ABANDON)


def test_what_is_said_arrives() -> None:
    scatter, runs = step_of("scatter", MOST["scatter"]).scatter, step_of("scatter", CHILDREN).scatter
    assert scatter is not None
    assert runs is not None
    assert scatter.action is not None
    assert scatter.action.args.names == ("INDEX", "ITEM")
    assert (scatter.max_inline_children, scatter.max_concurrency, scatter.interval_ms) == (1_000, 8, 50)
    assert (scatter.tolerated, scatter.tolerated_percent, scatter.raises) == (None, 2.5, False)
    assert (runs.tolerated, runs.tolerated_percent, runs.close_policy) == (7, None, ClosePolicy.ABANDON)
    assert runs.input is not None
    assert runs.input.names == ("ITEM",)
    for_each = step_of("for_each", MOST["for_each"]).for_each
    assert for_each is not None
    assert (for_each.on_item_error, for_each.close_policy) == (OnItemError.CONTINUE, ClosePolicy.TERMINATE)
    assert for_each.workflow == WorkflowRef(family_slug="page", version=3)
    reduce, project = step_of("dataflow", MOST["dataflow"]).dataflow, step_of("dataflow", PROJECT).dataflow
    assert reduce is not None
    assert reduce.expr is not None
    assert reduce.initial is not None
    assert (reduce.expr.names, reduce.initial.names) == (("ACC", "INDEX", "ITEM"), ("VARS",))
    assert project == DataflowSpec(
        operation=Operation.PROJECT,
        items=PAGES,
        fields={"a": Expression(source="ITEM.a", names=("ITEM",)), "at": Expression(source="INDEX", names=("INDEX",))},
    )
    child = step_of("subworkflow", MOST["subworkflow"]).subworkflow
    assert child is not None
    assert (child.checkpoint, child.timeout_ms) == ("paid.in-full", 5_000)
    assert (child.on_timeout, child.close_policy) == (OnChildTimeout.CONTINUE_WITH_ERROR, ClosePolicy.ABANDON)
    mapped = step_of("subworkflow", CHILD | {"output": "${{ OUTPUT.url }}"}).subworkflow
    assert mapped is not None
    assert mapped.output is not None
    assert mapped.output.names == ("OUTPUT",)


@pytest.mark.parametrize(("written", "count", "percent"), [(0, 0, None), ("0%", None, 0.0), ("100%", None, 100.0)])
def test_a_tolerance_is_a_count_or_a_share_f1(written: Any, count: int | None, percent: float | None) -> None:
    scatter = step_of("scatter", INLINE | {"tolerated_failures": written}).scatter
    assert scatter is not None
    assert (scatter.tolerated, scatter.tolerated_percent) == (count, percent)


def test_a_scatter_knows_that_its_gather_raises_f2() -> None:
    raising = of("gather", {"scatter_ref": "s", "stream_error": "raise"}, "g")
    first, second = (one.scatter for one in manifest_of(after(of("scatter", INLINE), raising)).steps if one.scatter)
    assert (first.raises, second.raises) == (True, False)


@pytest.mark.parametrize(
    ("kind", "said", "defaults"),
    [
        ("scatter", INLINE, {"mode": "inline", "args": {}, "interval_ms": 0}),
        ("scatter", RUNS, {"parent_close_policy": "request_cancel"}),
        ("gather", {"scatter_ref": "s"}, {"stream_error": "partition"}),
        ("for_each", ITEMS | CHILD, {"on_item_error": "stop", "parent_close_policy": "request_cancel"}),
        ("subworkflow", CHILD, {"mode": "sync", "wait_for": "terminal", "on_timeout": "fail_parent", "input": {}}),
        ("subworkflow", CHILD | {"mode": "async"}, {"parent_close_policy": "abandon"}),
    ],
)
def test_a_default_that_is_written_out_is_the_same_manifest(
    kind: str, said: dict[str, Any], defaults: dict[str, Any]
) -> None:
    one, other = after(of(kind, said)), after(of(kind, said | defaults))
    assert manifest_hash(manifest_of(one)) == manifest_hash(manifest_of(other))


def test_what_a_fan_out_reads_is_loaded_for_it_l3() -> None:
    """Once for all its children."""
    reading = [
        of("scatter", {"items_expr": "STEPS.a.output", "action": "core:echo"}, "i"),
        of("scatter", INLINE | {"args": {"x": "${{ STEPS.a.output.x + ITEM }}"}}, "r"),
        of("scatter", RUNS | {"input": "${{ STEPS.a.output }}"}, "c"),
        of("for_each", ITEMS | CHILD | {"input": "${{ STEPS.a.output }}"}, "f"),
        of("dataflow", MAP | {"expr": "STEPS.a.output.x * ITEM"}, "d"),
        of("dataflow", PROJECT | {"fields": {"x": "STEPS.a.output.x"}}, "p"),
        of("dataflow", MAP | {"operation": "reduce", "initial": "${{ STEPS.a.output }}"}, "z"),
        of("subworkflow", CHILD | {"input": "${{ STEPS.a.output }}"}, "w"),
        of("subworkflow", CHILD | {"output": "${{ STEPS.a.output + OUTPUT }}"}, "o"),
    ]
    manifest = manifest_of(definition(step("a"), *reading, edges=[edge("a", one["ref"]) for one in reading]))
    graph = graph_of(manifest)
    for one in reading:
        assert graph.start_reads[graph.index[one["ref"]]] == ("a",), one["ref"]


@pytest.mark.parametrize("kind", [*MOST, "children", "project"])
def test_files_carry_every_field(kind: str) -> None:
    """YAML and JSON: the same tree, the same hash (L1, YM-01)."""
    said = {"children": of("scatter", CHILDREN), "project": of("dataflow", PROJECT)}
    tree = after(said.get(kind) or of(kind, MOST[kind]))
    read = read_document(export_yaml(tree))
    assert read.violations == ()
    assert read.definition == tree
    written = compile_definition(tree).canonical_definition
    assert written == tree
    assert manifest_hash(manifest_of(written)) == manifest_hash(manifest_of(tree))


def test_flowcharts_show_where_children_begin_and_are_collected() -> None:
    steps = [
        of("scatter", INLINE | {"max_concurrency": 3}, "i"),
        of("scatter", RUNS, "c"),
        of("gather", {"scatter_ref": "s", "stream_error": "include"}, "g"),
        of("for_each", MOST["for_each"], "f"),
        of("dataflow", MAP, "d"),
        of("subworkflow", CHILD, "w"),
        of("subworkflow", MOST["subworkflow"], "x"),
        of("subworkflow", CHILD | {"mode": "async"}, "y"),
    ]
    chart = mermaid(manifest_of(after(*steps)))
    for text in (
        '[/"i<br/>scatter core:echo, 3 at once<br/>over TRIGGER.payload.pages"\\]',
        '[/"c<br/>scatter page<br/>over TRIGGER.payload.pages"\\]',
        '[\\"g<br/>gather s, include"/]',
        '[["f<br/>for each page v3<br/>over TRIGGER.payload.pages"]]',
        '["d<br/>dataflow map<br/>over TRIGGER.payload.pages"]',
        '[["w<br/>subworkflow page"]]',
        '[["x<br/>subworkflow page v3, until paid.in-full"]]',
        '[["y<br/>subworkflow page, not waited for"]]',
    ):
        assert text in chart, text
