"""TN-01: another tenant's ids are answered as if nobody had them, by every RPC of the service; the list of RPCs is the contract's own."""

from typing import Any

import pytest
from google.protobuf.message_factory import GetMessageClass

from ductor.workflow.v1 import workflow_definition_service_pb2 as api
from ductord.model.errors import Refusal
from tests.definition.client import Definitions, order, refused
from tests.definition.conftest import Rows

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVICE = api.DESCRIPTOR.services_by_name["WorkflowDefinitionService"]
METHODS = sorted(SERVICE.methods_by_name)
RANDOM = "01234567-89ab-7def-8123-456789abcdef"
WITHOUT_AN_ID = {"CreateWorkflowDefinition", "ListWorkflowDefinitions"}


def request_of(method: str) -> Any:
    """The request class of an RPC."""
    return GetMessageClass(SERVICE.methods_by_name[method].input_type)


def request_for(method: str, any_id: str) -> Any:
    """A good request of any RPC that takes an id."""
    request = request_of(method)()
    setattr(request, "workflow_id" if "workflow_id" in request.DESCRIPTOR.fields_by_name else "id", any_id)
    if "environment" in request.DESCRIPTOR.fields_by_name:
        request.environment = "prod"
    if "variables_json" in request.DESCRIPTOR.fields_by_name:
        request.variables_json = '{"limit": 7}'
    if "expected_draft_revision" in request.DESCRIPTOR.fields_by_name:
        request.expected_draft_revision = 2
    if "family_slug" in request.DESCRIPTOR.fields_by_name:
        request.family_slug = "stolen"
    return request


def as_told(refusal: Refusal) -> tuple[Any, ...]:
    """All that a caller sees of a refusal."""
    return refusal.code, refusal.reason, refusal.message, refusal.metadata, refusal.violations, refusal.retry_after_ms


@pytest.mark.parametrize("method", [method for method in METHODS if method not in WITHOUT_AN_ID])
async def test_a_foreign_id_is_a_random_one(definitions: Definitions, rows: Rows, method: str) -> None:
    """Definition ids, version ids and, where it is a name, the slug; nothing of the owner's changes."""
    draft = (await definitions.create()).data
    version = (await definitions.publish(draft.id)).published
    await definitions.set_override(draft.id, "prod", {"limit": 5})
    stranger = definitions.of(f"{definitions.tenant}-x")
    before = await rows.everything()
    random = as_told(await refused(stranger.call(method, request_for(method, RANDOM))))
    assert random[:2] == ("NOT_FOUND", "DEFINITION_NOT_FOUND")
    for foreign in (draft.id, version.id, draft.id.upper(), *(["order"] if method.startswith("Export") else [])):
        assert as_told(await refused(stranger.call(method, request_for(method, foreign)))) == random
    assert await rows.everything() == before
    assert not (await stranger.list()).data


async def test_slugs_and_lists_are_each_tenants_own(definitions: Definitions) -> None:
    """The same slug is another family; lists show one's own; a taken slug says nothing of strangers."""
    stranger = definitions.of(f"{definitions.tenant}-x")
    mine = (await definitions.create()).data
    theirs = (await stranger.create(order(title="Theirs"))).data
    assert mine.id != theirs.id
    assert [entry.title for entry in (await definitions.list(family_slug="order")).data] == ["Order"]
    assert [entry.title for entry in (await stranger.list(q="t")).data] == ["Theirs"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ((), "TENANT_REQUIRED"),
        ((("x-tenant-id", ""),), "TENANT_INVALID"),
        ((("x-tenant-id", "a b"),), "TENANT_INVALID"),
        ((("x-tenant-id", "a" * 65),), "TENANT_INVALID"),
        ((("x-tenant-id", "a"), ("x-tenant-id", "b")), "TENANT_INVALID"),
        ((("x-ductor-scope", "platform"),), "TENANT_REQUIRED"),
    ],
)
async def test_every_call_names_one_tenant(
    definitions: Definitions, method: str, metadata: tuple[tuple[str, str], ...], reason: str
) -> None:
    """N1: required when authentication is off, with no default and no way around."""
    request = request_of(method)()
    refusal = await refused(getattr(definitions.stub, method)(request, metadata=metadata, timeout=60))
    assert (refusal.code, refusal.reason) == ("INVALID_ARGUMENT", reason)
