"""Everything that a definition may not say, with code, path and place (rulings L1, L2, G4, G6, G9, L9, D4; YM-01, CE-04, AP-01)."""

import time
from typing import Any

import pytest

from ductord.engine.compile import compile_definition
from ductord.engine.steps import SUPPORTED
from ductord.model.authored.words import MAX_DURATION_MS
from ductord.model.enums import StepType
from tests.language.documents import codes, compiled, definition, doubling, edge, step


def test_limits_come_first_and_alone() -> None:
    many = [step(f"s{n}", nonsense=1) for n in range(501)]
    result = compile_definition({"family_slug": "!", "steps": many})
    assert [(found.code, found.message) for found in result.violations] == [
        ("MAX_STEP_COUNT_EXCEEDED", "definition has 501 steps, maximum is 500")
    ]
    edges = [edge("a", f"b{n}") for n in range(5001)]
    (only,) = compile_definition(definition(edges=edges)).violations
    assert (only.code, only.message) == ("MAX_EDGE_COUNT_EXCEEDED", "definition has 5001 edges, maximum is 5000")


def test_the_largest_definition_compiles_quickly() -> None:
    steps = [step(f"s{n}", args={"x": "${{ TRIGGER.payload.x }}"}) for n in range(500)]
    edges = [edge(f"s{n % 490}", f"s{n % 490 + 1 + n // 500}") for n in range(4_990)]
    begin = time.process_time()
    result = compile_definition(definition(*steps, edges=edges))
    assert time.process_time() - begin < 25
    assert {found.code for found in result.errors} <= {"DUPLICATE_EDGE"}


