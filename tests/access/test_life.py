"""A key from its making to its end, as its callers see it: revoked, expired, rotated, misused; and a database that is away (N1, N2)."""

import asyncio
import itertools
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest

from ductor.workflow.v1 import admin_service_pb2 as admin
from ductor.workflow.v1 import task_service_pb2 as tasks
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductor.workflow.v1.admin_service_pb2_grpc import AdminServiceStub
from ductor.workflow.v1.task_service_pb2_grpc import TaskServiceStub
from ductor.workflow.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from ductor.workflow.v1.workflow_trigger_service_pb2_grpc import WorkflowTriggerServiceStub
from ductord.access.trail import TURN_S, Trail
from ductord.model.keys import ADMIN, TASKS, WORKFLOW_READ
from tests.access.world import World, list_runs, reason_of, until_reason
from tests.rpc.echo import until
from tests.support.api import Api
from tests.support.edges import refusal
from tests.support.keys import as_owner, bearer, minted

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.xdist_group("access")]

WAITING: dict[str, Any] = {
    "family_slug": "waiting",
    "title": "waiting",
    "steps": [{"ref": "ask", "type": "approval"}],
    "edges": [],
    "checkpoints": [{"name": "asked", "step_refs": ["ask"]}],
}


async def revoke(world: World, key_id: str, by: str) -> admin.ApiKey:
    """RevokeApiKey."""
    stub = AdminServiceStub(world.channel)
    answer = await stub.RevokeApiKey(admin.RevokeApiKeyRequest(key_id=key_id, reason="lost"), metadata=bearer(by))
    return answer.data


async def waiting_run(world: World, tenant_id: str) -> tuple[str, str]:
    """(definition, run) that wait for somebody."""
    key = await minted(world.database, tenant_id)
    async with Api(world.host.grpc_address.reachable, tenant_id) as api:
        api.metadata = bearer(key.token)
        definition = await api.publish(WAITING)
        [run] = await api.start_many(definition, 1)
    return definition, run


async def test_n1_a_revocation_ends_calls_and_what_waits(world: World, tenant: str) -> None:
    """N1: within the time that a key is cached: the next call, a stream, a poll and a wait for a checkpoint; the answer is the same for all."""
    definition, run = await waiting_run(world, tenant)
    chief = await minted(world.database, tenant, ADMIN)
    lost = await minted(world.database, tenant)
    metadata = bearer(lost.token)
    watch = WorkflowServiceStub(world.channel).WatchRun(reads.WatchRunRequest(run_id=run), metadata=metadata)
    assert (await watch.read()).run_id == run
    poll = tasks.PollTasksRequest(queues=["q"], actions=["a:b"], worker_id="w", max_tasks=1, wait_ms=25_000)
    polling = asyncio.ensure_future(
        refusal(TaskServiceStub(world.channel).PollTasks(poll, metadata=metadata, timeout=60))
    )
    trigger = triggers.TriggerWorkflowRequest(
        definition_id=definition, wait_for_checkpoint=True, checkpoint="asked", checkpoint_timeout_seconds=25
    )
    waiting = asyncio.ensure_future(
        refusal(WorkflowTriggerServiceStub(world.channel).TriggerWorkflow(trigger, metadata=metadata, timeout=60))
    )
    begun = asyncio.Event()
    page = asyncio.ensure_future(watched_page(world, run, lost.token, begun))
    pipeline = world.host.server._pipeline
    await until(lambda: len(pipeline.going_on) == 4)
    async with asyncio.timeout(20):
        await begun.wait()  # before its first event the page would be told by its status
    shown = await revoke(world, lost.key.key_id, chief.token)
    assert (shown.status, shown.revoked_by) == (
        admin.API_KEY_STATUS_REVOKED,
        f"key:{chief.key.name}",
    )
    async with asyncio.timeout(20):
        await until_reason(world, lost.token, "CREDENTIAL_INVALID")
        for refused in (await polling, await waiting, await refusal(_to_its_end(watch))):
            assert (refused.code, refused.reason) == ("UNAUTHENTICATED", "CREDENTIAL_INVALID")
        assert "CREDENTIAL_INVALID" in await page
    assert not pipeline.going_on
    assert list((await list_runs(world, (await minted(world.database, tenant)).token)).data)


async def _to_its_end(stream: Any) -> None:
    while await stream.read() is not grpc.aio.EOF:
        pass


async def watched_page(world: World, run: str, token: str, begun: asyncio.Event) -> str:
    """The text of a run's stream of server-sent events, to its end. `begun`: set when the stream has."""
    path, headers = f"/api/workflows/runs/{run}/watch", {"authorization": f"Bearer {token}"}
    async with world.http.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        begun.set()
        return (await answer.aread()).decode()


