"""What a definition says about undoing its steps and about continuing as new: judged, resolved, carried by every door (rulings C6, C7, L1; SA-04)."""

import json
import random
from typing import Any

import pytest

from ductord.coordinator.cache import compile_manifest
from ductord.engine.compile import MAX_COMPENSATING_ACTIONS, compile_definition, manifest_hash
from ductord.engine.export import export_yaml, json_schema, mermaid
from ductord.model import manifest as manifests
from ductord.model.authored.compensation import MAX_INVERSES
from ductord.model.authored.words import MAX_DURATION_MS
from ductord.model.enums import FailurePolicy
from ductord.model.schemas import Schema
from ductord.model.specs import Compensation, InverseSpec, RetryPolicy, Template
from tests.language.documents import HELLO_WORLD, codes, compiled, definition, edge, step
from tests.language.test_compile import RICH, doors, manifest_of, shuffled

ECHO: dict[str, Any] = {"action": "core:echo"}
BOTH: dict[str, Any] = {"on_failure": [ECHO], "on_cancel": [ECHO]}


def undone(**fields: Any) -> dict[str, Any]:
    """A definition of one step with a compensation of these blocks."""
    return definition(step("a", compensation=fields))


def only(tree: dict[str, Any]) -> Compensation:
    (found,) = manifest_of(tree).steps
    assert found.compensation is not None
    return found.compensation


def test_defaults_are_resolved_c7_sa_04() -> None:
    """SA-04: an inverse is tried three times, and has a time limit whether anyone thought of one or not."""
    compensation = only(undone(**BOTH))
    expected = InverseSpec(
        action="core:echo",
        args=Template(tree={}),
        retry=RetryPolicy(max_attempts=3, backoff_ms=1_000, coefficient=2.0, max_backoff_ms=60_000),
        timeout_ms=300_000,
        queue="default",
    )
    assert compensation == Compensation(on_failure=(expected,), on_cancel=(expected,))
    assert compensation.failure_policy is FailurePolicy.MANUAL_REPAIR


def test_what_is_written_replaces_the_defaults() -> None:
    written = {"action": "mine:refund", "retry_max_attempts": 7, "retry_backoff_ms": 90_000, "timeout_ms": 10, "queue": "money"}  # fmt: skip
    tree = undone(**{"finally": [written], "failure_policy": "ignore_with_audit"})
    compensation = only(tree)
    (last,) = compensation.final
    assert last.retry == RetryPolicy(max_attempts=7, backoff_ms=90_000, coefficient=2.0, max_backoff_ms=90_000)
    assert (last.timeout_ms, last.queue) == (10, "money")
    assert compensation.failure_policy is FailurePolicy.IGNORE_WITH_AUDIT
    assert compensation.actions == (last,)


def test_an_inverse_goes_to_the_queue_of_its_step_unless_it_names_one() -> None:
    compensation = {"on_failure": [{"action": "mine:refund"}, {**ECHO, "queue": "default"}], "on_cancel": []}
    (found,) = manifest_of(definition(step("a", action="mine:charge", queue="mine", compensation=compensation))).steps
    assert found.compensation is not None
    assert [inverse.queue for inverse in found.compensation.on_failure] == ["mine", "default"]


def test_a_written_default_is_the_default() -> None:
    written = {**ECHO, "retry_max_attempts": 3, "retry_backoff_ms": 1_000}
    assert manifest_hash(manifest_of(undone(on_failure=[written]))) == manifest_hash(
        manifest_of(undone(on_failure=[ECHO]))
    )


