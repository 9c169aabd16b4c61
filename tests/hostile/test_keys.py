"""Keys under attack: strangers who share a host or know a tenant's name, callers who say two things, people who use each other's request ids (N1, E2)."""

import asyncio
import io
import logging
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio

from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from ductor.workflow.v1.workflow_signal_service_pb2_grpc import WorkflowSignalServiceStub
from ductord.db.ids import new_id
from ductord.model.keys import ADMIN, TASKS, WORKFLOW_READ
from ductord.rpc import logs
from ductord.rpc.errors import refusal_from
from ductord.rpc.host import hosting
from ductord.worker.service import SERVICE as WORKER
from tests.access.world import World, reason_of, suite
from tests.conftest import Cluster
from tests.rpc.echo import loopback
from tests.support.api import Api
from tests.support.edges import refusal
from tests.support.keys import bearer, minted

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("hostile_keys")]

PATH = "/api/workflows/runs"
ASKING: dict[str, Any] = {
    "family_slug": "asking",
    "title": "asking",
    "steps": [{"ref": "two", "type": "approval", "approval": {"required": 2}}],
    "edges": [],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(postgres: Cluster) -> AsyncIterator[World]:
    """A suite that takes few failures; each test has a tenant of its own."""
    with postgres.database() as database:
        async with suite(database, key_attempts=2) as running:
            yield running


@pytest.fixture
def tenant() -> str:
    """A tenant that nobody has heard of."""
    return f"t{new_id()}"


def forged(tenant_id: str) -> str:
    """A token that has the form of one."""
    return f"dk_{tenant_id}.{secrets.token_hex(16)}.{secrets.token_urlsafe(32)}"


async def test_n1_strangers_keep_no_good_key_out(world: World, tenant: str) -> None:
    """All come from one host, for one tenant, and go on: who comes with a good key that no process has met is served at once, over gRPC and HTTP."""
    keys = [await minted(world.database, tenant, WORKFLOW_READ) for _ in range(2)]
    over = asyncio.Event()
    refused: set[str] = set()

    async def attack() -> None:
        while not over.is_set():
            refused.add(await reason_of(world, forged(tenant)))
            await world.http.get(PATH, headers={"authorization": f"Bearer {forged(tenant)}"})

    attackers = [asyncio.create_task(attack()) for _ in range(3)]
    async with asyncio.timeout(60):
        while "TOO_MANY_ATTEMPTS" not in refused:  # noqa: ASYNC110  # buckets tell nobody that they are empty
            await asyncio.sleep(0.01)
    assert await reason_of(world, keys[0].token) == ""
    answer = await world.http.get(PATH, headers={"authorization": f"Bearer {keys[1].token}"})
    assert answer.status_code == 200
    over.set()
    await asyncio.gather(*attackers)


async def test_n1_a_looping_neighbour_on_http_keeps_no_good_key_out(world: World, tenant: str) -> None:
    """One program with a key that is no good any more, on the machine of somebody whose key is: the gateway has seen neither."""
    good = await minted(world.database, tenant, WORKFLOW_READ)
    bad = forged(tenant)
    answers = [await world.http.get(PATH, headers={"authorization": f"Bearer {bad}"}) for _ in range(10)]
    assert {answer.status_code for answer in answers} <= {401, 429}
    assert answers[-1].status_code == 429
    assert (await world.http.get(PATH, headers={"authorization": f"Bearer {good.token}"})).status_code == 200


async def test_n1_forged_keys_have_no_bodies_read_for_ever(world: World, tenant: str) -> None:
    """A body that is none is told before a service has judged the key: that too is an attempt, unless the key is one that a service has taken."""
    good = await minted(world.database, tenant)

    async def post(token: str) -> int:
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        return (await world.http.post("/api/workflow-definitions", headers=headers, content=b"{{{")).status_code

    assert (await world.http.get(PATH, headers={"authorization": f"Bearer {good.token}"})).status_code == 200
    assert {await post(forged(tenant)) for _ in range(60)} == {400, 429}
    assert {await post(good.token) for _ in range(20)} == {400}


async def test_n1_who_says_two_things_has_said_nothing(world: World, tenant: str) -> None:
    """Two credentials that differ, a credential in another header, a guess at the process's own: none lets in, none widens what a good key may."""
    ours = await minted(world.database, tenant, WORKFLOW_READ)
    theirs = await minted(world.database, f"{tenant}-x", WORKFLOW_READ)
    stub = WorkflowServiceStub(world.channel)
    good, other = f"Bearer {ours.token}", f"Bearer {theirs.token}"

    async def told(*metadata: tuple[str, str | bytes]) -> str:
        try:
            await stub.ListRuns(reads.ListRunsRequest(), metadata=metadata, timeout=60)
        except grpc.aio.AioRpcError as error:
            return refusal_from(error).reason
        return ""

    assert await told(("authorization", good)) == ""
    assert await told(("authorization", good), ("authorization", good)) == ""
    assert await told(("authorization", good), ("x-ductor-scope", "platform"), ("x-tenant-id-bin", b"other")) == ""
    cases: tuple[tuple[tuple[tuple[str, str | bytes], ...], str], ...] = (
        ((("authorization", good), ("authorization", other)), "CREDENTIAL_INVALID"),
        ((("authorization", good), ("authorization", "")), "CREDENTIAL_INVALID"),
        ((("authorization", f"{good}, {other}"),), "CREDENTIAL_INVALID"),
        ((("authorization", f"Bearer {ours.token.replace(tenant, f'{tenant}-x')}"),), "CREDENTIAL_INVALID"),
        ((("authorization", f"Bearer {ours.token.replace(tenant, '*')}"),), "CREDENTIAL_INVALID"),
        ((("authorization-bin", good.encode()),), "CREDENTIAL_REQUIRED"),
        ((("x-ductor-inside", ""), ("x-tenant-id", tenant)), "CREDENTIAL_REQUIRED"),
        ((("x-ductor-inside", "0"), ("x-tenant-id", tenant)), "CREDENTIAL_REQUIRED"),
        ((("authorization", good), ("x-tenant-id", "")), "TENANT_MISMATCH"),
        ((("authorization", good), ("x-tenant-id", tenant), ("x-tenant-id", f"{tenant}-x")), "TENANT_MISMATCH"),
    )
    for metadata, reason in cases:
        # Who fails so often is told so instead, now and then.
        assert await told(*metadata) in {reason, "TOO_MANY_ATTEMPTS" if reason == "CREDENTIAL_INVALID" else reason}


async def test_n2_a_worker_that_is_turned_away_is_not_ready(world: World, tmp_path: Path) -> None:
    """A roll-out with a key that is no good, or lacks the scope, stops at its first worker; with a good one in the file it is ready without a restart."""
    file = tmp_path / "key"
    file.write_text(forged("*"))
    settings = loopback(dispatch_target=world.host.grpc_address.reachable, api_key_file=str(file), poll_ms=20)
    async with hosting([WORKER], settings) as host, asyncio.timeout(60):

        async def until(problems: list[str]) -> None:
            while await host.health.problems() != problems:  # noqa: ASYNC110  # polls tell nobody how they ended
                await asyncio.sleep(0.05)

        await until(["worker.dispatch"])
        file.write_text((await minted(world.database, "*", ADMIN)).token)
        await until(["worker.dispatch"])
        file.write_text((await minted(world.database, "*", TASKS)).token)
        await until([])


async def test_n1_no_log_quotes_a_credential_that_is_no_text(
    world: World, tenant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a caller sends as its key and is none, because of one byte, is not written down by the library either."""
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    root, ours = logging.getLogger(), logging.getLogger("ductor")
    before, levels = root.handlers[:], (root.level, ours.level)
    try:
        logs.configure(world.host.settings)
        logging.getLogger("grpc._cython.cygrpc").error("Invalid encoding on %s", b"Bearer dk_\xff")
        logging.getLogger("grpc._cython.cygrpc").error("Something else")
    finally:
        root.handlers[:] = before
        root.setLevel(levels[0])
        ours.setLevel(levels[1])
    assert "Something else" in stream.getvalue()
    assert "Bearer" not in stream.getvalue()


async def test_e2_two_who_use_one_request_id_are_two(world: World, tenant: str) -> None:
    """E2: what ann has said is not taken for what bob says, word for word the same and under the same id; nor does a portal pass for a key by a capital."""
    ann, bob = [await minted(world.database, tenant, name=name) for name in ("ann", "bob")]
    portal = await minted(world.database, tenant, name="portal", acts_for_others=True)
    async with Api(world.host.grpc_address.reachable, tenant) as api:
        api.metadata = bearer(ann.token)
        [run] = await api.start_many(await api.publish(ASKING), 1)
    stub = WorkflowSignalServiceStub(world.channel)

    def approve(key: Any, name: str = "") -> Any:
        request = signals.ApproveStepRequest(run_id=run, step_ref="two", approver_id=name, request_id="yes")
        return stub.ApproveStep(request, metadata=bearer(key.token), timeout=60)

    await approve(ann)
    await approve(ann)
    assert (await refusal(approve(bob))).reason == "REQUEST_MISMATCH"
    for name in ("Key:ann", " key:ann", "SYSTEM:timeout"):
        request = signals.ApproveStepRequest(run_id=run, step_ref="two", approver_id=name)
        told = await refusal(stub.ApproveStep(request, metadata=bearer(portal.token), timeout=60))
        assert told.reason == "APPROVER_NOT_ALLOWED"