async def test_n1_the_databases_clock_says_when_a_key_is_over(world: World, tenant: str) -> None:
    """N1: the machine's own clock has no say; keys without an end have none."""
    hour = datetime.now(UTC) + timedelta(hours=1)
    mortal = await minted(world.database, tenant, expire_time=hour)
    immortal = await minted(world.database, tenant)
    await list_runs(world, mortal.token)
    clock = "create or replace function eec_now() returns timestamptz language sql stable parallel safe as 'select statement_timestamp(){}'"
    await as_owner(world.database, clock.format(" + interval ''2 hours''"))
    try:
        await until_reason(world, mortal.token, "CREDENTIAL_INVALID")
        await list_runs(world, immortal.token)
    finally:
        await as_owner(world.database, clock.format(""))
    await until_reason(world, mortal.token, "")


async def test_n1_both_keys_are_good_while_they_overlap(world: World, tenant: str) -> None:
    """N1: a rotation locks nobody out; without an overlap the old key ends at once; a name is shared by the two and no third."""
    chief = await minted(world.database, tenant, ADMIN)
    old = await minted(world.database, tenant, WORKFLOW_READ, name="app", groups=["ops"])
    stub = AdminServiceStub(world.channel)

    async def rotate(key_id: str, **fields: Any) -> admin.RotateApiKeyResponse:
        request = admin.RotateApiKeyRequest(key_id=key_id, **fields)
        return await stub.RotateApiKey(request, metadata=bearer(chief.token), timeout=60)

    first = await rotate(old.key.key_id)
    assert (first.data.name, list(first.data.scopes), list(first.data.groups)) == ("app", [WORKFLOW_READ], ["ops"])
    assert (first.data.rotated_from, first.replaced.rotated_to) == (old.key.key_id, first.data.key_id)
    left = first.replaced.expire_time.ToDatetime(UTC) - first.metadata.fetched_at.ToDatetime(UTC)
    assert timedelta(hours=23) < left <= timedelta(hours=24)
    for token in (old.token, first.token):
        await list_runs(world, token)
    assert (await refusal(rotate(old.key.key_id))).reason == "API_KEY_ENDED"
    second = await rotate(first.data.key_id, overlap_seconds=0)
    await until_reason(world, first.token, "CREDENTIAL_INVALID")
    await list_runs(world, second.token)
    await list_runs(world, old.token)
    third = admin.CreateApiKeyRequest(name="app", scopes=[WORKFLOW_READ])
    taken = await refusal(stub.CreateApiKey(third, metadata=bearer(chief.token), timeout=60))
    assert (taken.reason, taken.metadata) == ("API_KEY_NAME_TAKEN", {"key_id": second.data.key_id})


async def test_n2_keys_of_the_platform_serve_every_tenant(world: World, tenant: str) -> None:
    """N2: polls for all, for one where it names one; a tenant's worker gets its own alone, whatever it says of itself."""
    _, run = await waiting_run(world, tenant)
    ours = await minted(world.database, "*", TASKS)
    stub = TaskServiceStub(world.channel)
    poll = tasks.PollTasksRequest(queues=["q"], actions=["a:b"], worker_id="w", max_tasks=1)
    for metadata in (bearer(ours.token), bearer(ours.token, tenant)):
        await stub.PollTasks(poll, metadata=metadata, timeout=60)
    assert (
        await refusal(stub.PollTasks(poll, metadata=bearer(ours.token, "a b"), timeout=60))
    ).reason == "TENANT_INVALID"
    theirs = await minted(world.database, tenant, TASKS)
    lying = (*bearer(theirs.token), ("x-ductor-scope", "platform"))
    await stub.PollTasks(poll, metadata=lying, timeout=60)
    assert (
        await refusal(stub.PollTasks(poll, metadata=(*bearer(theirs.token, "other"),), timeout=60))
    ).reason == "TENANT_MISMATCH"
    watched = WorkflowServiceStub(world.channel).GetRun(
        reads.GetRunRequest(run_id=run), metadata=bearer(ours.token, tenant)
    )
    assert (await refusal(watched)).reason == "PERMISSION_MISSING"


async def test_n1_refused_attempts_are_in_the_audit_trail(
    world: World, tenant: str, caplog: pytest.LogCaptureFixture
) -> None:
    """N1, C8: of a key that exists, in its tenant's trail, one line for many; in the log too; neither has a token in it. And when a key was used last."""
    key = await minted(world.database, tenant, WORKFLOW_READ, name="app")
    wrong = key.token.rpartition(".")[0] + "." + "A" * 43
    for _ in range(5):
        assert await reason_of(world, wrong) == "CREDENTIAL_INVALID"
    await list_runs(world, key.token)
    assert (await refusal(list_runs(world, key.token, "other"))).reason == "TENANT_MISMATCH"
    with caplog.at_level("WARNING", "ductor.security"):
        await _turn(world)
    stub = WorkflowServiceStub(world.channel)
    request = reads.ListAuditRequest(action="authenticate")
    lines = (await stub.ListAudit(request, metadata=bearer(key.token), timeout=60)).data
    told = {line.detail.fields["reason"].string_value: line for line in lines}
    assert set(told) == {"wrong_secret", "tenant_mismatch"}
    line = told["wrong_secret"]
    assert (line.actor, line.target, line.outcome) == ("key:app", f"api_key:{key.key.key_id}", "refused")
    assert line.detail.fields["count"].number_value == 5
    assert line.detail.fields["peer"].string_value == "127.0.0.1"
    said = [record for record in caplog.records if getattr(record, "tenant_id", "") == tenant]
    assert {(record.reason, record.count) for record in said} == {("wrong_secret", 5), ("tenant_mismatch", 1)}
    assert not [
        record for record in caplog.records if "A" * 43 in record.getMessage() or key.token in record.getMessage()
    ]
    assert await reason_of(world, wrong) == "CREDENTIAL_INVALID"
    await _turn(world)
    again = (await stub.ListAudit(request, metadata=bearer(key.token), timeout=60)).data
    assert len(again) == 2, "the same is written once a minute"
    [row] = await as_owner(
        world.database, "select last_use_time from eec_workflow_api_key where key_id = $1", key.key.key_id
    )
    assert row["last_use_time"] is not None


