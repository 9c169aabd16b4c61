"""The floor program: the least that an engine of this design must write, as the yardstick of our own figures.

One coordinator and one worker, each a process with asyncpg and LISTEN/NOTIFY, over three tables. Per step six durable row writes in three transactions: the
attempt is queued, claimed and finished; a message tells the coordinator, which deletes it and advances the run under a version check. There are no policies,
retries, expressions, events, leases, gRPC or history: a real engine does more work a step, and is measured as a share of this.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

import asyncpg
import orjson

SCHEMA = """
drop table if exists floor_run, floor_attempt, floor_message;
create table floor_run (
    run_id bigint primary key, version int not null default 0, steps int not null, done int not null default 0,
    nodes jsonb not null default '{}', end_time timestamptz
) with (fillfactor = 60);
create table floor_attempt (
    attempt_id bigserial primary key, run_id bigint not null, step text not null, attempt int not null default 1, status text not null, worker text,
    output jsonb, create_time timestamptz not null default clock_timestamp(), start_time timestamptz, end_time timestamptz
) with (fillfactor = 70);
create unique index on floor_attempt (run_id, step, attempt);
create index on floor_attempt (attempt_id) where status = 'queued';
create table floor_message (message_id bigserial primary key, run_id bigint not null, step text, output jsonb);
"""

TAKE_MESSAGES = """
delete from floor_message where message_id = any(array(
    select message_id from floor_message order by message_id limit $1 for update skip locked))
returning run_id, step, output::text
"""
LOAD_RUNS = "select run_id, version, steps, done, nodes::text from floor_run where run_id = any($1::bigint[])"
ADVANCE_RUNS = """
update floor_run r set version = r.version + 1, done = x.done, nodes = x.nodes::jsonb, end_time = case when x.done >= r.steps then clock_timestamp() end
from unnest($1::bigint[], $2::int[], $3::int[], $4::text[]) as x(run_id, version, done, nodes)
where r.run_id = x.run_id and r.version = x.version returning r.run_id
"""
QUEUE = "insert into floor_attempt (run_id, step, status) select run_id, step, 'queued' from unnest($1::bigint[], $2::text[]) as x(run_id, step)"
CLAIM = """
update floor_attempt set status = 'claimed', worker = 'w', start_time = now() where attempt_id = any(array(
    select attempt_id from floor_attempt where status = 'queued' order by attempt_id limit $1 for update skip locked))
returning attempt_id, run_id, step
"""
FINISH = """
with done as (
    update floor_attempt a set status = 'succeeded', end_time = now(), output = x.output::jsonb from unnest($1::bigint[], $2::text[]) as x(attempt_id, output)
    where a.attempt_id = x.attempt_id and a.status = 'claimed' returning a.run_id, a.step, a.output),