def test_all_violations_at_once_in_the_order_of_the_text() -> None:
    text = """\
type: workflow_definition
definition:
  family_slug: Not A Slug
  titel: x
  steps:
    - ref: a
      type: action
      action: noop:nop
      run_if: "true && 1"
      joinn: all
      timeout_ms: 0
    - ref: a
      type: action
      action: core:sleep
    - ref: 1.10
      type: action
    - ref: w
      type: bridge
      bridge: {url: 5}
    - ref: c
      type: action
      action: core:echo
      args:
        x: "v=${{ STEPS.a.outputt }}"
        y: |
          line
          ${{ bad + }}
      compensation: {on_failure: [{action: noop:nop, arg: 1}]}
  edges:
    - {source_ref: a, target_ref: c, type: sucess}
    - {source_ref: c, target_ref: nowhere, type: success}
  triggers:
    - {id: t, type: event, patterns: [a*b]}
"""
    found = [(v.code, v.path, v.line, v.column, v.step_ref) for v in compiled(text).errors]
    assert found == [
        ("INVALID_NAME", "family_slug", 3, 16, None),
        ("UNKNOWN_FIELD", "titel", 4, 3, None),
        ("UNKNOWN_ACTION", "steps[0].action", 8, 15, "a"),
        ("EXPRESSION_TYPE", "steps[0].run_if", 9, 21, "a"),
        ("UNKNOWN_FIELD", "steps[0].joinn", 10, 7, "a"),
        ("OUT_OF_RANGE", "steps[0].timeout_ms", 11, 19, "a"),
        ("INVALID_ACTION_ARGS", "steps[1].args", 12, 7, "a"),
        ("DUPLICATE_STEP_REF", "steps[1].ref", 12, 12, "a"),
        ("WRONG_TYPE", "steps[2].ref", 15, 12, None),
        ("STEP_TYPE_NOT_SUPPORTED", "steps[3].type", 18, 13, "w"),
        ("STEP_NOT_ANCESTOR", "steps[4].args.x", 24, 25, "c"),
        ("EXPRESSION_SYNTAX", "steps[4].args.y", 27, 20, "c"),
        ("UNKNOWN_FIELD", "steps[4].compensation.on_failure[0].arg", 28, 54, "c"),
        ("UNKNOWN_EDGE_TYPE", "edges[0].type", 30, 44, None),
        ("DANGLING_EDGE", "edges[1].target_ref", 31, 35, None),
        ("EVENT_PATTERN_INVALID", "triggers[0].patterns[0]", 33, 39, None),
    ]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        ([], [("WRONG_TYPE", "")]),
        ({}, [("MISSING_FIELD", "family_slug"), ("MISSING_FIELD", "steps")]),
        ({"family_slug": "f", "steps": []}, [("INVALID_LENGTH", "steps")]),
        ({"family_slug": "f", "steps": {}}, [("WRONG_TYPE", "steps")]),
        ({"family_slug": "f", "steps": [1, step("a")]}, [("WRONG_TYPE", "steps[0]")]),
        (definition(step("a b")), [("INVALID_NAME", "steps[0].ref")]),
        (definition(step("a" * 129)), [("INVALID_NAME", "steps[0].ref")]),
        (definition(step("a\n")), [("INVALID_NAME", "steps[0].ref")]),
        (definition(step("é")), [("INVALID_NAME", "steps[0].ref")]),
        (definition(step("a", timeout_ms=True)), [("WRONG_TYPE", "steps[0].timeout_ms")]),
        (definition(step("a", timeout_ms=1.5)), [("WRONG_TYPE", "steps[0].timeout_ms")]),
        (definition(step("a", timeout_ms=MAX_DURATION_MS + 1)), [("OUT_OF_RANGE", "steps[0].timeout_ms")]),
        (definition(step("a", retry_max_attempts=0)), [("OUT_OF_RANGE", "steps[0].retry_max_attempts")]),
        (definition(step("a", retry_backoff_ms=-1)), [("OUT_OF_RANGE", "steps[0].retry_backoff_ms")]),
        (definition(step("a", retry_backoff_coefficient=0.5)), [("OUT_OF_RANGE", "steps[0].retry_backoff_coefficient")]),
        (definition(step("a", join="most")), [("UNKNOWN_VALUE", "steps[0].join")]),
        (definition(step("a", retry_on=["ok", "not ok"])), [("INVALID_NAME", "steps[0].retry_on[1]")]),
        (definition(step("a", args=[1])), [("WRONG_TYPE", "steps[0].args")]),
        (definition(step("a", run_if="")), [("INVALID_LENGTH", "steps[0].run_if")]),
        (definition(variables={"a-b": 1}), [("INVALID_NAME", 'variables.a-b')]),
        (definition(input_schema={"type": "objekt"}), [("INVALID_INPUT_SCHEMA", "input_schema.type")]),
        (definition(input_schema={"$ref": "https://example.com/x"}), [("INVALID_INPUT_SCHEMA", "input_schema")]),
        (definition(input_schema=doubling(30)), [("INVALID_INPUT_SCHEMA", "input_schema")]),
        (definition(triggers=[{"id": "t", "type": "cron"}]), [("UNKNOWN_TRIGGER_TYPE", "triggers[0].type")]),
        (definition(triggers=[{"id": "t", "type": "manual"}] * 2), [("DUPLICATE_TRIGGER_ID", "triggers[1].id")]),
        (definition(triggers=[{"id": "t", "type": "manual", "patterns": ["x"]}]), [("FIELD_NOT_APPLICABLE", "triggers[0].patterns")]),
        (definition(checkpoints=[{"name": "k", "step_refs": ["b"]}]), [("UNKNOWN_STEP_REF", "checkpoints[0].step_refs[0]")]),
        (definition(checkpoints=[{"name": "k", "step_refs": ["a"]}] * 2), [("DUPLICATE_CHECKPOINT", "checkpoints[1].name")]),
        (definition(response_checkpoint="k"), [("UNKNOWN_CHECKPOINT", "response_checkpoint")]),
        (definition(edges=[edge("a", "a")]), [("CYCLE", "steps[0].ref")]),
        (definition(edges=[edge("a", "b")]), [("DANGLING_EDGE", "edges[0].target_ref")]),
        (definition(step("a", retry_max_attempts=2, retry_on=["X"], non_retryable=["X"])), [("RETRY_CONFLICT", "steps[0].non_retryable")]),
        (definition(step("a", args={"${{ VARS.k }}": 1})), [("TEMPLATE_IN_KEY", 'steps[0].args["${{ VARS.k }}"]')]),
        (definition(step("a", args={"k": "${{ 1"})), [("TEMPLATE_SYNTAX", "steps[0].args.k")]),
        (definition(step("a", args={"k": float("nan")})), [("PAYLOAD_NAN", "steps[0].args.k")]),
        (definition(step("a", args={"k": "\0"})), [("PAYLOAD_NUL", "steps[0].args.k")]),
        (definition(step("a", args={"k": 2**63})), [("PAYLOAD_INTEGER_RANGE", "steps[0].args.k")]),
    ],
)  # fmt: skip
def test_coded_violations(tree: Any, expected: Any) -> None:
    assert codes(tree) == expected


