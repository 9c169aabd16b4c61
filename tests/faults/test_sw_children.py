"""Child runs on real processes: cancelled while they are born, nested as deep as they may be, continued as new; coordinators die by kill -9 (SW-01, SW-02,
SW-03, F5)."""

import json
from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import workflow_run_control_service_pb2 as controls
from ductor.workflow.v1 import workflow_run_control_service_pb2_grpc as controls_rpc
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1 import workflow_signal_service_pb2_grpc as signals_rpc
from ductord.model.fanout import MAX_DEPTH
from tests.chaos.books import assert_whole
from tests.chaos.kin import assert_families
from tests.faults.load import until
from tests.support.api import Api
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]

CHILDREN, ENOUGH, ROUNDS = 200, 100, 4
DEEP = 30
_BELOW = "select count(*) from eec_workflow_run_start where parent_run_id = $1"
_TREE = (
    "select s.run_id::text, s.nesting_depth, r.status, r.error_code, r.error_message, r.end_time from eec_workflow_run_start s"
    " left join eec_workflow_run r using (tenant_id, run_id) where s.root_run_id = $1 order by s.nesting_depth, s.create_time"
)
_OPEN = (
    "select count(*) from eec_workflow_run_start s left join eec_workflow_run r using (tenant_id, run_id)"
    " where s.root_run_id = $1 and r.end_time is null"
)


class Family:
    """A tree of runs and who operates it."""

    def __init__(self, api: Api, owner: asyncpg.Connection) -> None:
        self.api = api
        self.owner = owner
        self.tenant = dict(api.metadata)["x-tenant-id"]
        self._controls = controls_rpc.WorkflowRunControlServiceStub(api.channel)
        self._signals = signals_rpc.WorkflowSignalServiceStub(api.channel)

    async def start(self, definition_id: str, **given: Any) -> str:
        [run_id] = await self.api.start_many(definition_id, 1, input_json=json.dumps(given))
        return run_id

    async def cancel(self, run_id: str) -> None:
        request = controls.CancelRunRequest(run_id=run_id, request_id="stop", reason="enough")
        await self._controls.CancelRun(request, metadata=self.api.metadata, timeout=60)

    async def continue_as_new(self, run_id: str) -> str:
        request = controls.ContinueAsNewRunRequest(run_id=run_id, request_id="again")
        answer = await self._controls.ContinueAsNewRun(request, metadata=self.api.metadata, timeout=60)
        return str(answer.new_run_id)

    async def tell(self, run_id: str, step_ref: str) -> None:
        request = signals.ResolveInteractionRequest(run_id=run_id, step_ref=step_ref, request_id=f"go-{run_id}")
        await self._signals.ResolveInteraction(request, metadata=self.api.metadata, timeout=60)

    async def runs(self, root: str) -> list[asyncpg.Record]:
        found: list[asyncpg.Record] = await self.owner.fetch(_TREE, root)
        return found

    async def ended(self, root: str) -> None:
        """Until nothing of the tree is open."""

        async def over() -> bool:
            return not await self.owner.fetchval(_OPEN, root)

        await until(over, 60)

    async def reached(self, count: int, sql: str, *values: Any) -> None:
        """Until a query counts so many."""

        async def there() -> bool:
            return bool(await self.owner.fetchval(sql, *values) >= count)

        await until(there, 60)

    async def assert_orderly(self) -> None:
        """The books of the tenant and of all families."""
        await assert_whole(self.owner, tenant=self.tenant)
        await assert_families(self.owner, tenant=self.tenant)


@pytest.fixture
async def family(api: Api, owner: asyncpg.Connection) -> Family:
    return Family(api, owner)


async def _killed(stack: Stack) -> None:
    """kill -9 of both coordinators, and new ones."""
    for name in ("coordinator0", "coordinator1"):
        stack[name].kill()
    for name in ("coordinator0", "coordinator1"):
        stack[name].start()


