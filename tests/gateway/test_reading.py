"""JSON to messages in both dialects: names, enums, payload texts, step types (AP-01, AP-02, PL-03, PL-04, L1)."""

import time

import pytest

from ductor.workflow.v1 import common_pb2, definition_pb2
from ductor.workflow.v1 import task_service_pb2 as tasks
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.rpc.vocabulary import Dialect
from tests.gateway.asking import BOTH, Create, Trigger, Update, asked, read, reason, refused


@BOTH
def test_ap_01_a_misspelt_field_is_named_with_what_was_probably_meant(dialect: Dialect) -> None:
    assert reason(Trigger, '{"idempotencykey": "k"}', dialect) == ("FIELD_UNKNOWN", "idempotencykey")
    assert reason(Update, '{"expected_draft_revison": 3}', dialect) == ("FIELD_UNKNOWN", "expected_draft_revison")
    meant = {Dialect.REST: "idempotency_key", Dialect.PROTO: "idempotencyKey"}[dialect]
    assert f"did you mean `{meant}`?" in refused(Trigger, '{"idempotencykey": "k"}', dialect).message


@BOTH
def test_ap_01_an_unknown_field_is_found_at_any_depth(dialect: Dialect) -> None:
    nested = '{"operations": [{"remove_step": {"ref": "a"}}, {"add_edge": {"source_ref": "a", "sauce": 1}}]}'
    assert reason(Update, nested, dialect) == ("FIELD_UNKNOWN", "operations[1].add_edge.sauce")


def test_ap_01_all_faults_are_told_at_once() -> None:
    refusal = refused(Trigger, '{"nope": 1, "tier": "x", "subject_id": 5, "wait_for_checkpoint": 1, "input": {}}')
    assert {(v.code, v.path) for v in refusal.violations} == {
        ("FIELD_UNKNOWN", "nope"),
        ("FIELD_INVALID", "tier"),
        ("FIELD_INVALID", "subject_id"),
        ("FIELD_INVALID", "wait_for_checkpoint"),
    }
    assert "3 more" in refusal.message


@BOTH
def test_either_spelling_is_read_and_both_at_once_are_refused(dialect: Dialect) -> None:
    assert read(Trigger, '{"subject_id": "1"}', dialect) == read(Trigger, '{"subjectId": "1"}', dialect)
    assert reason(Trigger, '{"subject_id": "1", "subjectId": "1"}', dialect) == ("FIELD_DUPLICATE", "subject_id")


@BOTH
@pytest.mark.parametrize(
    ("body", "field"),
    [
        ('{"subject_id": "1", "subject_id": "1"}', "subject_id"),
        ('{"subject_id": "a:b", "\\u0073ubject_id": "c"}', "subject_id"),
        ('{"input": {"a": 1}, "input": {"a": 2}}', "input"),
        (
            '{"correlation_labels": [{"key": "a", "id": "1"}, {"key": "a", "id": "1", "id": "2"}]}',
            "correlation_labels[1].id",
        ),
    ],
)
def test_a_repeated_key_is_refused(dialect: Dialect, body: str, field: str) -> None:
    assert reason(Trigger, body, dialect) == ("FIELD_DUPLICATE", field)


def test_colons_in_texts_are_no_repeated_keys() -> None:
    assert read(Trigger, '{"subject_id": "a:b:c", "input": {"x:y": "::"}}').subject_id == "a:b:c"


@BOTH
def test_ap_02_full_names_and_known_numbers_are_read_on_every_door(dialect: Dialect) -> None:
    for word in ('"STEP_TYPE_ACTION"', "1"):
        step = read(Create, f'{{"steps": [{{"ref": "a", "type": {word}}}]}}', dialect).steps[0]
        assert step.type == definition_pb2.STEP_TYPE_ACTION