@pytest.mark.parametrize("field", ["connection_ref", "connection_ref_mode"])
def test_later_step_features_are_refused_by_path_l1(field: str) -> None:
    assert codes(definition(step("a", **{field: {"anything": 1}}))) == [("FEATURE_NOT_SUPPORTED", f"steps[0].{field}")]


@pytest.mark.parametrize("kind", [kind.value for kind in StepType if kind not in SUPPORTED])
def test_a_step_type_of_a_later_release_is_judged_before_its_fields_l1(kind: str) -> None:
    later = {"ref": "b", "type": kind, kind: {"x": 1}, "other_field": 2, "timeout_ms": 5}
    tree = definition(step("a"), later, edges=[edge("a", "b")])
    assert codes(tree) == [("STEP_TYPE_NOT_SUPPORTED", "steps[1].type")]


def test_an_unknown_step_type_is_no_later_one() -> None:
    result = compile_definition(definition({"ref": "a", "type": "actoin", "action": "core:echo"}))
    (found,) = result.errors
    assert found.code == "UNKNOWN_STEP_TYPE"
    assert "did you mean `action`?" in found.message


def test_numbers_and_words_where_names_belong_say_quote_it_ym_01() -> None:
    text = """\
type: workflow_definition
definition:
  family_slug: 2024
  steps:
    - ref: 1.10
      type: action
      action: core:echo
    - ref: 0123
      type: action
      action: core:echo
    - ref: true
      type: action
      action: core:echo
"""
    found = [(v.code, v.line, v.column, v.message) for v in compiled(text).errors if v.path != "steps"]
    assert found == [
        ("WRONG_TYPE", 3, 16, "`family_slug` must be a string, and 2024 is a number: quote it"),
        ("WRONG_TYPE", 5, 12, "`ref` must be a string, and 1.10 is a number: quote it"),
        ("WRONG_TYPE", 8, 12, "`ref` must be a string, and 0123 is a number: quote it"),
        ("WRONG_TYPE", 11, 12, "`ref` must be a string, and true is a boolean: quote it"),
    ]


def test_suggestions_for_what_is_misspelt() -> None:
    def message(tree: Any) -> str:
        return compile_definition(tree).errors[0].message

    assert "did you mean `timeout_ms`?" in message(definition(step("a", timeoutMs=1)))
    assert "did you mean `noop:noop`?" in message(definition(step("a", action="noop:nop")))
    assert "did you mean `payment`?" in message(definition(step("payment"), edges=[edge("payment", "paymnet")]))
    assert "did you mean `success`?" in message(definition(edges=[edge("a", "b", "succes")]))


def test_without_a_text_columns_count_in_the_expression_ce_04() -> None:
    tree = definition(step("a"), step("b", run_if="true &&\n foo(1)", args={"x": "v=${{ nope }}"}), titel=1)
    found = [(v.code, v.path, v.line, v.column, v.step_ref) for v in compile_definition(tree).errors]
    assert found == [
        ("UNKNOWN_FIELD", "titel", None, None, None),
        ("UNKNOWN_NAME", "steps[1].run_if", 2, 2, "b"),
        ("UNKNOWN_NAME", "steps[1].args.x", 1, 7, "b"),
    ]


def test_a_cycle_is_named() -> None:
    tree = definition(
        *(step(ref) for ref in "xabcy"),
        edges=[edge("x", "a"), edge("a", "b"), edge("b", "c"), edge("c", "a"), edge("c", "y")],
    )
    (found,) = compile_definition(tree).errors
    assert found.code == "CYCLE"
    assert found.message in {f"steps wait for each other: {' → '.join(c)}" for c in ("abca", "bcab", "cabc")}