async def test_sw_01_a_cancel_while_children_are_being_born(stack: Stack, family: Family) -> None:
    """SW-01: 200 child runs, twenty at a time; the parent is cancelled when a hundred have begun, and the coordinators die with it. No child begins after, none
    runs on."""
    await family.api.publish({"family_slug": "item", "steps": [{"ref": "a", "type": "action", "action": "noop:noop"}]})
    scatter = {
        "items_expr": "TRIGGER.payload.items",
        "mode": "child_workflow",
        "workflow": {"family_slug": "item"},
        "max_concurrency": 20,
    }
    many = await family.api.publish(
        {"family_slug": "many", "steps": [{"ref": "s", "type": "scatter", "scatter": scatter}]}
    )
    for number in range(ROUNDS):
        root = await family.start(many, items=list(range(CHILDREN)))
        await family.reached(ENOUGH, _BELOW, root)
        await family.cancel(root)
        if number % 2:
            await _killed(stack)
        await family.ended(root)
        parent, *children = await family.runs(root)
        assert parent["status"] in ("cancelled", "completed"), "a cancel may come too late"
        assert {child["status"] for child in children} <= {"completed", "cancelled"}
        late = await family.owner.fetchval(
            "select count(*) from eec_workflow_run_start c join eec_workflow_intent i on i.run_id = c.parent_run_id"
            " where c.parent_run_id = $1 and i.verb = 'cancel' and c.create_time > i.settle_time",
            root,
        )
        assert late == 0, "no child is born after the cancel was applied"
        assert ENOUGH <= len(children) <= CHILDREN, "a cancel may meet the last of them"
    await family.assert_orderly()


async def test_sw_02_a_definition_that_calls_itself_ends(family: Family) -> None:
    """SW-02: at the depth limit the step fails, and with it level by level all that wait for it."""
    child = {"ref": "again", "type": "subworkflow", "subworkflow": {"workflow": {"family_slug": "loop"}}}
    root = await family.start(await family.api.publish({"family_slug": "loop", "steps": [child]}))
    await family.ended(root)
    runs = await family.runs(root)
    assert [run["nesting_depth"] for run in runs] == list(range(MAX_DEPTH + 1))
    assert {run["status"] for run in runs} == {"failed"}
    assert [run["error_code"] for run in runs] == ["child_failed"] * MAX_DEPTH + ["depth_limit_exceeded"]
    await family.assert_orderly()


async def test_sw_02_a_deep_tree_is_cancelled_though_coordinators_die_half_way(stack: Stack, family: Family) -> None:
    """SW-02: thirty levels, each with a sibling that nobody works for; kill -9 as soon as the cancel is ten levels down."""
    descend = {
        "ref": "descend",
        "type": "subworkflow",
        "run_if": "TRIGGER.payload.left > 0",
        "subworkflow": {
            "workflow": {"family_slug": "deep"},
            "input": {"left": "${{ TRIGGER.payload.left - 1 }}"},
        },
    }
    idle = {"ref": "idle", "type": "action", "action": "noop:noop", "queue": "nobody"}
    deep = await family.api.publish({"family_slug": "deep", "steps": [descend, idle]})
    root = await family.start(deep, left=DEEP)
    waiting = "select count(*) from eec_workflow_step_attempt a join eec_workflow_run_start s using (tenant_id, run_id) where s.root_run_id = $1"
    await family.reached(DEEP + 1, waiting, root)
    await family.cancel(root)
    over = "select count(*) from eec_workflow_run_start s join eec_workflow_run r using (tenant_id, run_id) where s.root_run_id = $1 and r.end_time is not null"
    await family.reached(10, over, root)
    await _killed(stack)
    await family.ended(root)
    runs = await family.runs(root)
    assert [(run["nesting_depth"], run["status"]) for run in runs] == [(n, "cancelled") for n in range(DEEP + 1)]
    ends = [run["end_time"] for run in runs]
    assert ends == sorted(ends), "one level after the other"
    asked = await family.owner.fetchval(
        "select count(*) from eec_workflow_intent i join eec_workflow_run_start s using (tenant_id, run_id)"
        " where s.root_run_id = $1 and i.verb = 'cancel'",
        root,
    )
    assert asked == DEEP + 1, "each is told once"
    await family.assert_orderly()


