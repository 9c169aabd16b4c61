"""The law of fan-outs over the rows of a real database (`fan_law`)."""

import asyncpg

from ductord.model.manifest import Manifest
from ductord.model.run import Run
from tests.support.fan_law import Came, is_counted

_TASKS = """
select distinct on (step_ref, item_index) step_ref, item_index, attempt, status, true as known
from eec_workflow_step_attempt where run_id = $1 and kind = 'item' order by step_ref, item_index, attempt desc
"""
_RUNS = """
select distinct on (step_ref, item_index) step_ref, item_index, attempt, applied_time is not null as known,
       case when status = 'completed' or checkpoint_status = 'reached' then 'succeeded' else 'ended' end as status
from eec_workflow_child where parent_run_id = $1 and attempt > 0 order by step_ref, item_index, attempt desc
"""
_CAME = {"open": Came.OPEN, "succeeded": Came.SUCCEEDED}


async def fans_are_counted(owner: asyncpg.Connection, manifest: Manifest, run: Run) -> None:
    """The counters of the run's fan-outs are those of their rows."""
    rows = [*await owner.fetch(_TASKS, run.run_id), *await owner.fetch(_RUNS, run.run_id)]
    rows.sort(key=lambda row: row["attempt"])
    for step, node in zip(manifest.steps, run.nodes, strict=True):
        if node.fan is None:
            continue
        latest = {}
        for row in rows:
            if row["step_ref"] == step.ref and row["item_index"] < node.fan.next:
                # What was behind a redrive it has seen for itself, and was never told.
                known = row["known"] or row["attempt"] < node.attempt
                latest[row["item_index"]] = _CAME.get(row["status"], Came.ENDED) if known else Came.OPEN
        is_counted(step.ref, node, latest)