def test_args_read_the_output_of_their_step_and_what_came_before_it_l3() -> None:
    args = {
        "id": "${{ OUTPUT.id }}",
        "own": "${{ STEPS.b.attempt }} of ${{ STEPS.a.output.x }}",
        "n": "${{ TRIGGER.payload.n + VARS.n }}",
        "run": "${{ RUN.id }} ${{ default(CONTEXT.k, '-') }}",
    }
    tree = definition(
        step("a"), step("b", compensation={"on_failure": [{**ECHO, "args": args}], "on_cancel": []}), edges=[edge("a", "b")], variables={"n": 1}
    )  # fmt: skip
    manifest = manifest_of(tree)
    assert manifest.steps[1].compensation is not None
    (inverse,) = manifest.steps[1].compensation.on_failure
    assert inverse.args == Template(
        tree=args, static=False, names=("CONTEXT", "OUTPUT", "RUN", "STEPS", "TRIGGER", "VARS"), steps=("a", "b")
    )
    assert compile_manifest(manifests.encode(manifest)).reads_trigger, "a tick that renders them needs the run's input"


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ({"on_failure": [{**ECHO, "args": {"x": "${{ STEPS.c.output }}"}}], "on_cancel": []}, [("STEP_NOT_ANCESTOR", "on_failure[0].args.x")]),
        ({"on_failure": [{**ECHO, "args": {"x": "${{ STEPS.z.output }}"}}], "on_cancel": []}, [("UNKNOWN_STEP_REF", "on_failure[0].args.x")]),
        ({"finally": [{**ECHO, "args": {"x": "${{ ITEM }}"}}]}, [("NAME_NOT_AVAILABLE", "finally[0].args.x")]),
        ({"finally": [{**ECHO, "args": {"x": ["${{ OUTPUT. }}"]}}]}, [("EXPRESSION_SYNTAX", "finally[0].args.x[0]")]),
        ({"finally": [{**ECHO, "args": {"x": "${{ OUTPUT"}}]}, [("TEMPLATE_SYNTAX", "finally[0].args.x")]),
        ({"finally": [ECHO, {"action": "noop:nop"}]}, [("UNKNOWN_ACTION", "finally[1].action")]),
        ({"finally": [{"action": "core:sleep"}]}, [("INVALID_ACTION_ARGS", "finally[0].args")]),
        ({"finally": [{"action": "core:sleep", "args": {"ms": "5"}}]}, [("INVALID_ACTION_ARGS", "finally[0].args.ms")]),
        ({"finally": [{"action": "core:sleep", "args": {"ms": "${{ OUTPUT.ms }}"}}]}, []),
        ({"finally": [{"args": {}}]}, [("MISSING_FIELD", "finally[0].action")]),
        ({"finally": [{"action": "refund"}]}, [("INVALID_NAME", "finally[0].action")]),
        ({"finally": [{**ECHO, "args": [1]}]}, [("WRONG_TYPE", "finally[0].args")]),
        ({"finally": [{**ECHO, "args": {"k": float("inf")}}]}, [("PAYLOAD_NAN", "finally[0].args.k")]),
        ({"finally": [{**ECHO, "retry_max_attempts": 0}]}, [("OUT_OF_RANGE", "finally[0].retry_max_attempts")]),
        ({"finally": [{**ECHO, "retry_backoff_ms": -1}]}, [("OUT_OF_RANGE", "finally[0].retry_backoff_ms")]),
        ({"finally": [{**ECHO, "timeout_ms": 0}]}, [("OUT_OF_RANGE", "finally[0].timeout_ms")]),
        ({"finally": [{**ECHO, "timeout_ms": MAX_DURATION_MS + 1}]}, [("OUT_OF_RANGE", "finally[0].timeout_ms")]),
        ({"finally": [{**ECHO, "timeout_ms": "5s"}]}, [("WRONG_TYPE", "finally[0].timeout_ms")]),
        ({"finally": [{**ECHO, "queue": "a b"}]}, [("INVALID_NAME", "finally[0].queue")]),
        ({"finally": [{**ECHO, "timeout": 1}]}, [("UNKNOWN_FIELD", "finally[0].timeout")]),
        ({"finally": ECHO}, [("WRONG_TYPE", "finally")]),
        ({"finally": [ECHO] * (MAX_INVERSES + 1)}, [("INVALID_LENGTH", "finally")]),
        ({"on_error": [ECHO]}, [("UNKNOWN_FIELD", "on_error")]),
        ({"finally": [ECHO], "failure_policy": "retry"}, [("UNKNOWN_VALUE", "failure_policy")]),
        ({"finally": [ECHO], "failure_policy": True}, [("WRONG_TYPE", "failure_policy")]),
    ],
)  # fmt: skip
def test_coded_violations(blocks: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    tree = definition(step("a"), step("b", compensation=blocks), step("c"), edges=[edge("a", "b"), edge("b", "c")])
    assert codes(tree) == [(code, f"steps[1].compensation.{path}") for code, path in expected]


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        (undone(failure_policy="ignore"), "it is one of manual_repair, fail_compensation, ignore_with_audit"),
        (undone(finaly=[]), "did you mean `finally`?"),
        (undone(**{"finally": [{**ECHO, "arg": {}}]}), "did you mean `args`?"),
        (undone(**{"finally": [{"action": "noop:nop"}]}), "did you mean `noop:noop`?"),
        (undone(**{"finally": [{"action": "mine:undo"}]}), "an action of remote workers needs the `queue` that they poll"),
    ],
)  # fmt: skip
def test_violations_say_what_is_possible(tree: dict[str, Any], said: str) -> None:
    (found,) = compile_definition(tree).errors
    assert said in found.message
    assert found.step_ref == "a"