@BOTH
@pytest.mark.parametrize(
    "word", ['"ACTION"', '"step_type_action"', "999", "-1", '"STEP_TYPE_NOPE"', '"1"', "1.5", "true", "{}", '""']
)
def test_ap_02_every_other_spelling_is_refused_by_name(dialect: Dialect, word: str) -> None:
    assert reason(Create, f'{{"steps": [{{"ref": "a", "type": {word}}}]}}', dialect) == (
        "FIELD_INVALID",
        "steps[0].type",
    )


def test_ap_02_rest_alone_reads_short_names() -> None:
    body = '{"steps": [{"ref": "a", "type": "action"}], "edges": [{"type": "success"}], "tier": "bulk"}'
    assert read(Create, body).steps[0].type == definition_pb2.STEP_TYPE_ACTION
    assert read(Create, body).tier == common_pb2.TIER_BULK
    assert reason(Create, body, Dialect.PROTO) == ("FIELD_INVALID", "steps[0].type")


def test_pl_03_the_text_of_a_payload_reaches_the_twin_untouched() -> None:
    text = '{"id": 9007199254740993, "big": 18446744073709551616, "x": 1.10, "a": 1, "a": 2}'
    for dialect in Dialect:
        message = read(Trigger, f'{{"input": {text}}}', dialect)
        assert message.input_json == text
        assert not message.HasField("input")
    step = read(Create, f'{{"steps": [{{"ref": "a", "type": 1, "args": {text}}}]}}').steps[0]
    assert step.args_json == text


def test_the_places_of_twins_are_kept_for_errors() -> None:
    twins = asked(triggers.BatchTriggerWorkflowRequest, '{"items": [{}, {"input": 1}, {"input_json": "1"}]}').twins
    assert twins == {"items[1].input_json": "items[1].input"}


@BOTH
@pytest.mark.parametrize(
    ("body", "field", "path", "problem"),
    [
        ('{"input": {"x": NaN}}', "input", "input.x", "nan"),
        ('{"input": {"x": [1, -Infinity]}}', "input", "input.x[1]", "nan"),
        ('{"input": {"x": "\\ud800"}}', "input", "input.x", "surrogate"),
        ('{"subject_id": "\\udfff"}', "subject_id", "subject_id", "surrogate"),
    ],
)
def test_pl_04_what_is_no_json_in_a_payload_is_refused_with_its_path(
    dialect: Dialect, body: str, field: str, path: str, problem: str
) -> None:
    refusal = refused(Trigger, body, dialect)
    assert refusal.reason == "PAYLOAD_INVALID"
    assert refusal.metadata == {"field": field, "path": path, "problem": problem}


@BOTH
@pytest.mark.parametrize(
    "body",
    [
        '{"input": {"x": 1}',
        "[]",
        "null",
        '"x"',
        "5",
        "nope",
        "{} {}",
        '{"input": 01}',
        "{'a': 1}",
        b"\xff\xfe{\x00}\x00",
        b"\xef\xbb\xbf{}",
        '{"a": 1,}',
        "[" * 100_000,
    ],
)
def test_a_body_that_is_no_json_object_is_malformed(dialect: Dialect, body: str | bytes) -> None:
    assert refused(Trigger, body, dialect).reason == "BODY_MALFORMED"


def test_a_malformed_body_is_told_its_line_and_column() -> None:
    assert "line 2 column 10" in refused(Trigger, '{"a": 1,\n "input" 5}').message


def test_deep_nesting_ends_in_an_error_and_not_in_the_stack() -> None:
    assert refused(Trigger, '{"input": ' + "[" * 100_000 + "]" * 100_000 + "}").reason in (
        "PAYLOAD_INVALID",
        "BODY_MALFORMED",
    )
    assert read(
        Trigger, '{"input": ' + "[" * 900 + "]" * 900 + "}"
    ).input_json  # the service says too_deep, as on every door


