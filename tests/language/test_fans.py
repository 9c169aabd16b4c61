"""What a definition may say about fan-outs and children, and what it may not (rulings F1 to F6, L1, L3, C7, A1, A3)."""

from itertools import pairwise
from typing import Any

import pytest

from ductord.engine.compile import compile_definition, manifest_hash
from ductord.engine.document import read_document
from ductord.engine.export import export_yaml, json_schema, mermaid
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
from ductord.model.manifest import Manifest, Step, decode, encode
from ductord.model.schemas import Schema
from ductord.model.specs import ActionSpec, Expression, Template
from tests.language.documents import codes, compiled, definition, edge, step

ITEMS: dict[str, Any] = {"items_expr": "TRIGGER.payload.pages"}
PAGES = Expression(source="TRIGGER.payload.pages", names=("TRIGGER",))
ECHO = {"action": "core:echo"}
CHILD = {"workflow": {"family_slug": "page"}}
INLINE = ITEMS | ECHO
RUNS = ITEMS | CHILD | {"mode": "child_workflow"}
MAP = ITEMS | {"operation": "map", "expr": "ITEM.n"}

LEAST: dict[str, dict[str, Any]] = {
    "scatter": INLINE,
    "gather": {"scatter_ref": "s"},
    "for_each": ITEMS | CHILD,
    "dataflow": MAP,
    "subworkflow": CHILD,
}
"""The least that a step of each type says."""

MOST: dict[str, dict[str, Any]] = {
    "scatter": INLINE
    | {
        "mode": "inline",
        "args": {"page": "${{ ITEM.n }}", "at": "${{ INDEX }}"},
        "max_inline_children": 1_000,
        "max_concurrency": 8,
        "interval_ms": 50,
        "tolerated_failures": "2.5%",
    },
    "gather": {"scatter_ref": "s", "stream_error": "include"},
    "for_each": ITEMS
    | {
        "workflow": {"family_slug": "page", "version": 3},
        "input": ["${{ ITEM }}", "${{ INDEX }}"],
        "on_item_error": "continue",
        "parent_close_policy": "terminate",
    },
    "dataflow": ITEMS | {"operation": "reduce", "expr": "ACC + ITEM.n * INDEX", "initial": {"a": ["${{ VARS.kind }}"]}},
    "subworkflow": {
        "workflow": {"family_slug": "page", "version": 3},
        "input": {"order": "${{ TRIGGER.payload.order }}"},
        "mode": "sync",
        "wait_for": "checkpoint:paid.in-full",
        "timeout_ms": 5_000,
        "on_timeout": "continue_with_error",
        "parent_close_policy": "abandon",
    },
}
"""All that fits together."""

UNDO_ITEM = {"finally": [ECHO | {"args": {"x": "${{ ITEM }}"}}]}
CHILDREN = RUNS | {"input": {"page": "${{ ITEM }}"}, "tolerated_failures": 7, "parent_close_policy": "abandon"}
PROJECT = ITEMS | {"operation": "project", "fields": {"a": "ITEM.a", "at": "INDEX"}}


def of(kind: str, said: dict[str, Any] | None = None, ref: str = "w", /, **fields: Any) -> dict[str, Any]:
    return {"ref": ref, "type": kind, **({kind: said} if said is not None else {}), **fields}