def test_faults_stand_at_their_place_in_the_text_ce_04() -> None:
    text = """\
type: workflow_definition
definition:
  family_slug: f
  steps:
    - ref: a
      type: action
      action: noop:noop
      compensation:
        on_failure:
          - action: core:echo
            args:
              id: "x ${{ OUTPUT.id + }}"
          - action: core:sleep
            args: {ms: soon}
"""
    found = [(v.code, v.path, v.line, v.column) for v in compiled(text).violations]
    assert found == [
        ("COMPENSATION_ONE_SIDED", "steps[0].compensation.on_failure", 9, 9),
        ("EXPRESSION_SYNTAX", "steps[0].compensation.on_failure[0].args.id", 12, 37),
        ("INVALID_ACTION_ARGS", "steps[0].compensation.on_failure[1].args.ms", 14, 24),
    ]


def test_a_run_works_off_only_so_many_actions_l7() -> None:
    blocks = {"on_failure": [ECHO] * MAX_INVERSES, "on_cancel": [ECHO] * MAX_INVERSES, "finally": [ECHO] * 10}
    at_most = MAX_COMPENSATING_ACTIONS // (2 * MAX_INVERSES + 10)
    steps = [step(f"s{number}", compensation=blocks) for number in range(at_most + 3)]
    assert codes(definition(*steps[:at_most])) == []
    assert codes(definition(*steps)) == [("MAX_COMPENSATION_COUNT_EXCEEDED", f"steps[{at_most}].compensation")]


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        (BOTH, []),
        ({"finally": [ECHO]}, []),
        ({}, [("COMPENSATION_EMPTY", "")]),
        ({"on_failure": [], "failure_policy": "ignore_with_audit"}, [("COMPENSATION_EMPTY", "")]),
        ({"on_failure": [ECHO]}, [("COMPENSATION_ONE_SIDED", ".on_failure")]),
        ({"on_cancel": [ECHO], "finally": [ECHO]}, [("COMPENSATION_ONE_SIDED", ".on_cancel")]),
        ({"on_failure": [ECHO], "on_cancel": []}, []),
        ({"finally": [{**ECHO, "retry_max_attempts": 1, "retry_backoff_ms": 5}]}, [("RETRY_UNUSED", ".finally[0].retry_backoff_ms")]),
    ],
)  # fmt: skip
def test_warnings_stop_nothing_c7(blocks: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    tree = undone(**blocks)
    found = compile_definition(tree)
    assert found.manifest is not None
    assert codes(tree, warnings=True) == [(code, f"steps[0].compensation{path}") for code, path in expected]


def test_a_one_sided_compensation_is_told_what_happens_c7() -> None:
    (warning,) = compile_definition(undone(on_failure=[ECHO])).warnings
    assert warning.message == (
        "when the run is cancelled, what step `a` did is not undone: `on_failure` has actions and there is no `on_cancel`;"
        " write `on_cancel: []` if that is meant"
    )


def test_empty_blocks_compile_to_no_compensation() -> None:
    empty: list[dict[str, Any]] = [
        {},
        {"on_failure": [], "on_cancel": [], "finally": []},
        {"failure_policy": "fail_compensation"},
    ]
    for blocks in empty:
        manifest = manifest_of(undone(**blocks))
        assert manifest.steps[0].compensation is None
        assert manifest_hash(manifest) == manifest_hash(manifest_of(definition()))


@pytest.mark.parametrize(
    ("tree", "level"),
    [
        (definition(), 1),
        (RICH, 1),
        (definition(auto_continue=False), 1),
        (undone(), 1),
        (definition(auto_continue=True), 2),
        (undone(**{"finally": [ECHO]}), 2),
    ],
)
def test_only_manifests_that_need_a_newer_engine_say_so(tree: dict[str, Any], level: int) -> None:
    """An older engine leaves their runs alone (it would end them without compensation); all others keep the hash that they had."""
    assert manifest_of(tree).engine_level == level


def test_auto_continue_is_off_unless_it_is_asked_for_c6() -> None:
    assert not manifest_of(definition()).auto_continue
    assert manifest_of(definition(auto_continue=True)).auto_continue
    assert codes(definition(auto_continue="yes")) == [("WRONG_TYPE", "auto_continue")]


CHARGE = definition(
    step(
        "charge",
        compensation={
            "on_failure": [
                {**ECHO, "args": {"id": "${{ OUTPUT.id }}", "n": 1.5}, "retry_max_attempts": 5, "retry_backoff_ms": 10, "timeout_ms": 99, "queue": "q"}
            ],
            "on_cancel": [ECHO, {"action": "noop:noop"}],
            "finally": [{"action": "http:request", "args": {"url": "${{ VARS.audit }}", "json": {"run": "${{ RUN.id }}"}}}],
            "failure_policy": "fail_compensation",
        },
    ),
    variables={"audit": "https://audit.example/"},
    auto_continue=True,
)  # fmt: skip


@pytest.mark.parametrize("seed", range(5))
def test_one_definition_has_one_hash_whatever_order_and_door(seed: int) -> None:
    expected = manifest_hash(manifest_of(CHARGE))
    tree = shuffled(CHARGE, random.Random(seed))
    for read in [tree, *doors(tree)]:
        assert manifest_hash(manifest_of(read)) == expected
    canonical = compile_definition(tree).canonical_definition
    assert canonical == CHARGE
    assert export_yaml(tree) == export_yaml(canonical)
    stored = manifests.decode(manifests.encode(manifest_of(tree)))
    assert manifest_hash(stored) == expected


def test_the_file_puts_the_compensation_behind_what_it_undoes() -> None:
    text = export_yaml(CHARGE)
    assert text.index("action: core:echo") < text.index("compensation:") < text.index("on_failure:")
    assert text.index("on_cancel:") < text.index("finally:") < text.index("failure_policy: fail_compensation")


def test_the_schema_knows_it() -> None:
    schema = Schema(json_schema())
    assert schema.faults({"type": "workflow_definition", "definition": json.loads(json.dumps(CHARGE))}) == ()


def test_the_flowchart_marks_what_is_undone() -> None:
    manifest = compile_definition(CHARGE).manifest
    assert manifest is not None
    assert (
        mermaid(manifest).splitlines()[1] == '    s0["charge<br/>core:echo<br/>on_failure 1, on_cancel 2, finally 1"]'
    )
    plain = compiled(HELLO_WORLD).manifest
    assert plain is not None
    assert "finally" not in mermaid(plain)
