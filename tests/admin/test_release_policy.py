"""AdminService: the tenant's release policy (T4)."""

from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import admin_service_pb2 as api
from ductor.workflow.v1.admin_service_pb2_grpc import AdminServiceStub
from ductord.admin.service import SERVICE
from tests.conftest import Database
from tests.support.books import TENANT
from tests.support.edges import Edges, as_tenant, refusal, serving

OFF, REQUIRED = api.RELEASE_MODE_OFF, api.RELEASE_MODE_REQUIRED


@pytest.fixture
async def edges(database: Database) -> AsyncIterator[Edges]:
    """The admin service."""
    async with serving(database, [SERVICE], pool_max_size=2) as running:
        yield running


async def get(edges: Edges, tenant: str = TENANT) -> Any:
    """GetReleasePolicy."""
    stub = AdminServiceStub(edges.channel)
    return await stub.GetReleasePolicy(api.GetReleasePolicyRequest(), metadata=as_tenant(tenant), timeout=60)


async def put(edges: Edges, tenant: str = TENANT, **fields: Any) -> Any:
    """SetReleasePolicy."""
    stub = AdminServiceStub(edges.channel)
    return await stub.SetReleasePolicy(api.SetReleasePolicyRequest(**fields), metadata=as_tenant(tenant), timeout=60)


async def test_t4_a_policy_is_kept_per_tenant(edges: Edges) -> None:
    """T4, TN-01: off until it is set; what is set replaces what was, and is one tenant's alone."""
    answer = await get(edges)
    assert (answer.data.mode, list(answer.data.live_release_ids), answer.data.updated_by) == (OFF, [], "")
    assert not answer.data.HasField("update_time")
    assert answer.metadata.HasField("fetched_at")
    told = await put(edges, mode=REQUIRED, live_release_ids=["blue", "green"])
    assert (told.data.mode, list(told.data.live_release_ids)) == (REQUIRED, ["blue", "green"])
    assert (await get(edges)).data == told.data
    assert told.data.updated_by == "anonymous"
    assert told.data.HasField("update_time")
    assert (await get(edges, "other")).data.mode == OFF
    await put(edges, mode=REQUIRED, live_release_ids=["red"])
    assert list((await get(edges)).data.live_release_ids) == ["red"]
    await put(edges, mode=OFF)
    assert ((await get(edges)).data.mode, list((await get(edges)).data.live_release_ids)) == (OFF, [])


async def test_c8_every_change_is_in_the_audit_trail(edges: Edges, database: Database) -> None:
    """C8: who, why, in which call, and what it was set to."""
    await put(edges, mode=REQUIRED, live_release_ids=["blue"], reason="wave 2", request_id="q1")
    owner = await asyncpg.connect(database.owner)
    [row] = await owner.fetch("select * from eec_workflow_audit")
    await owner.close()
    assert (row["tenant_id"], row["actor"], row["action"], row["target"]) == (
        TENANT, "anonymous", "set_release_policy", f"tenant:{TENANT}",
    )  # fmt: skip
    assert (row["reason"], row["request_id"], row["outcome"]) == ("wave 2", "q1", "applied")
    assert row["detail"] == '{"mode": "required", "live_release_ids": ["blue"]}'


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({}, "FIELD_REQUIRED", "mode"),
        ({"mode": 7}, "FIELD_INVALID", "mode"),
        ({"mode": REQUIRED}, "FIELD_INVALID", "live_release_ids"),
        ({"mode": OFF, "live_release_ids": [""]}, "FIELD_INVALID", "live_release_ids[0]"),
        ({"mode": OFF, "live_release_ids": ["a", "a"]}, "FIELD_DUPLICATE", "live_release_ids[1]"),
        ({"mode": OFF, "live_release_ids": ["é" * 65]}, "FIELD_INVALID", "live_release_ids[0]"),
        ({"mode": OFF, "live_release_ids": ["a\0"]}, "FIELD_INVALID", "live_release_ids[0]"),
        ({"mode": OFF, "live_release_ids": [str(n) for n in range(101)]}, "BATCH_TOO_LARGE", "live_release_ids"),
        ({"mode": OFF, "reason": "r" * 1001}, "FIELD_INVALID", "reason"),
        ({"mode": OFF, "request_id": "r" * 257}, "FIELD_INVALID", "request_id"),
    ],
)
async def test_t4_what_is_no_policy_changes_nothing(
    fields: dict[str, Any], reason: str, field: str, edges: Edges
) -> None:
    """T4: refused with its reason and field; the policy stays as it was."""
    await put(edges, mode=REQUIRED, live_release_ids=["blue"])
    answer = await refusal(put(edges, **fields))
    assert (answer.reason, answer.metadata["field"]) == (reason, field)
    assert list((await get(edges)).data.live_release_ids) == ["blue"]
