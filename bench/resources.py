"""What a load uses up, and what it waits for: CPU by process, log, commits, connections, and where the sessions of Postgres are at each moment.

`python -m bench.resources [--json FILE]`: one stack as it comes, then with Postgres on one core and everything of ours on the other (a Postgres of its own,
as far as two cores can show it), then with the coordinator on a core of its own.
"""

import argparse
import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from bench import load
from bench.environment import environment
from bench.usage import family
from tests.support.stack import Stack, running_stack

EVERY_S = 0.02
_SESSIONS = """
select usename::text as role, coalesce(wait_event_type || ':' || wait_event, 'on the processor') as at, count(*) as sessions
from pg_stat_activity where backend_type = 'client backend' and state = 'active' and pid <> pg_backend_pid() and usename like 'ductor%' group by 1, 2
"""
_COUNTERS = """
select pg_current_wal_insert_lsn() as lsn, d.xact_commit, d.deadlocks, w.wal_records, w.wal_fpi
from pg_stat_database d, pg_stat_wal w where d.datname = 'ductor'
"""


async def used(stack: Stack, *, slug: str, runs: int, steps: int = 10) -> dict[str, Any]:
    """One load of runs and what it used: the figures of `load.throughput`, and per step what Postgres did for it."""
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    sessions: Counter[str] = Counter()
    try:
        before = await owner.fetchrow(_COUNTERS)
        sampler = asyncio.create_task(_sample(stack, sessions))
        found = await load.throughput(stack, slug=slug, steps=steps, runs=runs)
        sampler.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await sampler
        await asyncio.sleep(1.2)  # backends report what they counted at most once a second
        after = await owner.fetchrow(_COUNTERS)
        connections = await owner.fetchval("select count(*) from pg_stat_activity where usename like 'ductor%'")
    finally:
        await owner.close()
    total, samples = runs * steps, sessions.pop("samples", 0) or 1
    active = {at: round(count / samples, 2) for at, count in sessions.most_common(12)}
    return found | {
        "wal_bytes_per_step": round((after["lsn"] - before["lsn"]) / total),
        "wal_records_per_step": round((after["wal_records"] - before["wal_records"]) / total, 1),
        "commits_per_step": round((after["xact_commit"] - before["xact_commit"]) / total, 3),
        "deadlocks": after["deadlocks"] - before["deadlocks"],
        "connections": connections,
        "cores_used": round(sum(found["cpu_us_per_step"].values()) * found["steps_per_s"] / 1e6, 2),
        "active_sessions": active,
        "waiting_for_locks": round(sum(value for at, value in active.items() if " Lock:" in at), 3),
    }


async def _sample(stack: Stack, sessions: Counter[str]) -> None:
    """Counts which sessions are active, and at what."""
    connection = await asyncpg.connect(stack.postgres.dsn("ductor"))
    try:
        while True:
            sessions["samples"] += 1
            for row in await connection.fetch(_SESSIONS):
                sessions[f"{row['role'].removeprefix('ductor_')} {row['at']}"] += row["sessions"]
            await asyncio.sleep(EVERY_S)
    finally:
        await connection.close()


def pin(stack: Stack, *, alone: Iterable[str], core: int = 0) -> None:
    """These members (`postgres` is one) get a core of their own, all others another. Children of a process go where it goes."""
    names = set(alone)
    for name, pid in load.pids(stack).items():
        for process in family(pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.cpu_affinity([core if name in names else core + 1])
                for thread in process.threads():
                    with contextlib.suppress(psutil.Error):
                        psutil.Process(thread.id).cpu_affinity([core if name in names else core + 1])


async def _measured(runs: int) -> dict[str, Any]:
    layouts: dict[str, tuple[str, ...]] = {
        "as it comes": (),
        "postgres on a core of its own": ("postgres",),
        "coordinator on a core of its own": ("coordinator0",),
    }
    found: dict[str, Any] = {}
    with running_stack(forked=False) as stack:
        found["environment"] = await environment(stack.postgres.dsn("postgres"))
        await load.throughput(stack, slug="warm", steps=10, runs=500)
        for number, (title, alone) in enumerate(layouts.items()):
            if alone:
                pin(stack, alone=alone)
            found[title] = await used(stack, slug=f"load{number}", runs=runs)
    return found


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="bench.resources", description=__doc__)
    parser.add_argument("--runs", type=int, default=4_000, help="10-step runs per layout")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = asyncio.run(_measured(arguments.runs))
    for title, figures in found.items():
        print(title)
        for name, value in figures.items():
            print(f"  {name:22} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