told as (insert into floor_message (run_id, step, output) select run_id, step, output from done returning 1)
select pg_notify('floor_message', '') where exists (select from told)
"""


@asynccontextmanager
async def _listening(dsn: str, channel: str) -> AsyncIterator[asyncio.Event]:
    event = asyncio.Event()
    event.set()
    connection = await asyncpg.connect(dsn)
    await connection.add_listener(channel, lambda *_: event.set())
    try:
        yield event
    finally:
        await connection.close()


async def _hint(event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), 0.5)


async def coordinator(dsn: str, batch: int) -> None:
    """Advance runs for ever: one transaction per batch of messages."""
    connection = await asyncpg.connect(dsn)
    async with _listening(dsn, "floor_message") as event:
        while True:
            event.clear()
            async with connection.transaction():
                messages = await connection.fetch(TAKE_MESSAGES, batch)
                if messages:
                    await _advance(connection, messages)
            if not messages:
                await _hint(event)


async def _advance(connection: asyncpg.Connection, messages: list[asyncpg.Record]) -> None:
    rows = await connection.fetch(LOAD_RUNS, list({m["run_id"] for m in messages}))
    runs = {row["run_id"]: {**row, "nodes": orjson.loads(row["nodes"])} for row in rows}
    queue: list[tuple[int, str]] = []
    for message in messages:
        run, step = runs[message["run_id"]], message["step"]
        if step is not None:
            run["done"] += 1
            run["nodes"][step] = {"status": "succeeded", "attempt": 1, "output": orjson.loads(message["output"])}
        if run["done"] < run["steps"]:
            queue.append((run["run_id"], f"s{run['done']}"))
            run["nodes"][f"s{run['done']}"] = {"status": "queued", "attempt": 1}
    values = list(runs.values())
    advanced = await connection.fetch(
        ADVANCE_RUNS,
        [r["run_id"] for r in values],
        [r["version"] for r in values],
        [r["done"] for r in values],
        [orjson.dumps(r["nodes"]).decode() for r in values],
    )
    assert len(advanced) == len(values), "the floor program has one writer: nobody can have been faster"
    if queue:
        await connection.execute(QUEUE, [run for run, _ in queue], [step for _, step in queue])
        await connection.execute("select pg_notify('floor_task', '')")
    if any(r["done"] >= r["steps"] for r in values):
        await connection.execute("select pg_notify('floor_done', '')")


async def worker(dsn: str, batch: int) -> None:
    """Claim and finish attempts for ever, in batches."""
    connection = await asyncpg.connect(dsn)
    async with _listening(dsn, "floor_task") as event:
        while True:
            event.clear()
            claimed = await connection.fetch(CLAIM, batch)
            if claimed:
                await connection.execute(FINISH, [row["attempt_id"] for row in claimed], ['{"ok":true}'] * len(claimed))
            else:
                await _hint(event)


async def measure(dsn: str, *, runs: int, steps: int, batch: int) -> float:
    """Steps per second from the first attempt to the last end, for `runs` runs of `steps` steps that all wait at the start."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(SCHEMA)
        await connection.execute(
            "insert into floor_run (run_id, steps) select g, $2 from generate_series(1, $1::int) g", runs, steps
        )
        await connection.execute("insert into floor_message (run_id) select run_id from floor_run order by run_id")
        await connection.execute("vacuum analyze floor_run, floor_attempt, floor_message")
        with _running(dsn, batch) as processes:
            deadline = time.monotonic() + 120
            while await connection.fetchval("select exists (select from floor_run where end_time is null)"):
                if time.monotonic() > deadline or any(p.poll() is not None for p in processes):
                    raise RuntimeError("the floor program did not finish")
                await asyncio.sleep(0.2)
        seconds = await connection.fetchval(
            "select extract(epoch from (select max(end_time) from floor_run) - (select min(create_time) from floor_attempt))::float8"
        )
        return float(runs * steps / seconds)
    finally:
        await connection.close()


async def latency(dsn: str, *, steps: int, count: int) -> dict[str, float]:
    """One run at a time: milliseconds from the insert of a run to the notification of its end."""
    connection = await asyncpg.connect(dsn)
    times = []
    try:
        await connection.execute(SCHEMA)
        async with _listening(dsn, "floor_done") as event:
            with _running(dsn, 20):
                for run_id in range(1, count + 11):
                    event.clear()
                    begin = time.perf_counter()
                    async with connection.transaction():
                        await connection.execute("insert into floor_run (run_id, steps) values ($1, $2)", run_id, steps)
                        await connection.execute("insert into floor_message (run_id) values ($1)", run_id)
                        await connection.execute("select pg_notify('floor_message', '')")
                    await asyncio.wait_for(event.wait(), 30)
                    if run_id > 10:
                        times.append((time.perf_counter() - begin) * 1000)
    finally:
        await connection.close()
    times.sort()
    return {"p50": round(statistics.median(times), 2), "p99": round(times[int(len(times) * 0.99)], 2)}


@contextmanager
def _running(dsn: str, batch: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A coordinator and a worker."""
    processes = [
        subprocess.Popen([sys.executable, "-m", "bench.floor", role, "--dsn", dsn, "--batch", str(batch)])
        for role in ("coordinator", "worker")
    ]
    try:
        yield processes
    finally:
        for process in processes:
            process.terminate()
            process.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["coordinator", "worker"])
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--batch", type=int, required=True)
    arguments = parser.parse_args()
    asyncio.run({"coordinator": coordinator, "worker": worker}[arguments.role](arguments.dsn, arguments.batch))
