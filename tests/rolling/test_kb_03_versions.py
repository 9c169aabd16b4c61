"""KB-03: two releases beside each other, and back again. What the older one can read it drives as ever; what it cannot, it leaves alone for one that can."""

import json
from functools import partial
from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_definition_service_pb2 as definitions
from ductor.workflow.v1 import workflow_run_control_service_pb2 as control
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.db.ids import new_id
from ductord.model.manifest import ENGINE_LEVEL
from tests.faults.load import until
from tests.rolling.caller import Caller
from tests.rolling.suite import REPLICAS, Suite
from tests.support.api import message

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300), pytest.mark.xdist_group("rolling")]

COORDINATORS = tuple(f"coordinator{n}" for n in REPLICAS)
STEPS = [{"ref": "first", "type": "action", "action": "noop:noop"}, {"ref": "person", "type": "approval"}]
EDGES = [{"source_ref": "first", "target_ref": "person", "type": "success"}]
ON_EVENT = [{"id": "by_hand", "type": "manual"}, {"id": "on", "type": "event", "patterns": ["born"]}]
_LEFT = "select due_time > eec_now() from eec_workflow_wakeup where run_id = $1"
"""Whether a coordinator has looked at a run and put it off."""


async def test_kb_03_old_and_new_share_the_runs_and_roll_back(
    suite: Suite, caller: Caller, owner: asyncpg.Connection
) -> None:
    """Started by the new, ticked by the old; begun by the new and ended by the old after the roll-back; what only the new can read waits for it, unharmed."""
    plain = await published(caller, {"family_slug": "plain", "title": "plain", "steps": STEPS, "edges": EDGES})
    newer = await published(
        caller, {"family_slug": "newer", "title": "newer", "steps": STEPS, "edges": EDGES, "triggers": ON_EVENT}
    )
    begun, begun_newer = [await started(caller, definition) for definition in (plain, newer)]
    for run_id in (begun, begun_newer):
        await until(partial(waiting, caller, run_id))
    for name in COORDINATORS:
        await suite.replace(name, old=True)
    ticked = await started(caller, plain)
    await until(partial(waiting, caller, ticked))
    left = await started(caller, newer)
    for run_id in (begun, ticked, begun_newer):  # the word for the last one waits as well
        await approve(caller, run_id)
    for run_id in (begun, ticked):
        assert await ended(caller, run_id) == run_pb2.RUN_STATUS_COMPLETED
    for run_id, progress in ((left, 0), (begun_newer, await transitions(owner, begun_newer))):
        await until(partial(owner.fetchval, _LEFT, run_id))
        assert await transitions(owner, run_id) == progress
        assert await state(caller, run_id) in (run_pb2.RUN_STATUS_PENDING, run_pb2.RUN_STATUS_RUNNING)
    assert await owner.fetchval("select count(*) from eec_workflow_quarantine") == 0
    await suite.replace(COORDINATORS[0])
    await until(partial(waiting, caller, left))
    await approve(caller, left)
    for run_id in (left, begun_newer):
        assert await ended(caller, run_id) == run_pb2.RUN_STATUS_COMPLETED
    assert caller.failures == []


async def test_kb_03_a_step_type_that_nobody_knows_yet_is_left_to_who_does(
    caller: Caller, owner: asyncpg.Connection
) -> None:
    """For the release after this one, this one is the old one: a run of a newer level, with a step type that it has never heard of, is neither failed nor set
    aside. Once its manifest is one that is known, which is what a capable release sees in it, it runs to its end."""
    await published(caller, {"family_slug": "later", "title": "later", "steps": STEPS, "edges": EDGES})
    known = await owner.fetchval("select manifest::text from eec_workflow_version where tenant_id = $1", caller.tenant)
    manifest = json.loads(known)
    manifest["steps"][0] |= {"type": "oracle", "oracle": {"question": "what is to come"}}
    manifest["engine_level"] = ENGINE_LEVEL + 1
    await _set_manifest(owner, caller.tenant, json.dumps(manifest), ENGINE_LEVEL + 1)
    run_id = new_id()
    await owner.execute(
        "insert into eec_workflow_run_start (tenant_id, run_id, definition_id, version_id, version, family_slug, given_definition_id, root_run_id, journey_id)"
        " select tenant_id, $2, definition_id, version_id, version, 'later', definition_id, $2, $2 from eec_workflow_version where tenant_id = $1",
        caller.tenant,
        run_id,
    )
    await owner.execute("insert into eec_workflow_wakeup (tenant_id, run_id) values ($1, $2)", caller.tenant, run_id)
    await until(partial(owner.fetchval, _LEFT, run_id))
    assert await transitions(owner, run_id) == 0
    assert await owner.fetchval("select count(*) from eec_workflow_quarantine") == 0
    await _set_manifest(owner, caller.tenant, known, json.loads(known)["engine_level"])
    await until(partial(waiting, caller, run_id))
    await approve(caller, run_id)
    assert await ended(caller, run_id) == run_pb2.RUN_STATUS_COMPLETED


async def _set_manifest(owner: asyncpg.Connection, tenant: str, manifest: str, level: int) -> None:
    await owner.execute(
        "update eec_workflow_version set manifest = $2, engine_level = $3 where tenant_id = $1",
        tenant,
        manifest,
        level,
    )


async def published(caller: Caller, tree: dict[str, Any]) -> str:
    """Its definition id."""
    request = message(definitions.CreateWorkflowDefinitionRequest, tree)
    created = await caller.call(caller.definitions.CreateWorkflowDefinition, request)
    publish = definitions.PublishWorkflowDefinitionRequest(id=created.data.id)
    await caller.call(caller.definitions.PublishWorkflowDefinition, publish)
    return str(created.data.id)


async def started(caller: Caller, definition_id: str) -> str:
    """Its run id."""
    request = triggers.TriggerWorkflowRequest(definition_id=definition_id, idempotency_key=new_id())
    return str((await caller.call(caller.triggers.TriggerWorkflow, request, keyed=True)).run_id)


async def approve(caller: Caller, run_id: str) -> None:
    """Say yes to its person."""
    yes = signals.ApproveStepRequest(run_id=run_id, step_ref="person", request_id="yes")
    await caller.call(caller.signals.ApproveStep, yes, keyed=True)


async def state(caller: Caller, run_id: str) -> Any:
    """The run's status."""
    return (await caller.call(caller.reads.GetRun, reads.GetRunRequest(run_id=run_id))).data.summary.status


async def waiting(caller: Caller, run_id: str) -> bool:
    """Whether it waits for its person."""
    answer = await caller.call(caller.control.GetRunSnapshot, control.GetRunSnapshotRequest(run_id=run_id))
    return any(step.step_ref == "person" and step.status == run_pb2.NODE_STATUS_WAITING for step in answer.data.nodes)


async def ended(caller: Caller, run_id: str) -> Any:
    """Its status once it has ended."""
    over = (run_pb2.RUN_STATUS_COMPLETED, run_pb2.RUN_STATUS_FAILED, run_pb2.RUN_STATUS_CANCELLED)

    async def final() -> bool:
        return await state(caller, run_id) in over

    await until(final)
    return await state(caller, run_id)


async def transitions(owner: asyncpg.Connection, run_id: str) -> int:
    """How many there are."""
    count: int = await owner.fetchval("select count(*) from eec_workflow_transition where run_id = $1", run_id)
    return count
