"""Every door leads to the same definition: Struct, JSON text, operations, files of YAML and JSON, exports (rulings L1, L5; PL-03, AP-02)."""

import json
from itertools import pairwise
from typing import Any

import pytest
from google.protobuf.struct_pb2 import NULL_VALUE, Struct

from ductor.workflow.v1 import definition_pb2 as pb
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductord.definition import convert
from ductord.engine.compile import compile_definition, manifest_hash
from tests.definition.client import Definitions, message, order, refused

pytestmark = pytest.mark.asyncio(loop_scope="module")

BIG = 9_007_199_254_740_993
"""2^53 + 1, which a double cannot hold."""


def everything() -> dict[str, Any]:
    """A definition with every field that the contract has and this release runs."""
    return {
        "family_slug": "everything",
        "title": "Everything",
        "description": "Lines\nof text, and «signs»",
        "tags": ["a", "b"],
        "variables": {"no": "yes", "limit": 5, "rate": 0.5, "none": None, "list": [1, 2.5, {"deep": [[]]}], "on": False},
        "input_schema": {"type": "object", "properties": {"amount": {"type": "number", "minimum": 0.5}}},
        "output": ["${{ VARS.limit }}", None, {"rate": "${{ VARS.rate }}", "x": "${{ VARS.no + string(VARS.on) + string(size(VARS.list)) }}"}],
        "steps": [
            {
                "ref": "first",
                "type": "action",
                "title": "The first",
                "run_if": "VARS.limit > 1 && VARS.none == null",
                "join": "any",
                "on_error": "continue",
                "result_expr": "OUTPUT.n > 1",
                "retry_max_attempts": 4,
                "retry_backoff_ms": 10,
                "retry_backoff_coefficient": 2.0,
                "retry_max_backoff_ms": 1_000,
                "retry_jitter": True,
                "retry_on": ["UNAVAILABLE"],
                "non_retryable": ["NOT_FOUND"],
                "timeout_ms": 1_000,
                "total_timeout_ms": 9_000,
                "queue_timeout_ms": 5_000,
                "heartbeat_timeout_ms": 500,
                "max_lost": 0,
                "queue": "mine",
                "action": "remote:action",
                "args": {"n": 1, "half": 0.5, "text": "5.0", "null": None, "z": {"b": 1, "a": [True, "${{ TRIGGER.payload.x }}"]}},
                "compensation": {
                    "on_failure": [
                        {
                            "action": "remote:undo",
                            "args": {"of": "${{ OUTPUT.n }}", "half": 0.5, "null": None},
                            "retry_max_attempts": 5,
                            "retry_backoff_ms": 20,
                            "timeout_ms": 3_000,
                            "queue": "undoing",
                        },
                        {"action": "core:echo"},
                    ],
                    "on_cancel": [{"action": "remote:undo", "args": {}}],
                    "finally": [{"action": "core:echo", "args": {"deep": [{"run": "${{ RUN.id }}"}]}}],
                    "failure_policy": "fail_compensation",
                },
            },
            {"ref": "yes", "type": "action", "action": "noop:noop", "args": {}},
            {"ref": "no", "type": "action", "action": "noop:noop"},
        ],
        "edges": [
            {"source_ref": "first", "target_ref": "yes", "type": "true", "condition": "true", "choice_group": "g", "order": 0},
            {"source_ref": "first", "target_ref": "no", "type": "true", "choice_group": "g", "default": True},
            {"source_ref": "first", "target_ref": "no", "type": "false"},
            {"source_ref": "first", "target_ref": "no", "type": "error"},
        ],
        "triggers": [
            {"id": "t", "type": "manual"},
            {"id": "e", "type": "event", "patterns": ["order.paid", "order.sent"], "filter": "EVENT.payload.n > VARS.limit", "tier": "critical",
             "input": {"n": "${{ EVENT.payload.n }}", "big": BIG, "rate": 0.5}},
            {"id": "s", "type": "schedule", "input": ["${{ TRIGGER.scheduled_time }}", 1],
             "schedule": {"cron_expression": "30 2 * * 1-5", "timezone": "Europe/Berlin", "catchup_window_ms": 5_000, "overlap_policy": "allow_all"}},
        ],
        "schedule": {"cron_expression": "*/5 * * * *"},
        "checkpoints": [{"name": "c1", "step_refs": ["first", "yes"]}, {"name": "c2", "step_refs": ["no"]}],
        "response_checkpoint": "c1",
        "fail_policy": "run_all",
        "run_timeout_ms": 100_000,
        "tier": "bulk",
        "auto_continue": True,
    }  # fmt: skip


