"""Who is let in by a key, and who is not (N1)."""

from typing import Any

from ductor.workflow.v1 import admin_service_pb2 as admin
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1.admin_service_pb2_grpc import AdminServiceStub
from ductord.model.keys import ADMIN, PLATFORM_TENANT, TASKS, WORKFLOW_READ
from tests.conftest import Database
from tests.support.edges import Edges, as_tenant, refusal
from tests.support.keys import bearer, minted


def list_runs(edges: Edges, metadata: Any) -> Any:
    """ListRuns."""
    return edges.reads.ListRuns(reads.ListRunsRequest(), metadata=metadata, timeout=60)


async def test_n1_a_key_says_who_calls(edges: Edges, database: Database) -> None:
    key = await minted(database, "acme", WORKFLOW_READ)
    assert list((await list_runs(edges, bearer(key.token))).data) == []
    assert list((await list_runs(edges, bearer(key.token, "acme"))).data) == []
    assert (await refusal(list_runs(edges, bearer(key.token, "other")))).reason == "TENANT_MISMATCH"
    assert (await refusal(list_runs(edges, ()))).reason == "CREDENTIAL_REQUIRED"
    assert (await refusal(list_runs(edges, as_tenant("acme")))).reason == "CREDENTIAL_REQUIRED"
    assert (await refusal(list_runs(edges, bearer("dk_acme.no.no")))).reason == "CREDENTIAL_INVALID"
    narrow = await minted(database, "acme", ADMIN)
    told = await refusal(list_runs(edges, bearer(narrow.token)))
    assert (told.reason, told.metadata["permission"]) == ("PERMISSION_MISSING", WORKFLOW_READ)


async def test_n1_keys_are_kept_by_the_admin_service(edges: Edges, database: Database) -> None:
    key = await minted(database, "acme", ADMIN, name="first")
    stub = AdminServiceStub(edges.channel)
    request = admin.CreateApiKeyRequest(name="ci", scopes=[WORKFLOW_READ], reason="for ci")
    made = await stub.CreateApiKey(request, metadata=bearer(key.token), timeout=60)
    assert (made.data.created_by, made.data.status) == ("key:first", admin.API_KEY_STATUS_ACTIVE)
    assert made.token.startswith(made.data.token_prefix)
    assert list((await list_runs(edges, bearer(made.token))).data) == []
    listed = await stub.ListApiKeys(admin.ListApiKeysRequest(), metadata=bearer(key.token), timeout=60)
    assert [each.name for each in listed.data] == ["ci", "first"]
    await stub.RevokeApiKey(admin.RevokeApiKeyRequest(key_id=made.data.key_id), metadata=bearer(key.token), timeout=60)


async def test_n2_a_key_of_the_platform_serves_tenants_that_it_names(edges: Edges, database: Database) -> None:
    key = await minted(database, PLATFORM_TENANT)
    stub = AdminServiceStub(edges.channel)
    request = admin.CreateApiKeyRequest(name="ci", scopes=[TASKS])
    assert (await refusal(stub.CreateApiKey(request, metadata=bearer(key.token)))).reason == "TENANT_REQUIRED"
    assert (await stub.CreateApiKey(request, metadata=bearer(key.token, "acme"))).token.startswith("dk_acme.")
    assert (await refusal(list_runs(edges, bearer(key.token, "acme")))).reason == "PERMISSION_MISSING"
