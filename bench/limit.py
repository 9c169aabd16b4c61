"""The limit: what this Postgres alone does on this machine, without any engine, 500 run-advances per transaction.

Each row advanced is a version-checked update, an insert and a queue row deleted under SKIP LOCKED, driven by pgbench of the same server.
"""

import re
import subprocess
import tempfile
from pathlib import Path

import asyncpg

from ductord.db.embedded import binaries

SCHEMA = """
drop table if exists limit_run, limit_attempt, limit_queue;
create table limit_run (run_id bigint primary key, version int not null default 0, nodes jsonb not null) with (fillfactor = 70);
create table limit_attempt (run_id bigint, version int, status text, output jsonb, primary key (run_id, version));
create table limit_queue (queue_id bigserial primary key, run_id bigint not null);
insert into limit_run (run_id, nodes) select g, '{"a": {"status": "succeeded"}, "b": {"status": "running"}}' from generate_series(1, 100000) g;
insert into limit_queue (run_id) select 1 + g % 100000 from generate_series(1, {rows}) g;
"""
ROWS_PER_SECOND = 400_000
"""More than any machine has been seen to advance: what finds an empty queue advances nothing, and must not be counted."""
SCRIPT = """
with taken as (
    delete from limit_queue where queue_id = any(array(select queue_id from limit_queue order by queue_id limit 500 for update skip locked)) returning run_id),
advanced as (
    update limit_run r set version = version + 1 from (select distinct run_id from taken) t
    where r.run_id = t.run_id and r.version >= 0 returning r.run_id, r.version)
insert into limit_attempt (run_id, version, status, output) select run_id, version, 'succeeded', '{"ok": true}' from advanced on conflict do nothing;
"""


async def rows_per_second(dsn: str, seconds: int = 4) -> float:
    """Rows advanced per second, 2 clients, 500 rows per transaction."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(SCHEMA.replace("{rows}", str(seconds * ROWS_PER_SECOND)))
        await connection.execute("vacuum analyze limit_run, limit_queue")
    finally:
        await connection.close()
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(SCRIPT)
        script.flush()
        Path(script.name).chmod(0o644)
        output = subprocess.run(
            [str(binaries() / "pgbench"), "-n", "-M", "prepared", "-c", "2", "-j", "2", "-T", str(seconds), "-f", script.name, dsn],
            check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
    match = re.search(r"tps = ([\d.]+)", output)
    if match is None:
        raise RuntimeError(f"pgbench said nothing of tps: {output}")
    connection = await asyncpg.connect(dsn)
    try:
        if not await connection.fetchval("select exists (select from limit_queue)"):
            raise RuntimeError("the queue ran dry: there is no telling how fast it was emptied")
    finally:
        await connection.close()
    return float(match[1]) * 500
