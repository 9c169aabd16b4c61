"""Looks at a stack under load: memory, the age of what is queued, dead rows and sizes of the hot tables; and what steps took, by the rows of the database."""

import time
from typing import Any

import asyncpg

from bench.load import pids
from bench.usage import memory_mb
from tests.support.stack import Stack

KEPT = ("eec_workflow_run", "eec_workflow_step_attempt", "eec_workflow_transition", "eec_workflow_run_start")
"""Hot tables whose rows stay: what may not grow is how many bytes a row takes."""
TURNED_OVER = ("eec_workflow_wakeup", "eec_workflow_timer")
"""Hot tables whose rows go: what may not grow is their size."""

_TABLES = """
select relname::text, n_live_tup as live, n_dead_tup as dead, pg_total_relation_size(relid) as bytes, autovacuum_count as vacuums
from pg_stat_user_tables where relname = any($1::text[])
"""
_AGE = """
select coalesce((select extract(epoch from eec_now() - min(due_time)) from eec_workflow_wakeup where due_time <= eec_now()), 0)::float8 as wakeup_s,
    coalesce((select extract(epoch from eec_now() - min(due_time)) from eec_workflow_step_attempt
              where status = 'open' and report_time is null and lease_secret is null and due_time <= eec_now()), 0)::float8 as task_s
"""
_STEPS = """
with run as (select tenant_id, run_id from eec_workflow_run where run_id = any($1::uuid[]) and status = 'completed'),
attempt as (
    select a.create_time, a.start_time, lead(a.create_time) over (partition by a.run_id order by a.create_time, a.step_ref) as next_time
    from run join eec_workflow_step_attempt a using (tenant_id, run_id))
select extract(epoch from start_time - create_time)::float8 as queued, extract(epoch from next_time - start_time)::float8 as worked from attempt
"""


async def sample(stack: Stack, owner: asyncpg.Connection, begin: float) -> dict[str, Any]:
    """One look. Memory is that of our processes: reading Postgres' own would cost what it measures."""
    ours = {name: pid for name, pid in pids(stack).items() if name != "postgres"}
    tables = {row["relname"]: dict(row) for row in await owner.fetch(_TABLES, [*KEPT, *TURNED_OVER])}
    age = await owner.fetchrow(_AGE)
    return {
        "at_s": round(time.perf_counter() - begin, 1),
        "memory_mb": {name: round(value, 1) for name, value in memory_mb(ours).items()},
        "queue_age_s": {name: round(value, 3) for name, value in age.items()},
        "dead_rows": {name: row["dead"] for name, row in tables.items()},
        "bytes_per_row": {name: round(tables[name]["bytes"] / max(tables[name]["live"], 1)) for name in KEPT},
        "size_mb": {name: round(tables[name]["bytes"] / 1e6, 2) for name in TURNED_OVER},
        "vacuums": {name: row["vacuums"] for name, row in tables.items()},
        "open_runs": await owner.fetchval("select count(*) from eec_workflow_run where end_time is null"),
    }


async def steps(owner: asyncpg.Connection, run_ids: list[str]) -> tuple[list[float], list[float]]:
    """Of these runs' steps, if the runs are over: seconds from being queued to being started, and from that to the next step's being queued."""
    rows = await owner.fetch(_STEPS, run_ids)
    return [row["queued"] for row in rows], [row["worked"] for row in rows if row["worked"] is not None]
