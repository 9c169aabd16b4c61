"""The books of fan-outs, after the killing: no orphan, no child of nobody, every count what the rows say (F1 to F5, SW-01, SW-02)."""

from collections import Counter

import asyncpg

from ductord.model import manifest as manifests
from ductord.model import stored
from ductord.model.enums import NodeStatus
from ductord.model.fan import Fan

_LAWS = {
    "runs below a parent that does not know them": "select count(*) from eec_workflow_run_start s"
    " where s.parent_run_id is not null and s.continued_from_run_id is null and not exists (select from eec_workflow_child c"
    "  where c.tenant_id = s.tenant_id and c.parent_run_id = s.parent_run_id and c.first_run_id = s.run_id)",
    "children that are no runs": "select count(*) from eec_workflow_child c where not exists ("
    " select from eec_workflow_run_start s where s.tenant_id = c.tenant_id and s.run_id = c.child_run_id)",
    "children that were born when their parent had ended": "select count(*) from eec_workflow_child c"
    " join eec_workflow_run p on p.tenant_id = c.tenant_id and p.run_id = c.parent_run_id where c.attempt > 0 and c.create_time > p.end_time",
    "children whose end nobody has written down": "select count(*) from eec_workflow_child where status is null and not detached",
    "ends of children that their parent has not gone by": "select count(*) from eec_workflow_child"
    " where sync and not detached and end_time is not null and applied_time is null",
    "ends that are not those of the runs": "select count(*) from eec_workflow_child c"
    " join eec_workflow_run r on r.tenant_id = c.tenant_id and r.run_id = c.child_run_id where c.status <> r.status and not c.detached",
    "runs deeper or elsewhere than their parents say": "select count(*) from eec_workflow_run_start s"
    " join eec_workflow_run_start p on p.tenant_id = s.tenant_id and p.run_id = s.parent_run_id"
    " where s.nesting_depth <> p.nesting_depth + 1 or s.root_run_id <> p.root_run_id",
    "items that nobody has judged": "select count(*) from eec_workflow_step_attempt where kind = 'item' and status = 'open'",
}


async def assert_families(owner: asyncpg.Connection, *, tenant: str | None = None) -> Counter[str]:
    """Every law of children holds, and the counters of every fan-out are those of its rows. Answers fan-outs by the status of their node.

    `tenant`: only its runs are counted; the laws are those of the whole database."""
    for what, sql in _LAWS.items():
        assert await owner.fetchval(sql) == 0, what
    told: Counter[str] = Counter()
    rows = await owner.fetch(
        "select r.run_id::text, r.status, r.record_version, r.node_states::text, r.edge_states, r.run_state::text, r.has_errors, r.start_time, r.end_time,"
        " v.manifest::text from eec_workflow_run r join eec_workflow_run_start s using (tenant_id, run_id)"
        " join eec_workflow_version v on v.tenant_id = s.tenant_id and v.version_id = s.version_id"
        " where ($1::text is null or s.tenant_id = $1) and r.node_states::text like '%\"fan\"%'",
        tenant,
    )
    for row in rows:
        columns = dict(row)
        manifest = manifests.decode(columns.pop("manifest"))
        run = stored.decode_run(manifest, **columns)
        for step, node in zip(manifest.steps, run.nodes, strict=True):
            if node.fan is None:
                continue
            assert node.fan.open == 0, f"{step.ref} of {run.run_id} has ended with open children"
            if node.status is NodeStatus.SUCCEEDED:
                assert node.fan.done, f"{step.ref} of {run.run_id} was over before its children (SG-02)"
            await _assert_counted(owner, run.run_id, step.ref, node.fan)
            told[node.status] += 1
    return told


async def _assert_counted(owner: asyncpg.Connection, run_id: str, step_ref: str, fan: Fan) -> None:
    """Of each index the latest attempt, or the latest child run, which is the later one where there are both."""
    rows = await owner.fetch(
        "select distinct on (item_index) item_index, status from ("
        " select item_index, attempt, status, create_time from eec_workflow_step_attempt where run_id = $1 and step_ref = $2 and kind = 'item'"
        " union all"
        " select item_index, attempt, case status when 'completed' then 'succeeded' when 'cancelled' then status when 'terminated' then 'cancelled'"
        "  else 'failed' end, create_time from eec_workflow_child where parent_run_id = $1 and step_ref = $2 and attempt > 0"
        ") c where item_index < $3 order by item_index, create_time desc, attempt desc",
        run_id,
        step_ref,
        fan.next,
    )
    found = Counter("succeeded" if row["status"] == "succeeded" else "not" for row in rows)
    assert found["succeeded"] >= fan.succeeded, f"{step_ref} of {run_id} counts successes that are none"
    assert fan.ended == fan.next - sum(count for _, count in fan.again), f"{step_ref} of {run_id} is miscounted"
    if not fan.cancelled:
        assert (found["succeeded"], found["not"]) == (fan.succeeded, fan.failed), (
            f"{step_ref} of {run_id} is miscounted"
        )
