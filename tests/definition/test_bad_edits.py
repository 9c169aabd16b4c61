"""Edits that cannot be made: all operations or none, and the one at fault is named (contract: UpdateWorkflowDraft)."""

from typing import Any

import pytest

from tests.definition.client import Definitions, refused

pytestmark = pytest.mark.asyncio(loop_scope="module")

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
async def test_operations_are_applied_all_or_none(nothing_written: str, definitions: Definitions, case: str) -> None:
    """The first operation is good and leaves no trace."""
    operation, reason, field = BAD_OPERATIONS[case]
    good = {"addStep": {"ref": "good", "type": "STEP_TYPE_ACTION", "action": "noop:noop"}}
    refusal = await refused(definitions.update(nothing_written, 2, good, operation, title="Never"))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", reason), refusal.message
    assert refusal.metadata["field"] == field
    assert refusal.metadata.get("operation_index", "1") == "1"


async def test_an_edit_is_bounded_and_says_what_it_has_read(nothing_written: str, definitions: Definitions) -> None:
    """6,000 operations; the revision is required; names are given or cleared."""
    refusal = await refused(definitions.update(nothing_written, 2, *[{"removeStep": {"ref": "pay"}}] * 6_001))
    assert (refusal.reason, refusal.metadata) == ("BATCH_TOO_LARGE", {"field": "operations", "limit": "6000"})
    for call, reason, field in (
        (definitions.update(nothing_written, None, title="x"), "FIELD_REQUIRED", "expected_draft_revision"),
        (definitions.update(nothing_written, 2, clear_fields=["steps"]), "FIELD_INVALID", "clear_fields[0]"),
        (definitions.update(nothing_written, 2, title="x", clear_fields=["title"]), "FIELDS_EXCLUSIVE", "title"),
        (definitions.publish(nothing_written, reason="x" * 1_001), "FIELD_INVALID", "reason"),
        (definitions.delete_draft(nothing_written, reason="x" * 1_001), "FIELD_INVALID", "reason"),
        (definitions.archive(nothing_written, reason="nul\0"), "FIELD_INVALID", "reason"),
        (definitions.duplicate(nothing_written, ""), "FIELD_REQUIRED", "family_slug"),
        (definitions.validate(), "FIELD_REQUIRED", "definition"),
        (definitions.get(nothing_written, view=9), "FIELD_INVALID", "view"),
    ):
        refusal = await refused(call)
        assert (refusal.code, refusal.reason, refusal.metadata["field"]) == ("INVALID_ARGUMENT", reason, field)
    for slug in ("Order", "a" * 3_000, " a "):
        refusal = await refused(definitions.duplicate(nothing_written, slug))
        assert (refusal.reason, refusal.violations[0].path) == ("DEFINITION_INVALID", "family_slug")


async def test_6000_operations_are_taken(definitions: Definitions) -> None:
    """The limit itself, within the time of a call."""
    draft = (await definitions.create()).data
    operations: list[dict[str, Any]] = [
        {"addStep": {"ref": "x", "type": 1, "action": "noop:noop"}},
        {"removeStep": {"ref": "x"}},
    ] * 3_000
    assert (await definitions.update(draft.id, 1, *operations)).data.draft_revision == 2