def waits() -> dict[str, Any]:
    """A definition with every field of the steps that wait."""
    event = {"event_name": "paid.${{ VARS.kind }}", "correlation_key": "TRIGGER.payload.order"}
    requirement = {"name": "paid", "event_name": "paid", "filter": "EVENT.payload.sum > 1"}
    steps: list[dict[str, Any]] = [
        {"ref": "for", "type": "wait", "wait": {"duration": "PT${{ TRIGGER.payload.s }}S", "timeout_ms": 5, "on_timeout": "skip"}},
        {"ref": "at", "type": "wait", "wait": {"timestamp": "2030-01-01T00:00:00Z", "timeout_ms": 6, "on_timeout": "continue"}},
        {"ref": "tick", "type": "wait", "wait": {"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin", "timeout_ms": 7, "on_timeout": "fail"}},
        {"ref": "true", "type": "wait", "wait": {"until_expr": "TRIGGER.payload.go == true"}},
        {"ref": "event", "type": "wait", "wait": {"event": event}},
        {"ref": "signal", "type": "wait", "wait": {"signal": "customs"}},
        {"ref": "approval", "type": "approval"},
        {
            "ref": "approvals",
            "type": "approval",
            "approval": {"timeout_ms": 8, "on_timeout": "approve", "required": 2, "groups": ["a", "b"], "allow_self": True},
        },
        {"ref": "case", "type": "human_loop", "human_loop": {"case_type": "refund", "awaiting_status": "closed", "timeout_ms": 9}},
        {"ref": "race", "type": "race", "race": {"losers": "let_finish"}},
        {
            "ref": "set",
            "type": "event_set",
            "event_set": {
                "correlation_key": "TRIGGER.payload.order",
                "requirements": [requirement, {"name": "sent", "event_name": "sent"}],
                "completion_policy": "quorum",
                "quorum": 1,
                "timeout_ms": 10,
                "on_timeout": "skip",
            },
        },
    ]  # fmt: skip
    names = ("approved", "rejected", "success", "success", "success")
    ends = (("approval", "case"), ("approval", "event"), ("for", "race"), ("at", "race"), ("race", "set"))
    edges = [{"source_ref": a, "target_ref": b, "type": name} for (a, b), name in zip(ends, names, strict=True)]
    rest = everything()
    kept = {name: rest[name] for name in ("family_slug", "title", "description", "tags", "triggers", "fail_policy")}
    checkpoints = [{"name": "c", "step_refs": ["set"]}]
    return kept | {"variables": {"kind": "card"}, "steps": steps, "edges": edges, "checkpoints": checkpoints}


