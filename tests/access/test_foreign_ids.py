"""TN-01: every RPC of the contract with a good key of one tenant and the ids of another's: the answer is that to a random id, and nothing is touched.

The requests are made from the descriptors: what a field is called says whose id goes into it.
"""

from collections.abc import Callable, Mapping
from string import Template
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from google.protobuf import json_format
from google.protobuf.descriptor import MethodDescriptor

from ductor.workflow.v1 import schedule_service_pb2 as schedules
from ductor.workflow.v1 import schedule_service_pb2_grpc as schedules_grpc
from ductor.workflow.v1 import task_service_pb2 as tasks
from ductor.workflow.v1 import task_service_pb2_grpc as tasks_grpc
from ductor.workflow.v1 import workflow_run_control_service_pb2 as controls
from ductor.workflow.v1 import workflow_run_control_service_pb2_grpc as controls_grpc
from ductord.db.ids import new_id
from ductord.dispatch.token import LeaseKey, written
from tests.access.world import RPCS, Answer, World, request_of
from tests.support.api import Api
from tests.support.keys import as_owner, bearer, minted

pytestmark = [pytest.mark.asyncio(loop_scope="package"), pytest.mark.xdist_group("access")]

ORDER: dict[str, Any] = {
    "family_slug": "acmes-order",
    "title": "acmes-order",
    "variables": {"limit": 1},
    "steps": [
        {"ref": "ask", "type": "approval"},
        {"ref": "work", "type": "action", "action": "acme:work", "queue": "acmes-queue"},
        {"ref": "paid", "type": "wait", "wait": {"event": {"event_name": "acmes-event", "correlation_key": '"k"'}}},
    ],
    "edges": [],
    "triggers": [
        {"id": "t", "type": "event", "patterns": ["acmes-start"]},
        {"id": "s", "type": "schedule", "schedule": {"cron_expression": "0 0 1 1 *"}},
        {"id": "m", "type": "manual"},
    ],
}

FIELDS: Mapping[str, str] = {
    "id": "$definition",
    "workflow_id": "$definition",
    "definition_id": "$definition",
    "schedule_id": "$schedule",
    "run_id": "$run",
    "source_run_id": "$run",
    "parent_run_id": "$run",
    "key_id": "$key",
    "step_ref": "ask",
    "step_id": "ask",
    "target": "run:$run",
}
"""What goes into a field of this name."""
MORE: Mapping[str, dict[str, Any]] = {
    "UpdateWorkflowDraft": {"expected_draft_revision": 1, "title": "stolen"},
    "DuplicateWorkflowDefinition": {"family_slug": "stolen"},
    "ValidateWorkflowDefinition": {},
    "UpsertWorkflowEnvOverride": {"environment": "prod", "variables_json": '{"limit": 2}'},
    "DeleteWorkflowEnvOverride": {"environment": "prod"},
    "BatchTriggerWorkflow": {"items": [{}]},
    "BackfillSchedule": {"from_time": "2020-01-01T00:00:00Z", "to_time": "2021-06-01T00:00:00Z"},
    "UpdateNodeRetryPolicy": {"restore_original": True},
    "UpdateNodeTimeout": {"restore_original": True},
    "ResolveRepair": {"resolution": "REPAIR_RESOLUTION_DONE"},
    "ResetRun": {"transition_seq": 1},
    "PreviewReset": {"transition_seq": 1},
    "GetOperation": {"request_id": "acmes-operation"},
    "WaitOperation": {"request_id": "acmes-operation", "timeout_seconds": 0},
    "ExplainWorkflowEventSetMatch": {"event_name": "acmes-event", "correlation_key": "k"},
    "CompleteTasks": {"completions": [{"task_token": "$task", "success": {"output_json": "{}"}}]},
    "HeartbeatTasks": {"heartbeats": [{"task_token": "$task"}]},
    "CreateWorkflowDefinition": {"family_slug": "acmes-order", "title": "mine"},
    "ListWorkflowDefinitions": {"family_slug": "acmes-order"},
    "PublishEvent": {"event_name": "acmes-event", "correlation_key": "k"},
    "ListEventTriggers": {"event_name": "acmes-start"},
    "PollTasks": {"queues": ["acmes-queue"], "actions": ["acme:work"], "worker_id": "w", "max_tasks": 10},
    "DescribeQueues": {"queues": ["acmes-queue"]},
    "CreateApiKey": {"name": "acmes-key", "scopes": ["admin"]},
    "SetReleasePolicy": {"mode": "RELEASE_MODE_OFF"},
}
"""What an RPC needs beside ids, so that it comes to look at them."""
ANSWERED = {
    "ListEventTriggers",
    "ListSchedules",
    "ListRuns",
    "ListAudit",
    "CompleteTasks",
    "HeartbeatTasks",
}
"""RPCs that take an id to filter by, or one per item: nothing is found, and that is an answer."""
ECHOING = {
    "CreateWorkflowDefinition",
    "CreateApiKey",
    "CompleteTasks",
    "HeartbeatTasks",
    "ListWorkflowDefinitions",
    "ListApiKeys",
    "DescribeQueues",
}
"""RPCs that answer with what the caller has said, or has just made under the same name."""
NOT_FOUND = {"DEFINITION_NOT_FOUND", "RUN_NOT_FOUND", "SCHEDULE_NOT_FOUND", "API_KEY_NOT_FOUND"}
_ROWS = "select coalesce(md5(string_agg(r, '' order by r)), '') from (select (to_jsonb(t) - 'last_use_time')::text as r from {} t where tenant_id = 'acme') x"