def test_faults_in_one_place_do_not_hide_faults_in_another() -> None:
    tree = definition(
        {"type": "action", "action": "core:echo"},
        step("b", timeout_ms="soon"),
        step("c", run_if="nope"),
        {"ref": "d", "action": "core:echo"},
        edges=[edge("b", "c"), edge("c", "b"), edge("c", "d"), {"source_ref": "b", "type": "success"}],
    )
    assert sorted(codes(tree)) == [
        ("CYCLE", "steps[1].ref"),
        ("MISSING_FIELD", "edges[3].target_ref"),
        ("MISSING_FIELD", "steps[0].ref"),
        ("MISSING_FIELD", "steps[3].type"),
        ("UNKNOWN_NAME", "steps[2].run_if"),
        ("WRONG_TYPE", "steps[1].timeout_ms"),
    ]


def test_on_error_fail_with_an_error_edge_is_refused_g4() -> None:
    tree = definition(step("a", on_error="fail"), step("b"), edges=[edge("a", "b", "error")])
    assert codes(tree) == [("ON_ERROR_CONFLICT", "steps[0].on_error")]
    assert codes(definition(step("a", on_error="fail"), step("b"), edges=[edge("a", "b", "done")])) == []


def test_true_and_false_edges_need_a_result_expression_l9() -> None:
    tree = definition(step("a"), step("b"), edges=[edge("a", "b", "true"), edge("a", "b", "false")])
    assert codes(tree) == [("RESULT_EXPR_REQUIRED", "edges[0].type"), ("RESULT_EXPR_REQUIRED", "edges[1].type")]
    tree = definition(step("a", result_expr="OUTPUT.ok"), step("b"), edges=[edge("a", "b", "true")])
    assert codes(tree) == []
    assert codes(definition(step("a", result_expr="OUTPUT.ok")), warnings=True) == [
        ("RESULT_EXPR_UNUSED", "steps[0].result_expr")
    ]


def test_decision_edges_start_at_approvals() -> None:
    tree = definition(step("a"), step("b"), edges=[edge("a", "b", "approved"), edge("a", "b", "rejected")])
    assert codes(tree) == [("APPROVAL_REQUIRED", "edges[0].type"), ("APPROVAL_REQUIRED", "edges[1].type")]


@pytest.mark.parametrize(
    ("edges", "expected"),
    [
        ([edge("a", "b", choice_group="g", condition="true == true"), edge("a", "c", choice_group="g", default=True)], []),
        ([edge("a", "b", choice_group="g")], [("CHOICE_CONDITION_REQUIRED", "edges[0]")]),
        ([edge("a", "b", order=1)], [("CHOICE_GROUP_REQUIRED", "edges[0].order")]),
        ([edge("a", "b", default=True)], [("CHOICE_GROUP_REQUIRED", "edges[0].default")]),
        (
            [edge("a", "b", choice_group="g", default=True), edge("a", "c", choice_group="g", default=True)],
            [("CHOICE_DEFAULT_CONFLICT", "edges[1].default")],
        ),
        (
            [edge("a", "b", choice_group="g", default=True, condition="RUN.version > 1")],
            [("CHOICE_DEFAULT_CONFLICT", "edges[0].condition")],
        ),
        (
            [
                edge("a", "b", choice_group="g", condition="RUN.version > 1", order=1),
                edge("a", "c", choice_group="g", condition="RUN.version > 2", order=1),
            ],
            [("CHOICE_ORDER_CONFLICT", "edges[1].order")],
        ),
        (
            [
                edge("a", "b", choice_group="g", condition="RUN.version > 1"),
                edge("a", "c", "error", choice_group="g", default=True),
            ],
            [("CHOICE_GROUP_MIXED", "edges[1].type")],
        ),
        ([edge("a", "b"), edge("a", "b")], [("DUPLICATE_EDGE", "edges[1]")]),
        ([edge("a", "b"), edge("a", "b", "done")], []),
        ([edge("a", "b", condition="1")], [("NOT_BOOLEAN", "edges[0].condition")]),
        ([edge("a", "b", condition="OUTPUT.x")], [("NAME_NOT_AVAILABLE", "edges[0].condition")]),
        ([edge("a", "b", condition="STEPS.a.output.x == 1")], []),
        ([edge("a", "b", condition="STEPS.b.output.x == 1")], [("STEP_NOT_ANCESTOR", "edges[0].condition")]),
    ],
)  # fmt: skip
def test_choice_groups_and_conditions_g6_l3(edges: Any, expected: Any) -> None:
    assert codes(definition(step("a"), step("b"), step("c"), edges=edges)) == expected


