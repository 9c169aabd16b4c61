"""What not even a draft may be, and requests that cannot be read: a coded error that names the field, and nothing is written (issue: «What bad input
gets»; L2, L5, L6, L7; AP-02, PL-01, PL-03, PL-04, PL-06, PG-09)."""

import json
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct

from ductor.workflow.v1 import definition_pb2 as pb
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from tests.definition.client import Definitions, message, refused, without

pytestmark = pytest.mark.asyncio(loop_scope="module")


def step(**fields: Any) -> dict[str, Any]:
    return {"ref": "a", "type": "action", "action": "noop:noop", **fields}


def named(**fields: Any) -> dict[str, Any]:
    return {"family_slug": "new", **fields}


def undone(**compensation: Any) -> dict[str, Any]:
    return named(steps=[step(compensation=compensation)])


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
    "21 inverses": (undone(on_failure=[{"action": "noop:noop"}] * 21), "INVALID_LENGTH", "steps[0].compensation.on_failure"),
    "inverse without provider": (undone(on_cancel=[{"action": "noop"}]), "INVALID_NAME", "steps[0].compensation.on_cancel[0].action"),
    "inverse without time": (undone(on_cancel=[{"action": "noop:noop", "timeout_ms": 0}]), "OUT_OF_RANGE", "steps[0].compensation.on_cancel[0].timeout_ms"),
    "inverse args too deep in all": (
        undone(on_cancel=[{"action": "noop:noop", "args": {"x": nested(26)}}]), "PAYLOAD_TOO_DEEP", "steps[0].compensation.on_cancel[0].args.x" + "[0]" * 24,
    ),
    "args too deep in all": (named(steps=[step(args={"x": nested(29)})]), "PAYLOAD_TOO_DEEP", "steps[0].args.x" + "[0]" * 27),
}  # fmt: skip


@pytest.mark.parametrize("case", INVALID_DRAFTS)
async def test_what_not_even_a_draft_may_be(nothing_written: str, definitions: Definitions, case: str) -> None:
    """Created or replaced, the same answer; each names the field."""
    definition, code, path = INVALID_DRAFTS[case]
    calls = [definitions.create(definition)]
    if definition["family_slug"] == "new":
        replace = api.UpdateWorkflowDraftRequest(id=nothing_written, expected_draft_revision=2)
        replace.operations.add().replace.definition.CopyFrom(message(without(definition, "family_slug")))
        calls.append(definitions.call("UpdateWorkflowDraft", replace))
    for call in calls:
        refusal = await refused(call)
        assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", "DEFINITION_INVALID"), refusal.message
        assert (code, path) in [(v.code, v.path) for v in refusal.violations]


def struct(**members: Any) -> Struct:
    made = Struct()
    made.update(members)
    return made


def create(**fields: Any) -> api.CreateWorkflowDefinitionRequest:
    return api.CreateWorkflowDefinitionRequest(family_slug="new", **fields)


def number(of: int) -> Any:
    """A number that the enum does not have, past the type checker."""
    return of


def text(length: int) -> str:
    """JSON text of a string."""
    return json.dumps("x" * length)


def action(**fields: Any) -> list[pb.StepDefinition]:
    return [pb.StepDefinition(ref="a", type=pb.STEP_TYPE_ACTION, action="core:echo", **fields)]


def payload(problem: str, path: str = "output_json") -> tuple[str, dict[str, str]]:
    """The refusal of a payload."""
    return "PAYLOAD_INVALID", {"path": path, "problem": problem}


def field(name: str, reason: str = "FIELD_INVALID", **more: str) -> tuple[str, dict[str, str]]:
    """The refusal of a field."""
    return reason, {"field": name, **more}


MIB = str(1 << 20)
COEFFICIENT = "retry_backoff_coefficient"
BAD_CREATIONS: dict[str, tuple[api.CreateWorkflowDefinitionRequest, tuple[str, dict[str, str]]]] = {
    "no slug": (api.CreateWorkflowDefinitionRequest(), field("family_slug", "FIELD_REQUIRED")),
    "NUL in the title": (create(title="a\0b"), field("title")),
    "NUL in a ref": (create(steps=[pb.StepDefinition(ref="\0")]), field("steps[0].ref")),
    "unknown step type": (create(steps=[pb.StepDefinition(ref="a", type=number(999))]), field("steps[0].type")),
    "unknown edge type": (create(edges=[pb.EdgeDefinition(source_ref="a", type=number(99))]), field("edges[0].type")),
    "negative enum number": (create(fail_policy=-1), field("fail_policy")),
    "both twins": (
        create(steps=action(args=struct(a=1), args_json="{}")),
        field("steps[0].args", "FIELDS_EXCLUSIVE", other_field="steps[0].args_json"),
    ),
    "args that are a list": (create(steps=action(args_json="[1]")), field("steps[0].args_json")),
    "variables that are a number": (create(variables_json="1"), field("variables_json")),
    "malformed JSON": (create(steps=action(args_json='{"a":')), payload("not_json", "steps[0].args_json")),
    "empty JSON": (create(output_json=""), payload("not_json")),
    "a key twice": (create(variables_json='{"a":1,"a":2}'), payload("duplicate_key", "variables_json.a")),
    "NaN in text": (create(output_json="NaN"), payload("nan")),
    "1e999": (create(output_json="[1e999]"), payload("nan", "output_json[0]")),
    "infinite in a Struct": (create(variables=struct(a=float("inf"))), payload("nan", "variables.a")),
    "NaN as a coefficient": (
        create(steps=action(**{COEFFICIENT: float("nan")})),
        payload("nan", f"steps[0].{COEFFICIENT}"),
    ),
    "NUL in a payload": (create(output_json='"\\u0000"'), payload("nul")),
    "NUL in a Struct's key": (create(variables=struct(**{"a\0": 1})), payload("nul", 'variables["a\\u0000"]')),
    "a lone surrogate": (create(output_json='"\\ud800"'), payload("surrogate")),
    "beyond int64": (create(output_json="9223372036854775808"), payload("integer_range")),
    "2^53 in a Struct": (create(variables=struct(a=float(1 << 53))), payload("integer_range", "variables.a")),
    "a payload too deep": (create(output_json="[" * 33 + "]" * 33), payload("too_deep", "output_json" + "[0]" * 32)),
    "a payload too large": (
        create(output_json=text(1 << 20)),
        field("output_json", "PAYLOAD_TOO_LARGE", limit_bytes=MIB),
    ),
    "a document too large": (
        create(variables_json=f'{{"v":{text(700_000)}}}', output_json=text(700_000)),
        field("definition", "PAYLOAD_TOO_LARGE", limit_bytes=MIB),
    ),
    "a request too large": (create(description="x" * (5 << 20)), ("REQUEST_TOO_LARGE", {"limit_bytes": str(4 << 20)})),
}


@pytest.mark.parametrize("case", BAD_CREATIONS)
async def test_a_request_that_cannot_be_read(nothing_written: str, definitions: Definitions, case: str) -> None:
    """Found before the definition is looked at; the field is named with its whole path."""
    request, (reason, metadata) = BAD_CREATIONS[case]
    refusal = await refused(definitions.call("CreateWorkflowDefinition", request))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", reason), refusal.message
    assert metadata.items() <= refusal.metadata.items()
