"""Who decides, where a key says who calls: in whose name, for which groups, and not what one has started oneself (E2, E6)."""

from typing import Any

import pytest

from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1.workflow_service_pb2_grpc import WorkflowServiceStub
from ductor.workflow.v1.workflow_signal_service_pb2_grpc import WorkflowSignalServiceStub
from ductord.db.ids import new_id
from tests.access.world import World
from tests.support.api import Api
from tests.support.edges import refusal
from tests.support.keys import bearer, minted

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.xdist_group("access")]

ASKING: dict[str, Any] = {
    "family_slug": "asking",
    "title": "asking",
    "steps": [
        {"ref": "any", "type": "approval"},
        {"ref": "board", "type": "approval", "approval": {"groups": ["board"]}},
        {"ref": "four-eyes", "type": "approval", "approval": {"allow_self": False}},
        {"ref": "two", "type": "approval", "approval": {"required": 2}},
        {"ref": "case", "type": "human_loop", "human_loop": {"case_type": "kyc"}},
    ],
    "edges": [],
}


async def test_e2_the_approver_is_the_caller_or_whom_it_may_name(world: World, tenant: str) -> None:
    """E2: groups are the key's; only a key that acts for others names somebody, and that is no key; a name is a person's once for `required`."""
    starter = await minted(world.database, tenant, name="starter")
    member = await minted(world.database, tenant, name="member", groups=["board"])
    portal = await minted(world.database, tenant, name="portal", acts_for_others=True)
    async with Api(world.host.grpc_address.reachable, tenant) as api:
        api.metadata = bearer(starter.token)
        [run] = await api.start_many(await api.publish(ASKING), 1)
    stub = WorkflowSignalServiceStub(world.channel)

    async def approve(key: Any, ref: str, name: str = "", run_id: str = run) -> Any:
        request = signals.ApproveStepRequest(run_id=run_id, step_ref=ref, approver_id=name)
        return await stub.ApproveStep(request, metadata=bearer(key.token), timeout=60)

    for key, ref, name in (
        (member, "any", "ann"),
        (member, "any", "key:starter"),
        (portal, "any", "key:starter"),
        (portal, "any", "system:timeout"),
        (starter, "board", ""),
        (portal, "board", "ann"),
        (starter, "four-eyes", ""),
        (starter, "four-eyes", "key:starter"),
    ):
        told = await refusal(approve(key, ref, name))
        assert (told.code, told.reason, told.metadata) == (
            "PERMISSION_DENIED",
            "APPROVER_NOT_ALLOWED",
            {"step_ref": ref},
        )
    assert (await refusal(approve(member, "any", "ann", new_id()))).reason == "RUN_NOT_FOUND", (
        "E1: what is not there comes first"
    )
    resolve = signals.ResolveInteractionRequest(run_id=run, step_ref="case", resolved_by="ann")
    assert (
        await refusal(stub.ResolveInteraction(resolve, metadata=bearer(member.token)))
    ).reason == "APPROVER_NOT_ALLOWED"

    await approve(starter, "any", "key:starter")
    await approve(member, "board")
    await approve(portal, "four-eyes", "ann")
    for name in ("ann", "ann", "bob"):
        await approve(portal, "two", name)
    await stub.ResolveInteraction(resolve, metadata=bearer(portal.token))
    read = WorkflowServiceStub(world.channel)
    watch = read.WatchRun(reads.WatchRunRequest(run_id=run), metadata=bearer(member.token))
    while not (await watch.read()).ended:
        pass
    steps = await read.ListRunSteps(reads.ListRunStepsRequest(run_id=run), metadata=bearer(member.token))
    by = {step.step_ref: step.output.struct_value.fields["approver_id"].string_value for step in steps.data}
    assert by == {"any": "key:starter", "board": "key:member", "four-eyes": "ann", "two": "bob", "case": ""}
    audit = await read.ListAudit(reads.ListAuditRequest(action="approve"), metadata=bearer(member.token))
    told = {
        (line.actor, line.detail.fields["step_ref"].string_value, line.detail.fields["approver_id"].string_value)
        for line in audit.data
    }
    assert ("key:portal", "four-eyes", "ann") in told, "C8: who said it, and in whose name"
    assert ("key:member", "board", "key:member") in told