class Ids(msgspec.Struct, frozen=True, kw_only=True):
    """What can be asked for."""

    definition: str
    schedule: str
    run: str
    key: str
    task: str

    def within(self, value: Any) -> Any:
        """A request's tree with these ids in it."""
        if isinstance(value, str):
            return Template(value).substitute(msgspec.structs.asdict(self))
        if isinstance(value, dict):
            return {name: self.within(item) for name, item in value.items()}
        return [self.within(item) for item in value] if isinstance(value, list) else value


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The suite with what `acme` has, and the keys of three tenants: its own, a stranger's, and one who has nothing either."""

    world: World
    ids: Ids
    acme: str
    stranger: str
    newcomer: str

    async def ask(self, rpc: MethodDescriptor, ids: Ids, token: str) -> Answer:
        """An RPC with ids, made with a key."""
        named = {field.name: FIELDS[field.name] for field in rpc.input_type.fields if field.name in FIELDS}
        request = json_format.ParseDict(ids.within(named | MORE.get(rpc.name, {})), request_of(rpc))
        return await self.world.call(rpc, request, bearer(token))

    async def rows(self) -> dict[str, str]:
        """A digest of all that `acme` has, by table."""
        tables = "select c.relname from pg_class c where c.relkind = 'r' and c.relname like 'eec\\_workflow\\_%'"
        names = [row["relname"] for row in await as_owner(self.world.database, tables)]
        return {name: (await as_owner(self.world.database, _ROWS.format(name)))[0][0] for name in sorted(names)}


@pytest_asyncio.fixture(scope="module", loop_scope="package")
async def site(world: World) -> Site:
    """`acme` has a definition that waits for everything, a run of it with an attempt in a worker's hands, a control, a schedule and keys."""
    tokens = [(await minted(world.database, tenant)).token for tenant in ("acme", "stranger", "newcomer")]
    key = await minted(world.database, "acme", name="acmes-key")
    mine = bearer(tokens[0])
    async with Api(world.host.grpc_address.reachable, "acme") as api:
        api.metadata = mine
        definition = await api.publish(ORDER)
        [run] = await api.start_many(definition, 1)
    stub = schedules_grpc.ScheduleServiceStub(world.channel)
    told = await stub.ListSchedules(schedules.ListSchedulesRequest(), metadata=mine)
    poll = tasks.PollTasksRequest(
        queues=["acmes-queue"], actions=["acme:work"], worker_id="w", max_tasks=1, wait_ms=20_000
    )
    leased = await tasks_grpc.TaskServiceStub(world.channel).PollTasks(poll, metadata=mine)
    operating = controls_grpc.WorkflowRunControlServiceStub(world.channel)
    pausing = controls.PauseNodeRequest(run_id=run, step_ref="ask", request_id="acmes-operation")
    await operating.PauseNode(pausing, metadata=mine)
    settled = controls.WaitOperationRequest(run_id=run, request_id="acmes-operation", timeout_seconds=20)
    await operating.WaitOperation(settled, metadata=mine)
    ids = Ids(
        definition=definition,
        schedule=told.data[0].schedule_id,
        run=run,
        key=key.key.key_id,
        task=leased.tasks[0].task_token,
    )
    return Site(world=world, ids=ids, acme=tokens[0], stranger=tokens[1], newcomer=tokens[2])


def _asks_for_one(rpc: MethodDescriptor) -> bool:
    """Whether an RPC is about one thing that has an id."""
    ids = [field.name for field in rpc.input_type.fields if "$" in FIELDS.get(field.name, "")]
    return bool(ids) and rpc.name not in ANSWERED


def random_ids() -> Ids:
    """Of nothing that exists, in the form of what does."""
    lease = LeaseKey("acme", new_id(), "work", -1, "step", 1, new_id())
    return Ids(definition=new_id(), schedule=new_id(), run=new_id(), key=new_id(), task=written(lease))


async def test_tn01_an_id_of_another_tenant_is_a_random_id(
    site: Site, record_property: Callable[[str, Any], None]
) -> None:
    """TN-01, N1: byte for byte, but for the call's own ids and time; lists, events, polls and batches find nothing; no row of the owner's changes."""
    before = await site.rows()
    marks = [b"acmes-", *(text.encode() for text in msgspec.structs.asdict(site.ids).values())]
    wrong = []
    for rpc in RPCS:
        foreign = await site.ask(rpc, site.ids, site.stranger)
        random = await site.ask(rpc, random_ids(), site.newcomer)
        found_nothing = foreign.code == "OK" if not _asks_for_one(rpc) else foreign.reason in NOT_FOUND
        if not found_nothing or (_asks_for_one(rpc) and foreign != random):
            wrong.append(f"{rpc.name}: {foreign}, of a random id {random}")
        if rpc.name not in ECHOING:
            wrong += [f"{rpc.name} tells {mark!r}" for mark in marks if mark in foreign.body]
    assert not wrong, "\n".join(wrong)
    assert await site.rows() == before
    record_property("calls with a foreign tenant's ids answered as random ones", len(RPCS))


async def test_tn01_the_owner_finds_all_of_it(site: Site) -> None:
    """The same requests by the owner find what they name: the ids above were real."""
    for rpc in RPCS:
        answer = await site.ask(rpc, site.ids, site.acme)
        assert answer.reason not in NOT_FOUND, f"{rpc.name}: {answer}"
        assert answer.code not in ("INTERNAL", "UNAUTHENTICATED", "PERMISSION_DENIED"), f"{rpc.name}: {answer}"