def fans() -> dict[str, Any]:
    """A definition with every field of the steps that fan out and compose."""
    page = {"family_slug": "page", "version": 3}
    undo = {"on_failure": [{"action": "core:echo", "args": {"of": "${{ OUTPUT }}"}}]}
    steps: list[dict[str, Any]] = [
        {
            "ref": "inline",
            "type": "scatter",
            "retry_max_attempts": 3,
            "timeout_ms": 1_000,
            "compensation": undo,
            "scatter": {
                "items_expr": "TRIGGER.payload.pages",
                "mode": "inline",
                "action": "core:echo",
                "args": {"page": "${{ ITEM }}", "n": 1, "half": 0.5, "null": None},
                "max_inline_children": 1_000,
                "max_concurrency": 8,
                "interval_ms": 50,
                "tolerated_failures": "2.5%",
            },
        },
        {
            "ref": "runs",
            "type": "scatter",
            "scatter": {
                "items_expr": "[1, 2]",
                "mode": "child_workflow",
                "workflow": page,
                "input": ["${{ ITEM }}", 1, None],
                "tolerated_failures": 5,
                "parent_close_policy": "terminate",
            },
        },
        {"ref": "gather", "type": "gather", "gather": {"scatter_ref": "inline", "stream_error": "include"}},
        {
            "ref": "each",
            "type": "for_each",
            "for_each": {
                "items_expr": "[1, 2]",
                "workflow": {"family_slug": "page"},
                "input": {"n": "${{ INDEX }}"},
                "on_item_error": "continue",
                "parent_close_policy": "abandon",
            },
        },
        {
            "ref": "reduce",
            "type": "dataflow",
            "dataflow": {"operation": "reduce", "items_expr": "[1, 2]", "expr": "ACC + ITEM", "initial": 0.5},
        },
        {
            "ref": "project",
            "type": "dataflow",
            "dataflow": {"operation": "project", "items_expr": "[1, 2]", "fields": {"b": "ITEM", "a": "INDEX", "c": "1"}},
        },
        {
            "ref": "child",
            "type": "subworkflow",
            "subworkflow": {
                "workflow": page,
                "input": {"order": "${{ TRIGGER.payload.order }}", "big": [1, 2.5]},
                "mode": "sync",
                "wait_for": "checkpoint:paid",
                "timeout_ms": 5,
                "on_timeout": "continue_with_error",
                "parent_close_policy": "request_cancel",
            },
        },
        {"ref": "apart", "type": "subworkflow", "subworkflow": {"workflow": page, "mode": "async"}},
        {"ref": "mapped", "type": "subworkflow", "subworkflow": {"workflow": page, "output": ["${{ OUTPUT.url }}", 1, None]}},
    ]  # fmt: skip
    order = ("inline", "gather", "runs", "each", "reduce", "project", "child", "apart", "mapped")
    edges = [{"source_ref": a, "target_ref": b, "type": "success"} for a, b in pairwise(order)]
    rest = everything()
    kept = {name: rest[name] for name in ("family_slug", "title", "description", "tags", "triggers", "fail_policy")}
    checkpoints = [{"name": "c", "step_refs": ["child"]}]
    return kept | {"variables": {}, "steps": steps, "edges": edges, "checkpoints": checkpoints}


def shuffled(value: Any) -> Any:
    """The same JSON with every object's keys the other way round."""
    if isinstance(value, dict):
        return {key: shuffled(item) for key, item in reversed(value.items())}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    "definition", [order("everything"), everything(), waits(), fans()], ids=["small", "everything", "waits", "fans"]
)
async def test_the_same_definition_has_the_same_hash_through_every_door(
    definitions: Definitions, definition: dict[str, Any]
) -> None:
    """Create by Struct and by text, replace, operation by operation, a file, an export read back, the engine alone."""
    compiled = compile_definition(definition)
    assert compiled.manifest is not None, compiled.violations
    expected = manifest_hash(compiled.manifest)
    hashes: dict[str, str] = {}

    async def publish(door: str, any_id: str) -> pb.WorkflowDefinitionDetail:
        published = (await definitions.publish(any_id, payload_format=2)).published
        hashes[door] = published.manifest_hash
        return published

    by_text = (await definitions.create(definition, payload_format=2)).data
    published = await publish("create by text", by_text.id)
    for door, of in (("create by Struct", definition), ("create in another order", shuffled(definition))):
        await definitions.delete_draft(by_text.id)
        await definitions.create(of, payload_format=1)
        await publish(door, by_text.id)
    await _edited_into(definitions, by_text.id, definition)
    await publish("operations", by_text.id)
    revision = (await definitions.get(by_text.id)).draft_revision
    replace = api.UpdateWorkflowDraftRequest(id=by_text.id, expected_draft_revision=revision)
    replace.operations.add().replace.definition.CopyFrom(message(definition, payload_format=1))
    await definitions.call("UpdateWorkflowDraft", replace)
    await publish("replace", by_text.id)

    hashes["inline"] = (await definitions.validate(definition=message(definition))).manifest_hash
    document = {"type": "workflow_definition", "definition": definition}
    hashes["JSON file"] = (await definitions.validate(document=json.dumps(document))).manifest_hash
    hashes["YAML file"] = (
        await definitions.validate(document="# yaml\n" + json.dumps(shuffled(document)))
    ).manifest_hash
    exported = (await definitions.export("everything")).yaml
    hashes["export"] = (await definitions.validate(document=exported)).manifest_hash
    assert hashes == dict.fromkeys(hashes, expected)

    assert exported == (await definitions.export(published.id)).yaml, "the first version's bytes are the last one's"
    as_struct = await definitions.get(published.id, payload_format=1)
    assert (
        convert.tree_of(as_struct, without=DETAIL_ONLY) == convert.tree_of(published, without=DETAIL_ONLY) == definition
    )


DETAIL_ONLY = (
    "id", "status", "version", "draft_revision", "definition_id", "manifest_hash", "create_time", "update_time", "publish_time", "archive_time",
)  # fmt: skip