async def test_sw_02_a_wide_tree_is_cancelled_though_coordinators_die_half_way(stack: Stack, family: Family) -> None:
    """SW-02: two hundred open children with an open child each."""
    idle = {"ref": "idle", "type": "action", "action": "noop:noop", "queue": "nobody"}
    await family.api.publish({"family_slug": "idle", "steps": [idle]})
    below = {"ref": "below", "type": "subworkflow", "subworkflow": {"workflow": {"family_slug": "idle"}}}
    await family.api.publish({"family_slug": "between", "steps": [below]})
    scatter = {
        "items_expr": "TRIGGER.payload.items",
        "mode": "child_workflow",
        "workflow": {"family_slug": "between"},
    }
    root_id = await family.api.publish(
        {"family_slug": "root", "steps": [{"ref": "s", "type": "scatter", "scatter": scatter}]}
    )
    root = await family.start(root_id, items=list(range(CHILDREN)))
    waiting = "select count(*) from eec_workflow_step_attempt a join eec_workflow_run_start s using (tenant_id, run_id) where s.root_run_id = $1"
    await family.reached(CHILDREN, waiting, root)
    await family.cancel(root)
    cancelled = "select count(*) from eec_workflow_intent i join eec_workflow_run_start s using (tenant_id, run_id) where s.root_run_id = $1"
    await family.reached(2, cancelled, root)
    await _killed(stack)
    await family.ended(root)
    runs = await family.runs(root)
    assert len(runs) == 1 + 2 * CHILDREN
    assert {run["status"] for run in runs} == {"cancelled"}
    await family.assert_orderly()


async def test_sw_03_a_child_that_went_on_as_another(stack: Stack, family: Family) -> None:
    """SW-03: the parent follows its child's successor, for its output and for its own cancel; and is not continued while a child is open."""
    wait = {"ref": "w", "type": "wait", "wait": {"signal": "go"}}
    await family.api.publish({"family_slug": "seven", "steps": [wait], "output": {"seven": 7}})
    child = {"ref": "p", "type": "subworkflow", "subworkflow": {"workflow": {"family_slug": "seven"}}}
    parent = await family.api.publish(
        {"family_slug": "parent", "steps": [child], "output": {"got": "${{ STEPS.p.output }}"}}
    )

    async def begun() -> tuple[str, str]:
        root = await family.start(parent)
        await family.reached(1, f"{_WAITING} and s.parent_run_id = $1", root)
        return root, await family.owner.fetchval(
            "select run_id::text from eec_workflow_run_start where parent_run_id = $1", root
        )

    followed, first = await begun()
    cancelled, second = await begun()
    continued, third = await begun()
    successors = [await family.continue_as_new(run_id) for run_id in (first, second)]
    await _killed(stack)
    for successor in successors:
        await family.reached(1, f"{_WAITING} and s.run_id = $1", successor)
    await family.tell(successors[0], "w")
    await family.cancel(cancelled)
    await family.ended(followed)
    await family.ended(cancelled)
    output = json.loads(
        await family.owner.fetchval("select result::text from eec_workflow_run where run_id = $1", followed)
    )
    assert output == {"got": {"run_id": successors[0], "status": "completed", "output": {"seven": 7}}}
    statuses = {run["run_id"]: run["status"] for run in await family.runs(cancelled)}
    assert statuses == {cancelled: "cancelled", second: "terminated", successors[1]: "cancelled"}

    next_parent = await family.continue_as_new(continued)
    await family.tell(third, "w")
    await family.reached(1, f"{_WAITING} and s.parent_run_id = $1", next_parent)
    assert (await family.api.run(third)).summary.status == (await family.api.run(followed)).summary.status, "completed"
    last = await family.owner.fetchval(
        "select run_id::text from eec_workflow_run_start where parent_run_id = $1", next_parent
    )
    await family.tell(last, "w")
    await family.ended(continued)
    await family.assert_orderly()


_WAITING = (
    "select count(*) from eec_workflow_run r join eec_workflow_run_start s using (tenant_id, run_id)"
    ' where r.node_states::jsonb @> \'{"w": {"status": "waiting"}}\''
)