@pytest.mark.parametrize(
    ("args", "action", "expected"),
    [
        ({"ms": 5}, "core:sleep", []),
        ({"ms": "${{ TRIGGER.payload.ms }}"}, "core:sleep", []),
        ({"ms": "5"}, "core:sleep", ["steps[0].args.ms"]),
        ({"ms": -1}, "core:sleep", ["steps[0].args.ms"]),
        ({"m": "${{ TRIGGER.payload.ms }}"}, "core:sleep", ["steps[0].args", "steps[0].args"]),
        ({"url": "${{ VARS.u }}", "method": "${{ VARS.m }}"}, "http:request", []),
        ({"url": "${{ VARS.u }}", "method": "FETCH"}, "http:request", ["steps[0].args.method"]),
        ({"url": "x", "json": 1, "body": "x"}, "http:request", ["steps[0].args"]),
        ({"anything": [1]}, "core:echo", []),
    ],
)  # fmt: skip
def test_args_are_checked_as_far_as_they_are_known(args: Any, action: str, expected: list[str]) -> None:
    found = codes(definition(step("a", action=action, args=args)))
    assert found == [("INVALID_ACTION_ARGS", path) for path in expected]


def test_a_queue_brings_its_own_actions() -> None:
    assert codes(definition(step("a", action="mine:thing"))) == [("UNKNOWN_ACTION", "steps[0].action")]
    assert codes(definition(step("a", action="mine:thing", queue="mine", args={"x": 1}))) == []
    assert codes(definition({"ref": "a", "type": "action"})) == [("MISSING_FIELD", "steps[0].action")]


@pytest.mark.parametrize(
    ("tree", "expected"),
    [
        (definition(variables={"a": 1}), [("UNUSED_VARIABLE", "variables.a")]),
        (definition(step("a", args={"x": "${{ VARS.b }}"}), variables={"b": 1}), []),
        (definition(step("a", args={"x": "${{ VARS[TRIGGER.payload.k] }}"}), variables={"b": 1}), []),
        (definition(step("a", args={"x": "${{ VARS.c }}"})), [("UNDECLARED_VARIABLE", "steps[0].args.x")]),
        (definition(step("a", run_if="VARS.b"), variables={"b": "${{ RUN.id }}"}), [("TEMPLATE_NOT_EVALUATED", "variables.b")]),
        (definition(step("a"), step("b"), step("c"), edges=[edge("a", "b")]), [("STEP_NOT_CONNECTED", "steps[2].ref")]),
        (definition(step("a", retry_backoff_ms=5)), [("RETRY_UNUSED", "steps[0].retry_backoff_ms")]),
        (
            definition(step("a", retry_max_attempts=2, retry_backoff_ms=5, retry_max_backoff_ms=4)),
            [("BACKOFF_CUT", "steps[0].retry_max_backoff_ms")],
        ),
        (definition(step("a", timeout_ms=5, total_timeout_ms=4)), [("TIMEOUT_UNUSED", "steps[0].timeout_ms")]),
        (
            definition(
                step("a"), step("b"), step("c"),
                edges=[edge("a", "b", choice_group="g", condition="true"), edge("a", "c", choice_group="g", default=True)],
            ),
            [("CHOICE_UNREACHABLE", "edges[1]")],
        ),
        (
            definition(checkpoints=[{"name": "k", "step_refs": ["a"]}, {"name": "l", "step_refs": ["a"]}]),
            [("RESPONSE_CHECKPOINT_NOT_NAMED", "checkpoints")],
        ),
        (
            definition(
                checkpoints=[{"name": "k", "step_refs": ["a"]}, {"name": "l", "step_refs": ["a"]}],
                response_checkpoint="l",
            ),
            [],
        ),
    ],
)  # fmt: skip
def test_warnings_stop_nothing(tree: Any, expected: Any) -> None:
    result = compile_definition(tree)
    assert result.errors == ()
    assert result.manifest is not None
    assert [(found.code, found.path) for found in result.warnings] == expected


def test_many_faults_are_told_quickly() -> None:
    steps = [step(f"step_{n}", run_if="STEPS.stpe_1.output", nonsense=1) for n in range(500)]
    edges = [edge(f"step_{n % 500}", f"nowhere_{n}") for n in range(5000)]
    begin = time.process_time()
    result = compile_definition(definition(*steps, edges=edges))
    assert len(result.errors) >= 6000
    assert time.process_time() - begin < 50