async def _edited_into(definitions: Definitions, definition_id: str, definition: dict[str, Any]) -> None:
    """Take everything out of the draft and put it in again by single operations."""
    draft = await definitions.get(definition_id)
    request = api.UpdateWorkflowDraftRequest(
        id=definition_id,
        expected_draft_revision=draft.draft_revision,
        title=definition["title"],
        description=definition["description"],
        tags=definition["tags"],
    )
    for step in draft.steps:
        request.operations.add().remove_step.ref = step.ref
    for step in definition["steps"]:
        convert.fill(request.operations.add().add_step, step)
    for edge in definition["edges"][:-1]:
        convert.fill(request.operations.add().add_edge, edge)
    # An edge that comes and goes leaves nothing behind.
    last = definition["edges"][-1]
    ends = {name: last[name] for name in ("source_ref", "target_ref", "type")}
    for operation in ("add_edge", "remove_edge", "add_edge"):
        convert.fill(getattr(request.operations.add(), operation), ends if operation == "remove_edge" else last)
    convert.fill(request.operations.add().set_triggers, {"triggers": definition["triggers"]})
    convert.fill(request.operations.add().set_checkpoints, {"checkpoints": definition["checkpoints"]})
    convert.fill(request.operations.add().set_variables, {"variables": definition["variables"]})
    names = (
        "output",
        "fail_policy",
        "run_timeout_ms",
        "tier",
        "response_checkpoint",
        "input_schema",
        "auto_continue",
        "schedule",
    )
    convert.fill(
        request.operations.add().set_settings, {name: definition[name] for name in names if name in definition}
    )
    await definitions.call("UpdateWorkflowDraft", request)


def step_with(args: dict[str, Any]) -> dict[str, Any]:
    """A definition of one step with these args."""
    return {"family_slug": "one", "steps": [{"ref": "a", "type": "action", "action": "core:echo", "args": args}]}


async def test_numbers_are_exact_or_refused(definitions: Definitions) -> None:
    """L5, PL-03: text carries an int64, a Struct refuses what it would round, and an answer gives the twin rather than rounding."""
    draft = (await definitions.create(step_with({"id": BIG, "five": 5.0, "huge": 1e3}))).data
    assert json.loads(draft.steps[0].args_json) == {"id": BIG, "five": 5, "huge": 1000}
    assert '"five":5,' in draft.steps[0].args_json
    as_struct = await definitions.get(draft.id, payload_format=1)
    assert not as_struct.steps[0].HasField("args"), "a Struct would round it"
    assert str(BIG) in as_struct.steps[0].args_json
    published = (await definitions.publish(draft.id)).published
    assert str(BIG) in published.steps[0].args_json

    args = Struct()
    args.update({"deep": [{"id": float(BIG)}]})
    request = api.CreateWorkflowDefinitionRequest(
        family_slug="two", steps=[pb.StepDefinition(ref="a", type=pb.STEP_TYPE_ACTION, action="core:echo", args=args)]
    )
    refusal = await refused(definitions.call("CreateWorkflowDefinition", request))
    assert refusal.reason == "PAYLOAD_INVALID"
    assert refusal.metadata["path"] == "steps[0].args.deep[0].id"
    assert refusal.metadata["problem"] == "integer_range"


async def test_a_null_is_nothing_written(definitions: Definitions) -> None:
    """The model: a field that is null counts as not written, by Value and by text alike."""
    by_text = api.CreateWorkflowDefinitionRequest(family_slug="null-text", output_json="null")
    by_value = api.CreateWorkflowDefinitionRequest(family_slug="null-value")
    by_value.output.null_value = NULL_VALUE
    for request in (by_text, by_value):
        draft = (await definitions.call("CreateWorkflowDefinition", request)).data
        assert not draft.HasField("output")
        assert not draft.HasField("output_json")


async def test_a_large_definition_is_answered_by_its_twins(definitions: Definitions) -> None:
    """L7: a list of small numbers is five times as large as a Struct; a publish answers two of them and still fits 4 MiB."""
    args = {"numbers": [1] * 200_000}
    draft = (await definitions.create(step_with(args), payload_format=2)).data
    answer = await definitions.publish(draft.id, payload_format=1)
    assert answer.ByteSize() < 3 << 20
    assert json.loads(answer.published.steps[0].args_json) == args
