"""T4: which callers may start runs. The policy is read in the transaction that starts, so a change counts for every call that begins after it."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import admin_service_pb2 as api
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductor.workflow.v1.admin_service_pb2_grpc import AdminServiceStub
from ductord.admin.service import SERVICE as ADMIN
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.support.books import TENANT, chain
from tests.support.edges import Catalogue, Edges, as_tenant, refusal, serving

Item = triggers.BatchTriggerItem
OFF, REQUIRED = api.RELEASE_MODE_OFF, api.RELEASE_MODE_REQUIRED


@pytest.fixture
async def edges(database: Database) -> AsyncIterator[Edges]:
    """Trigger and admin, each with its own login."""
    async with serving(database, [TRIGGER, ADMIN], pool_max_size=2) as running:
        yield running


async def policy(edges: Edges, mode: Any, *releases: str, tenant: str = TENANT) -> None:
    """Set the policy."""
    request = api.SetReleasePolicyRequest(mode=mode, live_release_ids=releases)
    await AdminServiceStub(edges.channel).SetReleasePolicy(request, metadata=as_tenant(tenant), timeout=60)


async def reasons(edges: Edges, definition_id: str, items: Sequence[Item]) -> list[str]:
    """Why each item of a batch was refused; empty: it started."""
    return [result.error.reason for result in await edges.batch(definition_id, items)]


async def test_t4_a_live_release_is_demanded(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """T4: off what is named is not looked at; required it must be live; nothing is written for a call that is refused."""
    definition_id = await catalogue.published()
    assert (await edges.start(definition_id, external_deployment_id="anything")).run_id
    await policy(edges, REQUIRED, "blue", "green")
    for release in ("", "red", "Blue", "blue "):
        answer = await refusal(edges.start(definition_id, external_deployment_id=release))
        assert (answer.code, answer.reason) == ("FAILED_PRECONDITION", "RELEASE_MISMATCH")
        assert answer.metadata == {"external_deployment_id": release}
    assert await owner.fetchval("select count(*) from eec_workflow_run_start") == 1
    for release in ("blue", "green"):
        assert (await edges.start(definition_id, external_deployment_id=release)).run_id
    await policy(edges, REQUIRED, "red")
    assert (await refusal(edges.start(definition_id, external_deployment_id="blue"))).reason == "RELEASE_MISMATCH"
    await policy(edges, OFF, "red")
    assert (await edges.start(definition_id)).run_id


async def test_t4_in_a_batch_each_item_speaks_for_itself(edges: Edges, catalogue: Catalogue) -> None:
    """T4: an item that names no live release touches no other."""
    definition_id = await catalogue.published()
    await policy(edges, REQUIRED, "blue")
    items = [
        Item(external_deployment_id="blue"),
        Item(),
        Item(external_deployment_id="red"),
        Item(external_deployment_id="blue"),
    ]
    assert await reasons(edges, definition_id, items) == ["", "RELEASE_MISMATCH", "RELEASE_MISMATCH", ""]


async def test_t4_a_key_that_was_used_finds_its_run_whatever_the_policy(edges: Edges, catalogue: Catalogue) -> None:
    """T1 before T4: the run is there, so nothing is started."""
    definition_id = await catalogue.published()
    first = await edges.start(definition_id, idempotency_key="k")
    await policy(edges, REQUIRED, "blue")
    again = await edges.start(definition_id, idempotency_key="k")
    assert (again.run_id, again.duplicate) == (first.run_id, True)
    items = [Item(idempotency_key="k"), Item(idempotency_key="l")]
    assert await reasons(edges, definition_id, items) == ["", "RELEASE_MISMATCH"]


async def test_t4_what_the_definition_says_is_told_first(edges: Edges, catalogue: Catalogue) -> None:
    """A caller without a release learns of a definition what any caller learns; another tenant's policy is nobody else's."""
    definition_id = await catalogue.define("orders")
    version_id = await catalogue.publish(definition_id, chain(1))
    await policy(edges, REQUIRED, "blue", tenant="other")
    assert (await edges.start(definition_id)).run_id
    await policy(edges, REQUIRED, "blue")
    await catalogue.archive(version_id)
    assert (await refusal(edges.start(definition_id))).reason == "DEFINITION_ARCHIVED"


async def test_t4_a_policy_that_changes_beside_calls(edges: Edges, catalogue: Catalogue) -> None:
    """TC, T4: each call is judged by one policy, and one that begins after the answer of a change by the new one."""
    definition_id = await catalogue.published()
    await policy(edges, REQUIRED, "r0")
    seen: list[tuple[int, str, str]] = []
    at = 0

    async def call(release: str) -> None:
        known = at
        items = [Item(external_deployment_id=release) for _ in range(5)]
        verdicts = set(await reasons(edges, definition_id, items))
        assert len(verdicts) == 1, "one batch, one policy"
        if known == at:
            seen.append((known, release, verdicts.pop()))

    async def change() -> None:
        nonlocal at
        for number in range(1, 8):
            await policy(edges, REQUIRED, f"r{number}")
            at = number
            await asyncio.gather(*(call(f"r{number - back}") for back in (0, 1, 0)))

    async def press() -> None:
        for number in range(8):
            await asyncio.gather(*(call(f"r{number}") for _ in range(3)))

    await asyncio.gather(change(), press())
    told = {(known, release): verdict for known, release, verdict in seen}
    assert all(told[(n, f"r{n}")] == "" for n in range(1, 8) if (n, f"r{n}") in told)
    await call("r7")
    await call("r6")
    assert [(release, verdict) for _, release, verdict in seen[-2:]] == [("r7", ""), ("r6", "RELEASE_MISMATCH")]
