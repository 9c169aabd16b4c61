"""What a definition may not say about fan-outs and children, and how it is told (rulings F1 to F6, L1, C7, A1, A3)."""

from typing import Any

import pytest

from ductord.engine.compile import compile_definition
from ductord.engine.export import json_schema
from ductord.model.schemas import Schema
from tests.language.documents import codes, compiled, definition, edge, step
from tests.language.fan_words import (
    CHILD,
    CHILDREN,
    INLINE,
    ITEMS,
    LEAST,
    MAP,
    MOST,
    PROJECT,
    RUNS,
    UNDO_ITEM,
    after,
    of,
    step_of,
)

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