def after(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The steps one after the other, behind an action `a` and a scatter `s`."""
    chain = [step("a"), of("scatter", INLINE, "s"), *steps]
    return definition(*chain, edges=[edge(one["ref"], other["ref"]) for one, other in pairwise(chain)], **fields)


def manifest_of(tree: dict[str, Any]) -> Manifest:
    result = compile_definition(tree)
    assert result.errors == ()
    assert result.manifest is not None
    return result.manifest


def step_of(kind: str, said: dict[str, Any], **fields: Any) -> Step:
    return manifest_of(after(of(kind, said, **fields))).steps[-1]


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


WRONG: list[tuple[str, dict[str, Any] | None, dict[str, Any], tuple[str, str]]] = [
    # scatter: the list
    ("scatter", None, {}, ("MISSING_FIELD", "steps[2].scatter")),
    ("scatter", {"action": "core:echo"}, {}, ("MISSING_FIELD", "steps[2].scatter.items_expr")),
    ("scatter", INLINE | {"items_expr": ""}, {}, ("INVALID_LENGTH", "steps[2].scatter.items_expr")),
    ("scatter", INLINE | {"items_expr": "${{ TRIGGER.payload.pages }}"}, {}, ("EXPRESSION_SYNTAX", "steps[2].scatter.items_expr")),
    ("scatter", INLINE | {"items_expr": "[ITEM]"}, {}, ("NAME_NOT_AVAILABLE", "steps[2].scatter.items_expr")),
    ("scatter", INLINE | {"items_expr": "STEPS.w.output"}, {}, ("STEP_NOT_ANCESTOR", "steps[2].scatter.items_expr")),
    ("scatter", INLINE | {"items_expr": "STEPS.nobody.output"}, {}, ("UNKNOWN_STEP_REF", "steps[2].scatter.items_expr")),
    ("scatter", INLINE | {"items": "[]"}, {}, ("UNKNOWN_FIELD", "steps[2].scatter.items")),
    # scatter: its children
    ("scatter", ITEMS, {}, ("MISSING_FIELD", "steps[2].scatter.action")),
    ("scatter", ITEMS | {"mode": "child_workflow"}, {}, ("MISSING_FIELD", "steps[2].scatter.workflow")),
    ("scatter", ITEMS | CHILD | {"input": {}}, {}, ("MISSING_FIELD", "steps[2].scatter.mode")),
    ("scatter", INLINE | CHILD, {}, ("FIELD_NOT_APPLICABLE", "steps[2].scatter.workflow")),
    ("scatter", INLINE | {"input": {}}, {}, ("FIELD_NOT_APPLICABLE", "steps[2].scatter.input")),
    ("scatter", INLINE | {"parent_close_policy": "abandon"}, {}, ("FIELD_NOT_APPLICABLE", "steps[2].scatter.parent_close_policy")),
    ("scatter", RUNS | {"action": "core:echo"}, {}, ("FIELD_NOT_APPLICABLE", "steps[2].scatter.action")),
    ("scatter", RUNS | {"args": {}}, {}, ("FIELD_NOT_APPLICABLE", "steps[2].scatter.args")),
    ("scatter", RUNS | {"max_inline_children": 5}, {}, ("FIELD_NOT_APPLICABLE", "steps[2].scatter.max_inline_children")),
    ("scatter", INLINE | {"mode": "parallel"}, {}, ("UNKNOWN_VALUE", "steps[2].scatter.mode")),
    ("scatter", INLINE | {"action": "core:ecko"}, {}, ("UNKNOWN_ACTION", "steps[2].scatter.action")),
    ("scatter", INLINE | {"action": "echo"}, {}, ("INVALID_NAME", "steps[2].scatter.action")),
    ("scatter", ITEMS | {"action": "core:sleep", "args": {"ms": "x"}}, {}, ("INVALID_ACTION_ARGS", "steps[2].scatter.args.ms")),
    ("scatter", INLINE | {"args": {"x": "${{ ACC }}"}}, {}, ("NAME_NOT_AVAILABLE", "steps[2].scatter.args.x")),
    ("scatter", INLINE | {"args": {"x": "${{ OUTPUT }}"}}, {}, ("NAME_NOT_AVAILABLE", "steps[2].scatter.args.x")),
    ("scatter", RUNS | {"input": "${{ ITEM + }}"}, {}, ("EXPRESSION_SYNTAX", "steps[2].scatter.input")),
    ("scatter", RUNS | {"workflow": {}}, {}, ("MISSING_FIELD", "steps[2].scatter.workflow.family_slug")),
    ("scatter", RUNS | {"workflow": {"family_slug": "Page"}}, {}, ("INVALID_NAME", "steps[2].scatter.workflow.family_slug")),
    ("scatter", RUNS | {"workflow": {"family_slug": "page", "version": 0}}, {}, ("OUT_OF_RANGE", "steps[2].scatter.workflow.version")),
    ("scatter", RUNS | {"workflow": {"family_slug": "page", "version": 1 << 31}}, {}, ("OUT_OF_RANGE", "steps[2].scatter.workflow.version")),
    ("scatter", RUNS | {"workflow": {"family_slug": "page", "ver": 1}}, {}, ("UNKNOWN_FIELD", "steps[2].scatter.workflow.ver")),
    ("scatter", RUNS | {"workflow": "page"}, {}, ("WRONG_TYPE", "steps[2].scatter.workflow")),
    # scatter: its numbers
    ("scatter", INLINE | {"max_inline_children": 0}, {}, ("OUT_OF_RANGE", "steps[2].scatter.max_inline_children")),
    ("scatter", INLINE | {"max_inline_children": 10_001}, {}, ("OUT_OF_RANGE", "steps[2].scatter.max_inline_children")),
    ("scatter", INLINE | {"max_concurrency": 0}, {}, ("OUT_OF_RANGE", "steps[2].scatter.max_concurrency")),
    ("scatter", INLINE | {"interval_ms": -1}, {}, ("OUT_OF_RANGE", "steps[2].scatter.interval_ms")),
    ("scatter", INLINE | {"tolerated_failures": -1}, {}, ("OUT_OF_RANGE", "steps[2].scatter.tolerated_failures")),
    ("scatter", INLINE | {"tolerated_failures": 10_001}, {}, ("OUT_OF_RANGE", "steps[2].scatter.tolerated_failures")),
    ("scatter", INLINE | {"tolerated_failures": "101%"}, {}, ("OUT_OF_RANGE", "steps[2].scatter.tolerated_failures")),
    ("scatter", INLINE | {"tolerated_failures": "5"}, {}, ("OUT_OF_RANGE", "steps[2].scatter.tolerated_failures")),
    ("scatter", INLINE | {"tolerated_failures": "5%\n"}, {}, ("OUT_OF_RANGE", "steps[2].scatter.tolerated_failures")),
    ("scatter", INLINE | {"tolerated_failures": True}, {}, ("WRONG_TYPE", "steps[2].scatter.tolerated_failures")),
    ("scatter", INLINE | {"tolerated_failures": 0.5}, {}, ("WRONG_TYPE", "steps[2].scatter.tolerated_failures")),
    # scatter: the step around it
    ("scatter", INLINE, {"action": "core:echo"}, ("FIELD_NOT_APPLICABLE", "steps[2].action")),
    ("scatter", INLINE, {"args": {}}, ("FIELD_NOT_APPLICABLE", "steps[2].args")),
    ("scatter", RUNS, {"retry_max_attempts": 2}, ("FIELD_NOT_APPLICABLE", "steps[2].retry_max_attempts")),
    ("scatter", RUNS, {"timeout_ms": 5}, ("FIELD_NOT_APPLICABLE", "steps[2].timeout_ms")),
    ("scatter", RUNS, {"queue": "q"}, ("FIELD_NOT_APPLICABLE", "steps[2].queue")),
    ("scatter", RUNS, {"compensation": {"on_failure": [{"action": "core:echo"}]}}, ("FIELD_NOT_APPLICABLE", "steps[2].compensation")),
    ("scatter", INLINE, {"compensation": {"on_failure": [{"action": "core:ecko"}]}}, ("UNKNOWN_ACTION", "steps[2].compensation.on_failure[0].action")),
    ("scatter", INLINE, {"gather": {"scatter_ref": "s"}}, ("FIELD_NOT_APPLICABLE", "steps[2].gather")),
    ("action", None, {"action": "core:echo", "scatter": INLINE}, ("FIELD_NOT_APPLICABLE", "steps[2].scatter")),
    # gather
    ("gather", None, {}, ("MISSING_FIELD", "steps[2].gather")),
    ("gather", {}, {}, ("MISSING_FIELD", "steps[2].gather.scatter_ref")),
    ("gather", {"scatter_ref": "nobody"}, {}, ("UNKNOWN_STEP_REF", "steps[2].gather.scatter_ref")),
    ("gather", {"scatter_ref": "a"}, {}, ("SCATTER_REQUIRED", "steps[2].gather.scatter_ref")),
    ("gather", {"scatter_ref": "w"}, {}, ("SCATTER_REQUIRED", "steps[2].gather.scatter_ref")),
    ("gather", {"scatter_ref": "no ref"}, {}, ("INVALID_NAME", "steps[2].gather.scatter_ref")),
    ("gather", {"scatter_ref": "s", "stream_error": "skip"}, {}, ("UNKNOWN_VALUE", "steps[2].gather.stream_error")),
    ("gather", {"scatter_ref": "s"}, {"timeout_ms": 5}, ("FIELD_NOT_APPLICABLE", "steps[2].timeout_ms")),
    ("gather", {"scatter_ref": "s"}, {"compensation": {"finally": []}}, ("FIELD_NOT_APPLICABLE", "steps[2].compensation")),
    # for_each
    ("for_each", None, {}, ("MISSING_FIELD", "steps[2].for_each")),
    ("for_each", ITEMS, {}, ("MISSING_FIELD", "steps[2].for_each.workflow")),
    ("for_each", CHILD, {}, ("MISSING_FIELD", "steps[2].for_each.items_expr")),
    ("for_each", ITEMS | CHILD | {"on_item_error": "retry"}, {}, ("UNKNOWN_VALUE", "steps[2].for_each.on_item_error")),
    ("for_each", ITEMS | CHILD | {"action": "core:echo"}, {}, ("UNKNOWN_FIELD", "steps[2].for_each.action")),
    ("for_each", ITEMS | CHILD | {"input": {"x": "${{ ACC }}"}}, {}, ("NAME_NOT_AVAILABLE", "steps[2].for_each.input.x")),
    ("for_each", ITEMS | CHILD, {"retry_max_attempts": 2}, ("FIELD_NOT_APPLICABLE", "steps[2].retry_max_attempts")),
    # dataflow
    ("dataflow", None, {}, ("MISSING_FIELD", "steps[2].dataflow")),
    ("dataflow", ITEMS, {}, ("MISSING_FIELD", "steps[2].dataflow.operation")),
    ("dataflow", MAP | {"operation": "sort"}, {}, ("UNKNOWN_VALUE", "steps[2].dataflow.operation")),
    *(
        ("dataflow", ITEMS | {"operation": name}, {}, ("MISSING_FIELD", "steps[2].dataflow.expr"))
        for name in ("map", "filter", "partition", "reduce")
    ),
    *(
        ("dataflow", ITEMS | {"operation": name, "expr": "true", "initial": 0}, {}, ("FIELD_NOT_APPLICABLE", "steps[2].dataflow.initial"))
        for name in ("map", "filter", "partition", "project")
    ),
    *(
        ("dataflow", PROJECT | {"operation": name, "expr": "true"}, {}, ("FIELD_NOT_APPLICABLE", "steps[2].dataflow.fields"))
        for name in ("map", "filter", "partition", "reduce")
    ),
    ("dataflow", ITEMS | {"operation": "project"}, {}, ("MISSING_FIELD", "steps[2].dataflow.fields")),
    ("dataflow", PROJECT | {"expr": "ITEM"}, {}, ("FIELDS_EXCLUSIVE", "steps[2].dataflow.expr")),
    ("dataflow", PROJECT | {"fields": {}}, {}, ("INVALID_LENGTH", "steps[2].dataflow.fields")),
    ("dataflow", PROJECT | {"fields": {"no name": "1"}}, {}, ("INVALID_NAME", "steps[2].dataflow.fields[\"no name\"]")),
    ("dataflow", PROJECT | {"fields": {"a": 1}}, {}, ("WRONG_TYPE", "steps[2].dataflow.fields.a")),
    ("dataflow", PROJECT | {"fields": {"a": "ITEM +"}}, {}, ("EXPRESSION_SYNTAX", "steps[2].dataflow.fields.a")),
    ("dataflow", PROJECT | {"fields": {"a": "ACC"}}, {}, ("NAME_NOT_AVAILABLE", "steps[2].dataflow.fields.a")),
    ("dataflow", MAP | {"operation": "filter", "expr": "1"}, {}, ("NOT_BOOLEAN", "steps[2].dataflow.expr")),
    ("dataflow", MAP | {"operation": "partition", "expr": "'x'"}, {}, ("NOT_BOOLEAN", "steps[2].dataflow.expr")),
    ("dataflow", MAP | {"expr": "ACC + 1"}, {}, ("NAME_NOT_AVAILABLE", "steps[2].dataflow.expr")),
    ("dataflow", MAP | {"operation": "reduce", "initial": "${{ ITEM }}"}, {}, ("NAME_NOT_AVAILABLE", "steps[2].dataflow.initial")),
    ("dataflow", MAP, {"queue": "q"}, ("FIELD_NOT_APPLICABLE", "steps[2].queue")),
    # subworkflow
    ("subworkflow", None, {}, ("MISSING_FIELD", "steps[2].subworkflow")),
    ("subworkflow", {}, {}, ("MISSING_FIELD", "steps[2].subworkflow.workflow")),
    ("subworkflow", {"workflow": None}, {}, ("MISSING_FIELD", "steps[2].subworkflow.workflow")),
    ("subworkflow", CHILD | {"wait_for": "checkpoint"}, {}, ("INVALID_NAME", "steps[2].subworkflow.wait_for")),
    ("subworkflow", CHILD | {"wait_for": "checkpoint:"}, {}, ("INVALID_NAME", "steps[2].subworkflow.wait_for")),
    ("subworkflow", CHILD | {"wait_for": "checkpoint:no name"}, {}, ("INVALID_NAME", "steps[2].subworkflow.wait_for")),
    ("subworkflow", CHILD | {"on_timeout": "cancel"}, {}, ("UNKNOWN_VALUE", "steps[2].subworkflow.on_timeout")),
    ("subworkflow", CHILD | {"timeout_ms": 0}, {}, ("OUT_OF_RANGE", "steps[2].subworkflow.timeout_ms")),
    *(
        ("subworkflow", CHILD | {"mode": "async", name: value}, {}, ("FIELD_NOT_APPLICABLE", f"steps[2].subworkflow.{name}"))
        for name, value in (("wait_for", "terminal"), ("timeout_ms", 5), ("on_timeout", "detach"), ("output", 1))
    ),
    ("subworkflow", CHILD | {"wait_for": "checkpoint:paid", "output": "${{ OUTPUT }}"}, {}, ("FIELD_NOT_APPLICABLE", "steps[2].subworkflow.output")),
    ("subworkflow", CHILD | {"input": "${{ ITEM }}"}, {}, ("NAME_NOT_AVAILABLE", "steps[2].subworkflow.input")),
    ("subworkflow", CHILD | {"input": "${{ OUTPUT }}"}, {}, ("NAME_NOT_AVAILABLE", "steps[2].subworkflow.input")),
    ("subworkflow", CHILD, {"timeout_ms": 5}, ("FIELD_NOT_APPLICABLE", "steps[2].timeout_ms")),
    ("subworkflow", CHILD, {"compensation": {"on_cancel": []}}, ("FIELD_NOT_APPLICABLE", "steps[2].compensation")),
    # names of a fan-out where there is none
    ("action", None, {"action": "core:echo", "args": {"x": "${{ ITEM }}"}}, ("NAME_NOT_AVAILABLE", "steps[2].args.x")),
    ("action", None, {"action": "core:echo", "run_if": "INDEX > 0"}, ("NAME_NOT_AVAILABLE", "steps[2].run_if")),
    ("scatter", INLINE, {"compensation": UNDO_ITEM}, ("NAME_NOT_AVAILABLE", "steps[2].compensation.finally[0].args.x")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "said", "fields", "found"), WRONG, ids=[f"{kind}-{n}" for n, (kind, _, _, _) in enumerate(WRONG)]
)
def test_what_is_refused_and_where(
    kind: str, said: dict[str, Any] | None, fields: dict[str, Any], found: tuple[str, str]
) -> None:
    """One violation each: what was written wrongly is not told a second time as missing."""
    assert codes(after(of(kind, said, **fields))) == [found]


def test_all_of_them_at_once_each_with_its_place() -> None:
    text = """\
type: workflow_definition
definition:
  family_slug: f
  steps:
    - ref: s
      type: scatter
      retry_max_attempts: 2
      scatter:
        mode: child_workflow
        items_expr: "[1, 2"
        action: core:echo
    - ref: g
      type: gather
      gather: {scatter_ref: t}
    - ref: d
      type: dataflow
      dataflow: {operation: filter, items_expr: "[1]", initial: 0, fields: {a: "1"}}
    - ref: w
      type: subworkflow
      subworkflow: {workflow: {family_slug: c}, mode: async, wait_for: terminal, output: "${{ ITEM }}"}
  edges:
    - {source_ref: g, target_ref: s, type: success}
"""
    assert [(v.code, v.path, v.line, v.column, v.step_ref) for v in compiled(text).errors] == [
        ("FIELD_NOT_APPLICABLE", "steps[0].retry_max_attempts", 7, 7, "s"),
        ("MISSING_FIELD", "steps[0].scatter.workflow", 9, 9, "s"),
        ("EXPRESSION_SYNTAX", "steps[0].scatter.items_expr", 10, 27, "s"),
        ("FIELD_NOT_APPLICABLE", "steps[0].scatter.action", 11, 9, "s"),
        ("UNKNOWN_STEP_REF", "steps[1].gather.scatter_ref", 14, 29, "g"),
        ("MISSING_FIELD", "steps[2].dataflow.expr", 17, 17, "d"),
        ("FIELD_NOT_APPLICABLE", "steps[2].dataflow.initial", 17, 56, "d"),
        ("FIELD_NOT_APPLICABLE", "steps[2].dataflow.fields", 17, 68, "d"),
        ("FIELD_NOT_APPLICABLE", "steps[3].subworkflow.wait_for", 20, 62, "w"),
        ("FIELD_NOT_APPLICABLE", "steps[3].subworkflow.output", 20, 82, "w"),
        ("NAME_NOT_AVAILABLE", "steps[3].subworkflow.output", 20, 95, "w"),
    ]


def test_a_gather_stands_behind_its_scatter_f2() -> None:
    gather = of("gather", {"scatter_ref": "s"}, "g")
    scatter = of("scatter", INLINE, "s")
    for edges in ([], [edge("g", "s")]):
        found = compile_definition(definition(scatter, gather, edges=edges)).errors
        assert [(one.code, one.path) for one in found] == [("STEP_NOT_ANCESTOR", "steps[1].gather.scatter_ref")]
        assert "let a path of edges lead from it here" in found[0].message
    between = definition(scatter, step("b"), gather, edges=[edge("s", "b", "done"), edge("b", "g")])
    assert codes(between) == []


def test_two_gathers_of_one_scatter_and_a_gather_of_gathers_f2() -> None:
    again = of("scatter", {"items_expr": "STEPS.g.output.result", "action": "core:echo"}, "t")
    gathers = [of("gather", {"scatter_ref": "s"}, "g"), of("gather", {"scatter_ref": "s", "stream_error": "drop"}, "h")]
    tree = after(*gathers, again, of("gather", {"scatter_ref": "t"}, "z"))
    assert codes(tree) == []


@pytest.mark.parametrize("tolerated", [1, "0.01%"])
def test_a_gather_that_raises_tolerates_nothing_f2(tolerated: Any) -> None:
    raising = of("gather", {"scatter_ref": "w", "stream_error": "raise"}, "g")
    tree = after(of("scatter", INLINE | {"tolerated_failures": tolerated}), raising)
    assert codes(tree) == [("TOLERANCE_CONFLICT", "steps[2].scatter.tolerated_failures")]
    assert codes(after(of("scatter", INLINE | {"tolerated_failures": 0}), raising)) == []


def test_retries_and_time_outs_of_an_inline_scatter_are_its_childrens_a1_a3() -> None:
    fields = {
        "retry_max_attempts": 3,
        "retry_backoff_ms": 10,
        "timeout_ms": 1_000,
        "queue_timeout_ms": 2_000,
        "heartbeat_timeout_ms": 500,
        "max_lost": 1,
        "queue": "pages",
        "total_timeout_ms": 60_000,
    }
    scatter = step_of("scatter", INLINE | {"action": "remote:ocr"}, **fields)
    assert (scatter.retry.max_attempts, scatter.timeout_ms, scatter.queue) == (3, 1_000, "pages")
    for kind, said in (("scatter", RUNS), ("for_each", LEAST["for_each"])):
        assert step_of(kind, said, total_timeout_ms=60_000).total_timeout_ms == 60_000


def test_an_inline_scatter_is_undone_item_by_item_c7() -> None:
    compensation = {"on_failure": [{"action": "core:echo", "args": {"undo": "${{ OUTPUT.id }}"}}], "on_cancel": []}
    scatter = step_of("scatter", INLINE, compensation=compensation)
    assert scatter.compensation is not None
    assert scatter.compensation.on_failure[0].args.names == ("OUTPUT",)


@pytest.mark.parametrize(
    ("kind", "said", "found"),
    [
        ("dataflow", MAP | {"operation": "reduce"}, ("INITIAL_MISSING", "steps[2].dataflow")),
        ("dataflow", MAP | {"items_expr": "null"}, ("NOT_A_LIST", "steps[2].dataflow.items_expr")),
        (
            "scatter",
            INLINE | {"items_expr": "size(TRIGGER.payload.pages)"},
            ("NOT_A_LIST", "steps[2].scatter.items_expr"),
        ),
        ("scatter", INLINE | {"items_expr": "TRIGGER"}, ("NOT_A_LIST", "steps[2].scatter.items_expr")),
        ("for_each", ITEMS | CHILD | {"items_expr": "'a, b'"}, ("NOT_A_LIST", "steps[2].for_each.items_expr")),
        ("subworkflow", CHILD | {"on_timeout": "detach"}, ("TIMEOUT_UNUSED", "steps[2].subworkflow.on_timeout")),
    ],
)
def test_what_is_likely_a_slip(kind: str, said: dict[str, Any], found: tuple[str, str]) -> None:
    assert codes(after(of(kind, said)), warnings=True) == [found]


def test_a_map_is_a_collection_for_a_dataflow_alone_f6() -> None:
    entries = {"items_expr": "{'a': 1}"}
    assert codes(after(of("dataflow", MAP | entries)), warnings=True) == []
    found = [("NOT_A_LIST", "steps[2].scatter.items_expr")]
    assert codes(after(of("scatter", INLINE | entries)), warnings=True) == found


@pytest.mark.parametrize(
    ("kind", "said", "way_out"),
    [
        ("scatter", ITEMS | CHILD, "children that are runs need `mode: child_workflow`"),
        ("scatter", INLINE | CHILD, "children that are runs are of `mode: child_workflow`"),
        ("scatter", RUNS | {"action": "core:echo"}, "children that are an action are of `mode: inline`"),
        ("scatter", INLINE | {"items_expr": "${{ TRIGGER.payload.pages }}"}, "leave `${{` and `}}` away"),
        ("scatter", INLINE | {"item_expr": "[]"}, "did you mean `items_expr`?"),
        ("scatter", INLINE | {"tolerated_failures": "5"}, "a share of the children from `0%` to `100%`"),
        ("scatter", INLINE | {"max_inline_children": 10_001}, "at most 10,000"),
        ("gather", {"scatter_ref": "sc"}, "did you mean `s`?"),
        ("gather", {"scatter_ref": "a"}, "step `a` is of type `action`"),
        ("subworkflow", CHILD | {"mode": "async", "wait_for": "terminal"}, "that is `mode: sync`"),
        ("subworkflow", CHILD | {"wait_for": "paid"}, "`checkpoint:` and the name"),
        ("subworkflow", {"workflow": {"family_slugg": "c"}}, "did you mean `family_slug`?"),
    ],
)
def test_the_way_out_is_told(kind: str, said: dict[str, Any], way_out: str) -> None:
    assert any(way_out in found.message for found in compile_definition(after(of(kind, said))).errors)


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


def test_the_schema_knows_them() -> None:
    schema = Schema(json_schema())
    for kind, good in [*LEAST.items(), *MOST.items(), ("scatter", CHILDREN), ("dataflow", PROJECT)]:
        assert schema.faults({"type": "workflow_definition", "definition": after(of(kind, good))}) == (), good
    for kind, said, fields, (code, path) in WRONG:
        if code in (
            "UNKNOWN_FIELD",
            "UNKNOWN_VALUE",
            "WRONG_TYPE",
            "INVALID_NAME",
            "OUT_OF_RANGE",
            "INVALID_LENGTH",
        ) or (code == "MISSING_FIELD" and ".dataflow.expr" not in path and ".dataflow.fields" not in path):
            tree = {"type": "workflow_definition", "definition": after(of(kind, said, **fields))}
            assert schema.faults(tree), (said, fields)


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
