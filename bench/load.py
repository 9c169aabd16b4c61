"""Our own figures: a stack of separate processes at default settings, driven through its gRPC API, fsync on.

Throughput is taken from the database's clock, from the first start to the last end; latency is what a caller sees who triggers a run and waits for its last
step through the API.
"""

import asyncio
import statistics
import time
from collections.abc import Mapping
from typing import Any

import asyncpg

from bench.usage import cpu_seconds, memory_mb
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from tests.support.api import Api, chain
from tests.support.stack import Stack

TENANT = "bench"


def pids(stack: Stack) -> dict[str, int]:
    """Process ids by member name, Postgres included."""
    postgres = stack.postgres.pid()
    assert postgres is not None
    return {"postgres": postgres, **{name: member.pid for name, member in stack.members.items()}}


async def throughput(stack: Stack, *, slug: str, steps: int, runs: int) -> dict[str, Any]:
    """Runs of `steps` noop steps triggered in batches of 500, while the stack works: runs/s, steps/s, CPU per step and memory by process."""
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    try:
        async with Api(stack["edges"].target, TENANT) as api:
            definition_id = await api.publish(chain(slug, steps))
            besides = await open_runs(owner)
            await api.start_many(definition_id, 20)
            await until_ended(owner, besides)
            await owner.execute("checkpoint")
            before = cpu_seconds(pids(stack))
            run_ids = await api.start_many(definition_id, runs)
            await until_ended(owner, besides)
            after = cpu_seconds(pids(stack))
        seconds = await owner.fetchval(
            "select extract(epoch from max(r.end_time) - min(s.create_time))::float8 from eec_workflow_run_start s"
            " join eec_workflow_run r using (tenant_id, run_id) where s.run_id = any($1::uuid[])",
            run_ids,
        )
        failed = await owner.fetchval(
            "select count(*) from eec_workflow_run where status <> 'completed' and run_id = any($1::uuid[])", run_ids
        )
        attempts = await owner.fetchval(
            "select count(*) from eec_workflow_step_attempt where status = 'succeeded' and run_id = any($1::uuid[])",
            run_ids,
        )
        assert (failed, attempts) == (0, runs * steps), "every run completed, every step took one attempt"
    finally:
        await owner.close()
    total = runs * steps
    return {
        "runs": runs,
        "seconds": round(seconds, 3),
        "runs_per_s": round(runs / seconds, 1),
        "steps_per_s": round(total / seconds, 1),
        "cpu_us_per_step": {name: round((after[name] - before[name]) / total * 1e6, 1) for name in after},
        "memory_mb": {name: round(value, 1) for name, value in memory_mb(pids(stack)).items()},
    }


async def open_runs(owner: asyncpg.Connection) -> int:
    """How many runs are open."""
    return int(await owner.fetchval("select count(*) from eec_workflow_run where end_time is null"))


async def until_ended(owner: asyncpg.Connection, besides: int = 0) -> None:
    """Until no run is open or to be begun, `besides` so many that were open before. Looks at a few rows of small indexes, so that what is measured is not the
    looking: counting the ended runs cost an eighth of what Postgres did for them."""
    deadline = time.monotonic() + 300
    sql = (
        "select exists (select from eec_workflow_wakeup where due_time <= now())"
        " or exists (select from eec_workflow_run where end_time is null offset $1)"
    )
    while await owner.fetchval(sql, besides):
        if time.monotonic() > deadline:
            raise TimeoutError("the runs did not end")
        await asyncio.sleep(0.1)


async def latency(stack: Stack, *, slug: str, steps: int, count: int) -> Mapping[str, float]:
    """One run at a time: milliseconds from the trigger call to its answer, which comes when the last step has succeeded."""
    last = f"s{steps - 1}"
    tree = chain(slug, steps) | {"checkpoints": [{"name": "end", "step_refs": [last]}]}
    async with Api(stack["edges"].target, TENANT) as api:
        request = triggers.TriggerWorkflowRequest(definition_id=await api.publish(tree), wait_for_checkpoint=True)
        times = []
        for number in range(count + 10):
            begin = time.perf_counter()
            answer = await api.triggers.TriggerWorkflow(request, metadata=api.metadata, timeout=60)
            assert answer.checkpoint_reached
            if number >= 10:
                times.append((time.perf_counter() - begin) * 1000)
    times.sort()
    return {
        "p50": round(statistics.median(times), 2),
        "p99": round(times[min(int(len(times) * 0.99), len(times) - 1)], 2),
    }
