"""An UpdateWorkflowDraft request as a value, and what it makes of a document."""

from typing import Final

import msgspec

from ductor.workflow.v1 import definition_pb2 as pb
from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductord.definition import convert
from ductord.engine.draft_ops import CLEAR_FIELDS, MAX_OPERATIONS, apply_operations
from ductord.model.jsonvalue import JSON
from ductord.rpc.errors import field_invalid, field_required, fields_exclusive, refused

_NAMES: Final = ("title", "description", "tags")
_STEP_FIELDS: Final = frozenset(pb.StepDefinition.DESCRIPTOR.fields_by_name)


class Edit(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller wants of the draft at a revision that it has read: operations in order, then the names."""

    expected_draft_revision: int
    operations: list[dict[str, JSON]]
    names: dict[str, JSON]
    cleared: tuple[str, ...]


def edit_of(request: api.UpdateWorkflowDraftRequest) -> Edit:
    """The edit that a request asks for. Raises FIELD_REQUIRED, FIELD_INVALID, FIELDS_EXCLUSIVE, BATCH_TOO_LARGE and `PayloadInvalid`."""
    if not request.HasField("expected_draft_revision"):
        raise field_required("expected_draft_revision")
    if len(request.operations) > MAX_OPERATIONS:
        message = f"operations has {len(request.operations):,} entries, the limit is {MAX_OPERATIONS:,}"
        raise refused("BATCH_TOO_LARGE", message, field="operations", limit=MAX_OPERATIONS)
    cleared = tuple(request.clear_fields)
    names = _names(request)
    for index, name in enumerate(cleared):
        if name not in _NAMES:
            raise field_invalid(f"{CLEAR_FIELDS}[{index}]", f"is one of {', '.join(_NAMES)}")
        if name in names:
            raise fields_exclusive(name, f"{CLEAR_FIELDS}[{index}]")
    operations = [_operation(operation, index) for index, operation in enumerate(request.operations)]
    return Edit(
        expected_draft_revision=request.expected_draft_revision, operations=operations, names=names, cleared=cleared
    )


def edited(document: JSON, edit: Edit) -> JSON:
    """The document after the edit, all of it or none. Raises DRAFT_OPERATION_INVALID."""
    tree = apply_operations(document, edit.operations)
    kept = {name: value for name, value in tree.items() if name not in edit.cleared}
    return kept | edit.names


def _names(request: api.UpdateWorkflowDraftRequest) -> dict[str, JSON]:
    names: dict[str, JSON] = {}
    if request.HasField("title"):
        names["title"] = request.title
    if request.HasField("description"):
        names["description"] = request.description
    if request.tags:
        names["tags"] = list(request.tags)
    return names


def _operation(operation: api.DraftOperation, index: int) -> dict[str, JSON]:
    root = f"operations[{index}]"
    name = operation.WhichOneof("operation")
    if name is None:
        raise field_required(root)
    body = convert.tree_of(getattr(operation, name), root=f"{root}.{name}")
    if name == "update_step":
        for cleared in body.get(CLEAR_FIELDS, ()):
            if cleared not in _STEP_FIELDS:
                raise field_invalid(f"{root}.{name}.{CLEAR_FIELDS}", "names a field that steps do not have")
    return {name: body}
