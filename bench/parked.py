"""An idle stack: what it costs to hold runs that wait, with nothing to do.

The runs wait for all there is to wait for, in equal parts: a person, an external event, a moment in a week, and a worker that never comes.
"""

import asyncio
from typing import Any

import asyncpg

from bench.load import TENANT, pids
from bench.usage import cpu_seconds
from bench.waiting import until
from tests.support.api import Api
from tests.support.stack import Stack

SETTLE_S = 6.0
"""More than one round of the net, so that what is measured is the same round after round."""

KINDS: dict[str, dict[str, Any]] = {
    "person": {"type": "approval"},
    "event": {"type": "wait", "wait": {"event": {"event_name": "never", "correlation_key": "RUN.id"}}},
    "moment": {"type": "wait", "wait": {"duration": "P7D"}},
    "worker": {"type": "action", "action": "noop:noop", "queue": "nobody"},
}


async def idle(stack: Stack, *, runs: int, seconds: float) -> dict[str, Any]:
    """`cores`: CPU seconds per second of every process while nothing happens; `ours`: all but Postgres together."""
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    try:
        async with Api(stack["edges"].target, TENANT) as api:
            for name, step in KINDS.items():
                tree = {"family_slug": f"parked-{name}", "steps": [{"ref": "wait", **step}]}
                run_ids = await api.start_many(await api.publish(tree), runs // len(KINDS))
                taken = "select count(*) from eec_workflow_run where run_id = any($1::uuid[]) and end_time is null"
                await until(owner, taken, len(run_ids), run_ids)
            await until(owner, "select count(*) from eec_workflow_wakeup where due_time <= eec_now()", 0)
            parked = await owner.fetchval("select count(*) from eec_workflow_run where end_time is null")
            await owner.execute("vacuum analyze")
            await owner.execute("checkpoint")
    finally:
        await owner.close()
    await asyncio.sleep(SETTLE_S)
    before = cpu_seconds(pids(stack))
    await asyncio.sleep(seconds)
    after = cpu_seconds(pids(stack))
    cores = {name: round((after[name] - before[name]) / seconds, 4) for name in after}
    ours = sum(value for name, value in cores.items() if name != "postgres")
    return {"runs": parked, "seconds": seconds, "cores": cores, "ours": round(ours, 4)}