async def _turn(world: World) -> None:
    """A turn of the loop that writes: here and now instead of within a second."""
    keys: Any = world.host.server._pipeline.authenticator
    while await keys.turn() is not None:
        pass


async def test_kb_02_what_is_put_down_keeps_its_loop_from_nothing(world: World) -> None:
    """KB-02: where every transaction waits long for a connection, the loop that notes the use of keys says between them that it lives."""
    pool = world.host.server._pipeline.authenticator._trail._pool  # type: ignore[union-attr]
    seconds = itertools.count(0.0, TURN_S)
    trail = Trail(pool, lambda: next(seconds))
    for number in range(2):
        trail.used(f"tenant-{number}", str(uuid.uuid4()))
    assert [await trail.turn() for _ in range(3)] == [0.0, 0.0, None]


async def test_n1_a_flood_of_bad_keys_is_limited_and_holds_nobody_up(world: World, tenant: str) -> None:
    """N1: after twenty failures look-ups one by one; who has a key that is known is served all the while, and so is another tenant's new key."""
    good = await minted(world.database, tenant, WORKFLOW_READ)
    await list_runs(world, good.token)
    before = _lookups(world)

    async def bad(number: int) -> str:
        token = f"dk_{tenant}.{number:032x}.{'A' * 43}"
        answer = await refusal(list_runs(world, token))
        assert answer.code in ("UNAUTHENTICATED", "RESOURCE_EXHAUSTED")
        assert (answer.retry_after_ms is None) == (answer.reason == "CREDENTIAL_INVALID")
        return answer.reason

    async def serve() -> None:
        for _ in range(30):
            await list_runs(world, good.token)

    reasons, _ = await asyncio.gather(_all([bad(number) for number in range(150)]), serve())
    assert 20 <= reasons.count("CREDENTIAL_INVALID") <= 40
    assert reasons.count("TOO_MANY_ATTEMPTS") >= 110
    assert _lookups(world) - before <= 80, "those in the lane are looked up as well"
    other = await minted(world.database, f"{tenant}-x", WORKFLOW_READ)
    await list_runs(world, other.token)


async def _all(calls: list[Any]) -> list[str]:
    return list(await asyncio.gather(*calls))


def _lookups(world: World) -> float:
    text = world.host.metrics.exposition().decode()
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith('ductor_auth_lookups_total{result="unknown"')
    )


async def test_n1_the_gateway_limits_by_its_own_callers(world: World, tenant: str) -> None:
    """N1: 429 with how long to wait, before a service is asked; who has a key that a service has taken is served."""
    good = await minted(world.database, tenant, WORKFLOW_READ)
    path = "/api/workflows/runs"

    async def get(token: str) -> Any:
        return await world.http.get(path, headers={"authorization": f"Bearer {token}"})

    assert (await get(good.token)).status_code == 200
    answers = [await get(f"dk_{tenant}.{number:032x}.{'A' * 43}") for number in range(60)]
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) == {401, 429}
    assert statuses[:19] == [401] * 19
    assert int(answers[-1].headers["retry-after"]) >= 1
    assert (await get(good.token)).status_code == 200


async def test_n1_while_the_database_is_away_nobody_is_let_in(world: World, tenant: str) -> None:
    """N1: UNAVAILABLE, which may be repeated, for a good key as for a bad one; what is watched goes on, and all is well when it is back."""
    _, run = await waiting_run(world, tenant)
    key = await minted(world.database, tenant)
    watch = WorkflowServiceStub(world.channel).WatchRun(reads.WatchRunRequest(run_id=run), metadata=bearer(key.token))
    assert (await watch.read()).run_id == run
    await list_runs(world, key.token)
    name = world.database.name
    await as_owner(world.database, f'alter database "{name}" connection limit 0')
    try:
        end = "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and usename like 'ductor%'"
        await as_owner(world.database, end, name)
        await until_reason(world, key.token, "DATABASE_UNAVAILABLE")
        unknown = await refusal(list_runs(world, f"dk_{tenant}.{'0' * 32}.{'A' * 43}"))
        assert (unknown.code, unknown.reason) == ("UNAVAILABLE", "DATABASE_UNAVAILABLE")
        assert unknown.retry_after_ms
    finally:
        await as_owner(world.database, f'alter database "{name}" connection limit -1')
    await until_reason(world, key.token, "")
    assert not watch.done()
    watch.cancel()
