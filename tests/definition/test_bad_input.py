"""What bad input gets: a coded error that names the field, and nothing is written (issue: «What bad input gets»; AP-01, AP-02, YM-01 to YM-03, PL-01,
PL-03, PL-04, PL-06, PG-09)."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import asyncpg
import pytest
from google.protobuf.struct_pb2 import Struct

from ductor.workflow.v1 import definition_pb2 as pb
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from tests.definition.client import Definitions, order, refused, without

Steps = list[dict[str, Any]]


async def written(owner: asyncpg.Connection) -> list[tuple[Any, ...]]:
    """Everything that the service may write."""
    tables = ("eec_workflow_definition", "eec_workflow_draft", "eec_workflow_version", "eec_workflow_audit")
    return [tuple(row) for table in tables for row in await owner.fetch(f"select t::text from {table} t order by 1")]


@pytest.fixture
async def untouched(definitions: Definitions, owner: asyncpg.Connection) -> AsyncIterator[pb.WorkflowDefinitionDetail]:
    """A draft of revision 2 with one version beside it; whatever the test does, no row changes."""
    draft = (await definitions.create()).data
    await definitions.publish(draft.id)
    before = await written(owner)
    yield await definitions.get(draft.id)
    assert await written(owner) == before


def step(**fields: Any) -> dict[str, Any]:
    return {"ref": "a", "type": "action", "action": "noop:noop", **fields}


def named(**fields: Any) -> dict[str, Any]:
    return {"family_slug": "new", **fields}


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


INVALID_DRAFTS: dict[str, tuple[dict[str, Any], str, str]] = {
    # what is sent → the violation's code and path
    "slug with capitals": ({"family_slug": "Order"}, "INVALID_NAME", "family_slug"),
    "slug with blanks": ({"family_slug": " a "}, "INVALID_NAME", "family_slug"),
    "slug with a slash": ({"family_slug": "a/b"}, "INVALID_NAME", "family_slug"),
    "slug with a line end": ({"family_slug": "a\n"}, "INVALID_NAME", "family_slug"),
    "slug of 129": ({"family_slug": "a" * 129}, "INVALID_NAME", "family_slug"),
    "slug of 50,000": ({"family_slug": "a" * 50_000}, "INVALID_NAME", "family_slug"),
    "title of 257": (named(title="x" * 257), "INVALID_LENGTH", "title"),
    "empty tag": (named(tags=[""]), "INVALID_LENGTH", "tags[0]"),
    "no ref": (named(steps=[without(step(), "ref")]), "MISSING_FIELD", "steps[0].ref"),
    "ref with a colon": (named(steps=[step(ref="a:approve")]), "INVALID_NAME", "steps[0].ref"),
    "ref with a slash": (named(steps=[step(ref="a/b")]), "INVALID_NAME", "steps[0].ref"),
    "ref with an umlaut": (named(steps=[step(ref="ä")]), "INVALID_NAME", "steps[0].ref"),
    "ref of dots": (named(steps=[step(ref="..")]), "INVALID_NAME", "steps[0].ref"),
    "ref of 129": (named(steps=[step(ref="a" * 129)]), "INVALID_NAME", "steps[0].ref"),
    "one ref twice": (named(steps=[step(), step()]), "DUPLICATE_STEP_REF", "steps[1].ref"),
    "action without provider": (named(steps=[step(action="noop")]), "INVALID_NAME", "steps[0].action"),
    "no attempts": (named(steps=[step(retry_max_attempts=0)]), "OUT_OF_RANGE", "steps[0].retry_max_attempts"),
    "negative time-out": (named(steps=[step(timeout_ms=-1)]), "OUT_OF_RANGE", "steps[0].timeout_ms"),
    "shrinking back-off": (named(steps=[step(retry_backoff_coefficient=0.5)]), "OUT_OF_RANGE", "steps[0].retry_backoff_coefficient"),
    "empty condition": (named(steps=[step(run_if="")]), "INVALID_LENGTH", "steps[0].run_if"),
    "edge without target": (named(edges=[{"source_ref": "a", "type": "success"}]), "MISSING_FIELD", "edges[0].target_ref"),
    "trigger without id": (named(triggers=[{"type": "manual"}]), "MISSING_FIELD", "triggers[0].id"),
    "variable with a blank": (named(variables={"a b": 1}), "INVALID_NAME", 'variables["a b"]'),
    "501 steps": (named(steps=[step(ref=f"s{i}") for i in range(501)]), "MAX_STEP_COUNT_EXCEEDED", "steps"),
    "5,001 edges": (named(edges=[{"source_ref": "a", "target_ref": "b", "type": "done"}] * 5_001), "MAX_EDGE_COUNT_EXCEEDED", "edges"),
    "args too deep in all": (named(steps=[step(args={"x": nested(29)})]), "PAYLOAD_TOO_DEEP", "steps[0].args.x" + "[0]" * 27),
}  # fmt: skip


@pytest.mark.parametrize("case", INVALID_DRAFTS)
async def test_what_not_even_a_draft_may_be(
    untouched: pb.WorkflowDefinitionDetail, definitions: Definitions, case: str
) -> None:
    """Created or replaced, the same answer; each names the field."""
    definition, code, path = INVALID_DRAFTS[case]
    calls = [definitions.create(definition)]
    if definition["family_slug"] == "new":
        replace = api.UpdateWorkflowDraftRequest(id=untouched.id, expected_draft_revision=2)
        create = api.CreateWorkflowDefinitionRequest()
        create_from(create, definition)
        replace.operations.add().replace.definition.ParseFromString(create.SerializeToString())
        replace.operations[0].replace.definition.family_slug = ""
        calls.append(definitions.call("UpdateWorkflowDraft", replace))
    for call in calls:
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "DEFINITION_INVALID"), refusal.message
        assert (code, path) in [(v.code, v.path) for v in refusal.violations]


def create_from(request: Any, definition: dict[str, Any]) -> None:
    from ductord.definition import convert

    convert.fill(request, definition)


def struct(**members: Any) -> Struct:
    made = Struct()
    made.update(members)
    return made


def create(**fields: Any) -> api.CreateWorkflowDefinitionRequest:
    return api.CreateWorkflowDefinitionRequest(family_slug="new", **fields)


def action(**fields: Any) -> list[pb.StepDefinition]:
    return [pb.StepDefinition(ref="a", type=pb.STEP_TYPE_ACTION, action="core:echo", **fields)]


BAD_CREATIONS: dict[str, tuple[api.CreateWorkflowDefinitionRequest, str, dict[str, str]]] = {
    "no slug": (api.CreateWorkflowDefinitionRequest(), "FIELD_REQUIRED", {"field": "family_slug"}),
    "NUL in the title": (create(title="a\0b"), "FIELD_INVALID", {"field": "title"}),
    "NUL in a ref": (create(steps=[pb.StepDefinition(ref="\0")]), "FIELD_INVALID", {"field": "steps[0].ref"}),
    "unknown step type": (create(steps=[pb.StepDefinition(ref="a", type=999)]), "FIELD_INVALID", {"field": "steps[0].type"}),  # type: ignore[arg-type]
    "unknown edge type": (create(edges=[pb.EdgeDefinition(source_ref="a", target_ref="b", type=99)]), "FIELD_INVALID", {"field": "edges[0].type"}),  # type: ignore[arg-type]
    "negative enum number": (create(fail_policy=-1), "FIELD_INVALID", {"field": "fail_policy"}),  # type: ignore[arg-type]
    "both twins": (create(steps=action(args=struct(a=1), args_json="{}")), "FIELDS_EXCLUSIVE", {"field": "steps[0].args", "other_field": "steps[0].args_json"}),
    "args that are a list": (create(steps=action(args_json="[1]")), "FIELD_INVALID", {"field": "steps[0].args_json"}),
    "variables that are a number": (create(variables_json="1"), "FIELD_INVALID", {"field": "variables_json"}),
    "malformed JSON": (create(steps=action(args_json='{"a":')), "PAYLOAD_INVALID", {"path": "steps[0].args_json", "problem": "not_json"}),
    "empty JSON": (create(output_json=""), "PAYLOAD_INVALID", {"path": "output_json", "problem": "not_json"}),
    "a key twice": (create(variables_json='{"a":1,"a":2}'), "PAYLOAD_INVALID", {"path": "variables_json.a", "problem": "duplicate_key"}),
    "NaN in text": (create(output_json="NaN"), "PAYLOAD_INVALID", {"path": "output_json", "problem": "nan"}),
    "1e999": (create(output_json="[1e999]"), "PAYLOAD_INVALID", {"path": "output_json[0]", "problem": "nan"}),
    "infinite in a Struct": (create(variables=struct(a=float("inf"))), "PAYLOAD_INVALID", {"path": "variables.a", "problem": "nan"}),
    "NaN as a coefficient": (create(steps=action(retry_backoff_coefficient=float("nan"))), "PAYLOAD_INVALID", {"path": "steps[0].retry_backoff_coefficient", "problem": "nan"}),
    "NUL in a payload": (create(output_json='"\\u0000"'), "PAYLOAD_INVALID", {"path": "output_json", "problem": "nul"}),
    "NUL in a Struct's key": (create(variables=struct(**{"a\0": 1})), "PAYLOAD_INVALID", {"path": 'variables["a\\u0000"]', "problem": "nul"}),
    "a lone surrogate": (create(output_json='"\\ud800"'), "PAYLOAD_INVALID", {"path": "output_json", "problem": "surrogate"}),
    "beyond int64": (create(output_json="9223372036854775808"), "PAYLOAD_INVALID", {"path": "output_json", "problem": "integer_range"}),
    "2^53 in a Struct": (create(variables=struct(a=float(1 << 53))), "PAYLOAD_INVALID", {"path": "variables.a", "problem": "integer_range"}),
    "a payload too deep": (create(output_json="[" * 33 + "]" * 33), "PAYLOAD_INVALID", {"problem": "too_deep"}),
    "a payload too large": (create(output_json=json.dumps("x" * (1 << 20))), "PAYLOAD_TOO_LARGE", {"field": "output_json", "limit_bytes": str(1 << 20)}),
    "a document too large": (create(variables_json=json.dumps({"v": "x" * 700_000}), output_json=json.dumps("x" * 700_000)), "PAYLOAD_TOO_LARGE", {"field": "definition", "limit_bytes": str(1 << 20)}),
    "a request too large": (create(description="x" * (5 << 20)), "REQUEST_TOO_LARGE", {"limit_bytes": str(4 << 20)}),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_CREATIONS)
async def test_a_request_that_cannot_be_read(
    untouched: pb.WorkflowDefinitionDetail, definitions: Definitions, case: str
) -> None:
    """Found before the definition is looked at; the field is named with its whole path."""
    request, reason, metadata = BAD_CREATIONS[case]
    refusal = await refused(definitions.call("CreateWorkflowDefinition", request))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", reason), refusal.message
    assert metadata.items() <= refusal.metadata.items()


BAD_OPERATIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no operation": ({}, "FIELD_REQUIRED", "operations[1]"),
    "a ref that is taken": ({"addStep": {"ref": "pay", "type": 1}}, "DRAFT_OPERATION_INVALID", "operations[1].add_step.ref"),
    "a step without ref": ({"addStep": {"type": 1}}, "DRAFT_OPERATION_INVALID", "operations[1].add_step.ref"),
    "a step that is not there": ({"updateStep": {"ref": "nope"}}, "DRAFT_OPERATION_INVALID", "operations[1].update_step.ref"),
    "removing what is not there": ({"removeStep": {"ref": "nope"}}, "DRAFT_OPERATION_INVALID", "operations[1].remove_step.ref"),
    "an edge that is there": (
        {"addEdge": {"sourceRef": "pay", "targetRef": "ship", "type": 1}}, "DRAFT_OPERATION_INVALID", "operations[1].add_edge",
    ),
    "an edge that is not there": (
        {"removeEdge": {"sourceRef": "pay", "targetRef": "ship", "type": 2}}, "DRAFT_OPERATION_INVALID", "operations[1].remove_edge",
    ),
    "an edge without a type": (
        {"removeEdge": {"sourceRef": "pay", "targetRef": "ship"}}, "DRAFT_OPERATION_INVALID", "operations[1].remove_edge.type",
    ),
    "clearing what steps do not have": (
        {"updateStep": {"ref": "pay", "clearFields": ["tittle"]}}, "FIELD_INVALID", "operations[1].update_step.clear_fields",
    ),
    "clearing the ref": (
        {"updateStep": {"ref": "pay", "clearFields": ["ref"]}}, "DRAFT_OPERATION_INVALID", "operations[1].update_step.clear_fields",
    ),
    "clearing and giving": (
        {"setSettings": {"tier": 1, "clearFields": ["tier"]}}, "DRAFT_OPERATION_INVALID", "operations[1].set_settings.clear_fields",
    ),
    "clearing no setting": (
        {"setSettings": {"clearFields": ["steps"]}}, "DRAFT_OPERATION_INVALID", "operations[1].set_settings.clear_fields",
    ),
    "another family": (
        {"replace": {"definition": {"familySlug": "else"}}}, "DRAFT_OPERATION_INVALID", "operations[1].replace.definition.family_slug",
    ),
    "no definition": ({"replace": {}}, "DRAFT_OPERATION_INVALID", "operations[1].replace.definition"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_OPERATIONS)
async def test_operations_are_applied_all_or_none(
    untouched: pb.WorkflowDefinitionDetail, definitions: Definitions, case: str
) -> None:
    """The first operation is good and leaves no trace."""
    operation, reason, field = BAD_OPERATIONS[case]
    good = {"addStep": {"ref": "good", "type": "STEP_TYPE_ACTION", "action": "noop:noop"}}
    refusal = await refused(definitions.update(untouched.id, 2, good, operation, title="Never"))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", reason), refusal.message
    assert refusal.metadata["field"] == field
    assert refusal.metadata.get("operation_index", "1") == "1"


async def test_an_edit_is_bounded_and_says_what_it_has_read(
    untouched: pb.WorkflowDefinitionDetail, definitions: Definitions
) -> None:
    """6,000 operations; the revision is required; names are given or cleared."""
    refusal = await refused(definitions.update(untouched.id, 2, *[{"removeStep": {"ref": "pay"}}] * 6_001))
    assert (refusal.reason, refusal.metadata) == ("BATCH_TOO_LARGE", {"field": "operations", "limit": "6000"})
    for call, reason, field in (
        (definitions.update(untouched.id, None, title="x"), "FIELD_REQUIRED", "expected_draft_revision"),
        (definitions.update(untouched.id, 2, clear_fields=["steps"]), "FIELD_INVALID", "clear_fields[0]"),
        (definitions.update(untouched.id, 2, title="x", clear_fields=["title"]), "FIELDS_EXCLUSIVE", "title"),
        (definitions.publish(untouched.id, reason="x" * 1_001), "FIELD_INVALID", "reason"),
        (definitions.delete_draft(untouched.id, reason="x" * 1_001), "FIELD_INVALID", "reason"),
        (definitions.archive(untouched.id, reason="nul\0"), "FIELD_INVALID", "reason"),
        (definitions.duplicate(untouched.id, ""), "FIELD_REQUIRED", "family_slug"),
        (definitions.validate(), "FIELD_REQUIRED", "definition"),
        (definitions.get(untouched.id, view=9), "FIELD_INVALID", "view"),
    ):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason, refusal.metadata["field"]) == ("INVALID_ARGUMENT", reason, field)
    for slug in ("Order", "a" * 3_000, " a "):
        refusal = await refused(definitions.duplicate(untouched.id, slug))
        assert (refusal.reason, refusal.violations[0].path) == ("DEFINITION_INVALID", "family_slug")


async def test_6000_operations_are_taken(definitions: Definitions) -> None:
    """The limit itself, within the time of a call."""
    draft = (await definitions.create()).data
    operations = [{"addStep": {"ref": "x", "type": 1, "action": "noop:noop"}}, {"removeStep": {"ref": "x"}}] * 3_000
    assert (await definitions.update(draft.id, 1, *operations)).data.draft_revision == 2


def edges(*pairs: tuple[str, str], kind: str = "success") -> Steps:
    return [{"source_ref": source, "target_ref": target, "type": kind} for source, target in pairs]


def changed(**fields: Any) -> dict[str, Any]:
    """The order definition with step `pay` changed."""
    definition = order("bad")
    definition["steps"][0] = {
        key: value for key, value in (definition["steps"][0] | fields).items() if value is not None
    }
    return definition


UNPUBLISHABLE: dict[str, tuple[dict[str, Any], str, str]] = {
    "no steps": (without(order("bad"), "steps", "edges", "checkpoints", "output"), "MISSING_FIELD", "steps"),
    "a cycle": (order("bad", edges=edges(("pay", "ship"), ("ship", "pay"))), "CYCLE", "steps[0].ref"),
    "a dangling edge": (order("bad", edges=edges(("pay", "shop"))), "DANGLING_EDGE", "edges[0].target_ref"),
    "no step type": (changed(type=None), "MISSING_FIELD", "steps[0].type"),
    "a step type to come": (changed(type="wait", action=None, args=None), "STEP_TYPE_NOT_SUPPORTED", "steps[0].type"),
    "an unknown action": (changed(action="nobody:knows"), "UNKNOWN_ACTION", "steps[0].action"),
    "no action": (changed(action=None), "MISSING_FIELD", "steps[0].action"),
    "args of the wrong type": (changed(action="core:sleep", args={"ms": "long"}), "INVALID_ACTION_ARGS", "steps[0].args.ms"),
    "CEL that does not parse": (changed(run_if="1 +"), "", "steps[0].run_if"),
    "CEL over an unknown name": (changed(run_if="TRIGER.payload.a == 1"), "", "steps[0].run_if"),
    "CEL that is not boolean": (changed(run_if="1 + 1"), "", "steps[0].run_if"),
    "a template over no ancestor": (changed(args={"x": '${{ STEPS["ship"].output }}'}), "", "steps[0].args.x"),
    "an open template": (changed(args={"x": "${{ 1"}), "TEMPLATE_SYNTAX", "steps[0].args.x"),
    "compensation": (changed(compensation={"on_failure": [{"action": "a:b"}]}), "FEATURE_NOT_SUPPORTED", "steps[0].compensation"),
    "a connection": (changed(connection_ref="c"), "FEATURE_NOT_SUPPORTED", "steps[0].connection_ref"),
    "an event trigger": (order("bad", triggers=[{"id": "e", "type": "event", "patterns": ["x"]}]), "FEATURE_NOT_SUPPORTED", "triggers[0].type"),
    "a schedule": (order("bad", schedule={"cron_expression": "* * * * *"}), "FEATURE_NOT_SUPPORTED", "schedule"),
    "true without result_expr": (order("bad", edges=edges(("pay", "ship"), kind="true")), "RESULT_EXPR_REQUIRED", "edges[0].type"),
    "an approval's edge": (order("bad", edges=edges(("pay", "ship"), kind="approved")), "APPROVAL_REQUIRED", "edges[0].type"),
    "a checkpoint over nothing": (order("bad", checkpoints=[{"name": "c", "step_refs": ["nope"]}]), "UNKNOWN_STEP_REF", "checkpoints[0].step_refs[0]"),
    "an unknown response checkpoint": (order("bad", response_checkpoint="nope"), "UNKNOWN_CHECKPOINT", "response_checkpoint"),
    "a schema that is none": (order("bad", input_schema={"type": 5}), "INVALID_INPUT_SCHEMA", "input_schema.type"),
}  # fmt: skip


@pytest.mark.parametrize("case", UNPUBLISHABLE)
async def test_what_a_draft_may_hold_and_no_version(
    definitions: Definitions, owner: asyncpg.Connection, case: str
) -> None:
    """A warning when it is drafted, an error when it is published or validated; nothing is published."""
    definition, code, path = UNPUBLISHABLE[case]
    answer = await definitions.create(definition)
    assert path in [w.path for w in answer.warnings]
    before = await written(owner)
    refusal = await refused(definitions.publish(answer.data.id))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "DEFINITION_INVALID")
    assert refusal.metadata["violation_count"] == str(len(refusal.violations))
    assert [v.path for v in refusal.violations if not code or v.code == code] == [path]
    verdict = await definitions.validate(id=answer.data.id)
    assert (verdict.valid, [v.path for v in verdict.violations]) == (False, [v.path for v in refusal.violations])
    assert await written(owner) == before


async def test_all_violations_are_told_at_once(definitions: Definitions) -> None:
    """Not just the first; the status is cut to what a client takes and says how many there are, validation tells them all."""
    steps = [{"ref": f"s{i}", "type": "action", "action": f"nobody:a{i}", "run_if": "nope"} for i in range(300)]
    draft = (await definitions.create({"family_slug": "bad", "steps": steps})).data
    refusal = await refused(definitions.publish(draft.id))
    assert refusal.metadata["violation_count"] == "600"
    assert 10 < len(refusal.violations) < 600
    assert len((await definitions.validate(id=draft.id)).violations) == 600


YAML: dict[str, tuple[str, str]] = {
    "malformed": ("type: [", "YAML_SYNTAX"),
    "JSON that stops": ('{"type": "workflow_definition"', ""),
    "nothing": ("", ""),
    "no envelope": ("family_slug: a\nsteps: []\n", "MISSING_FIELD"),
    "an unknown field": ("type: workflow_definition\ndefinition:\n  family_slug: a\n  stepps: []\n  steps:\n    - {ref: a, type: action, action: noop:noop}\n", "UNKNOWN_FIELD"),
    "a duplicate key": ("type: workflow_definition\ndefinition:\n  family_slug: a\n  steps: []\n  steps: []\n", "DUPLICATE_KEY"),
    "a ref that is a number": ("type: workflow_definition\ndefinition:\n  family_slug: a\n  steps:\n    - {ref: 1.10, type: action, action: noop:noop}\n", "WRONG_TYPE"),
    "a tag": ("type: !!python/object:os.system x\n", ""),
    "an alias bomb": ("a: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(8)), ""),
    "a cycle of aliases": ("a: &x [*x]\n", ""),
    "a merge key": ("type: workflow_definition\nx: &x {a: 1}\ndefinition:\n  <<: *x\n", ""),
    "too deep": ("a: " + "[" * 100 + "]" * 100, ""),
    "too large": ("#" * (1 << 20) + "\n", "DOCUMENT_TOO_LARGE"),
}  # fmt: skip


@pytest.mark.parametrize("case", YAML)
async def test_hostile_and_broken_documents(
    untouched: pb.WorkflowDefinitionDetail, definitions: Definitions, case: str
) -> None:
    """YM-01 to YM-03: judged within a second, with the place of the fault; nothing is written."""
    text, code = YAML[case]
    verdict = await definitions.validate(document=text)
    assert not verdict.valid
    assert verdict.violations
    assert all(v.code and v.message for v in verdict.violations)
    assert all(v.line >= 1 and v.column >= 1 for v in verdict.violations)
    if code:
        assert code in [v.code for v in verdict.violations]


Call = Callable[[Definitions, str], Any]
BY_ID: dict[str, Call] = {
    "get": lambda d, i: d.get(i),
    "update": lambda d, i: d.update(i, 1),
    "delete": lambda d, i: d.delete_draft(i),
    "publish": lambda d, i: d.publish(i),
    "archive": lambda d, i: d.archive(i),
    "duplicate": lambda d, i: d.duplicate(i, "copy"),
    "validate": lambda d, i: d.validate(id=i),
    "export": lambda d, i: d.export(i),
}


@pytest.mark.parametrize("rpc", BY_ID)
async def test_ids_that_are_none(untouched: pb.WorkflowDefinitionDetail, definitions: Definitions, rpc: str) -> None:
    """PG-09: whatever stands for an id, the answer is NOT_FOUND or a named field, never an error of the server."""
    unknown = await refused(BY_ID[rpc](definitions, "01234567-89ab-7def-8123-456789abcdef"))
    assert (unknown.code, unknown.reason, unknown.metadata) == ("NOT_FOUND", "DEFINITION_NOT_FOUND", {})
    for text in (
        "x",
        "x" * 129,
        "x" * 50_000,
        " a ",
        "ä",
        "..",
        "a/b",
        "a:b",
        "%00",
        "1",
        untouched.id + "\n",
        "{" + untouched.id + "}",
    ):
        refusal = await refused(BY_ID[rpc](definitions, text))
        assert (refusal.code, refusal.reason, refusal.message) == (unknown.code, unknown.reason, unknown.message)
    for text in ("", "nul\0"):
        refusal = await refused(BY_ID[rpc](definitions, text))
        assert (refusal.code, refusal.metadata["field"]) == ("INVALID_ARGUMENT", "id")