@BOTH
def test_text_that_is_no_utf_8_is_refused_where_it_stands(dialect: Dialect) -> None:
    assert reason(Trigger, b'{"subject_id": "\xff"}', dialect) == ("FIELD_INVALID", "subject_id")
    assert reason(Trigger, b'{"input": {"a": "\xff"}}', dialect) == ("FIELD_INVALID", "input")
    assert refused(Trigger, b'{"\xff": 1}', dialect).reason == "BODY_MALFORMED"
    assert refused(Trigger, b'{"correlation_labels": [{"\xff": 1}]}', dialect).reason == "FIELD_INVALID"


def test_l1_a_step_type_that_is_not_built_is_judged_before_its_fields() -> None:
    steps = (
        '{"ref": "a", "type": "action", "nope": 1}',
        '{"ref": "w", "type": "bridge", "bridge": {"url": "x"}}',
        '{"ref": "g", "type": "STEP_TYPE_AI_AGENT", "x": 1}',
    )
    body = f'{{"steps": [{", ".join(steps)}]}}'
    refusal = refused(Create, body)
    assert refusal.reason == "DEFINITION_INVALID"
    assert refusal.metadata == {"violation_count": "2"}
    assert [(v.code, v.path, v.step_ref) for v in refusal.violations] == [
        ("STEP_TYPE_NOT_SUPPORTED", "steps[1].type", "w"),
        ("STEP_TYPE_NOT_SUPPORTED", "steps[2].type", "g"),
    ]


def test_l1_an_update_of_a_step_need_not_repeat_its_type() -> None:
    body = '{"operations": [{"update_step": {"ref": "w", "bridge": {"url": "x"}}}]}'
    assert refused(Update, body).violations[0].path == "operations[0].update_step.type"
    assert reason(Update, '{"operations": [{"add_step": {"ref": "w", "type": "action", "bridge": {}}}]}') == (
        "FIELD_UNKNOWN",
        "operations[0].add_step.bridge",
    )


def test_a_type_that_is_not_built_and_has_no_fields_of_its_own_passes_to_the_service() -> None:
    assert (
        read(Create, '{"steps": [{"ref": "a", "type": "approval"}]}').steps[0].type == definition_pb2.STEP_TYPE_APPROVAL
    )


def test_steps_that_wait_have_their_own_objects() -> None:
    """As definition files spell them (L1); fields at any depth are checked."""
    steps = (
        '{"ref": "w", "type": "wait", "wait": {"event": {"event_name": "paid"}, "timeout_ms": 5, "on_timeout": "skip"}}',
        '{"ref": "a", "type": "approval", "approval": {"on_timeout": "approve", "groups": ["g"], "allow_self": false}}',
        '{"ref": "r", "type": "race", "race": {"losers": "let_finish"}}',
        '{"ref": "s", "type": "event_set", "event_set": {"requirements": [{"name": "n"}], "completion_policy": "quorum"}}',
        '{"ref": "d", "type": "digest", "digest": {"mode": "backoff", "window_ms": 5}}',
    )
    wait, approval, race, event_set, digest = read(Create, f'{{"steps": [{", ".join(steps)}]}}').steps
    assert (wait.wait.event.event_name, wait.wait.timeout_ms) == ("paid", 5)
    assert wait.wait.on_timeout == definition_pb2.ON_TIMEOUT_SKIP
    assert approval.approval.on_timeout == definition_pb2.ON_TIMEOUT_APPROVE
    assert approval.approval.HasField("allow_self")
    assert race.race.losers == definition_pb2.RACE_LOSERS_LET_FINISH
    assert event_set.event_set.completion_policy == definition_pb2.COMPLETION_POLICY_QUORUM
    assert digest.digest.mode == definition_pb2.DIGEST_MODE_BACKOFF
    bad = '{"steps": [{"ref": "s", "type": "event_set", "event_set": {"requirements": [{"nam": "n"}]}}]}'
    assert reason(Create, bad) == ("FIELD_UNKNOWN", "steps[0].event_set.requirements[0].nam")
    bad = '{"steps": [{"ref": "w", "type": "wait", "wait": {"on_timeout": "wait"}}]}'
    assert reason(Create, bad) == ("FIELD_INVALID", "steps[0].wait.on_timeout")


def test_steps_that_fan_out_have_their_own_objects() -> None:
    """As definition files spell them (L1): a tolerance is a number or a share, the fields of a projection are a map."""
    steps = (
        '{"ref": "s", "type": "scatter", "scatter": {"items_expr": "[1]", "args": {"n": 10000000000000001}, "tolerated_failures": 5}}',
        '{"ref": "c", "type": "scatter", "scatter": {"mode": "child_workflow", "workflow": {"version": 3}, "tolerated_failures": "10%"}}',
        '{"ref": "g", "type": "gather", "gather": {"scatter_ref": "s", "stream_error": "raise"}}',
        '{"ref": "f", "type": "for_each", "for_each": {"on_item_error": "continue", "parent_close_policy": "abandon"}}',
        '{"ref": "d", "type": "dataflow", "dataflow": {"operation": "project", "fields": {"a": "ITEM.a", "b": "INDEX"}}}',
        '{"ref": "w", "type": "subworkflow", "subworkflow": {"mode": "async", "on_timeout": "detach", "output": null}}',
    )
    scatter, runs, gather, each, dataflow, child = read(Create, f'{{"steps": [{", ".join(steps)}]}}').steps
    assert (scatter.scatter.args_json, scatter.scatter.tolerated_failures_json) == ('{"n": 10000000000000001}', "5")
    assert (runs.scatter.workflow.version, runs.scatter.tolerated_failures_json) == (3, '"10%"')
    assert runs.scatter.mode == definition_pb2.SCATTER_MODE_CHILD_WORKFLOW
    assert gather.gather.stream_error == definition_pb2.STREAM_ERROR_RAISE
    assert each.for_each.on_item_error == definition_pb2.ON_ITEM_ERROR_CONTINUE
    assert each.for_each.parent_close_policy == definition_pb2.PARENT_CLOSE_POLICY_ABANDON
    assert dict(dataflow.dataflow.fields) == {"a": "ITEM.a", "b": "INDEX"}
    assert child.subworkflow.on_timeout == definition_pb2.ON_CHILD_TIMEOUT_DETACH
    assert child.subworkflow.mode == definition_pb2.SUBWORKFLOW_MODE_ASYNC
    bad = '{"steps": [{"ref": "s", "type": "scatter", "scatter": {"workflow": {"slug": "n"}}}]}'
    assert reason(Create, bad) == ("FIELD_UNKNOWN", "steps[0].scatter.workflow.slug")
    bad = '{"steps": [{"ref": "d", "type": "dataflow", "dataflow": {"fields": {"a": 1}}}]}'
    assert reason(Create, bad) == ("FIELD_INVALID", "steps[0].dataflow.fields.a")


def test_a_worker_may_report_anything_on_the_task_service() -> None:
    body = '{"completions": [{"taskToken": "t", "failure": {"code": "X", "message": "a\\u0000b", "retryAfterMs": 5}}]}'
    message = read(tasks.CompleteTasksRequest, body, Dialect.PROTO)
    assert message.completions[0].failure.message == "a\0b"


def test_a_body_of_nothing_but_faults_costs_little() -> None:
    body = "{" + ",".join(f'"idempotencykey{i}": 1' for i in range(50_000)) + "}"
    begin = time.process_time()
    refusal = refused(Trigger, body)
    assert time.process_time() - begin < 15
    assert len(refusal.violations) == 100
    assert "49999 more" in refusal.message


def test_a_key_is_never_quoted_at_length() -> None:
    message = refused(Trigger, f'{{"{"x" * 5_000}": 1}}').message
    assert len(message) < 200
