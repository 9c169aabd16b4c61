"""Fan-outs: what a child costs, from the trigger to the gathered result, and whether it costs the same in a wide fan-out as in a narrow one (SG-06).

Children do nothing, so what is measured is the engine. Times are the database's, from the accepted start to the end of the run. The log (WAL) is counted
without full page images: those tell when the last checkpoint was, not what a child writes.
"""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import asyncpg

from bench.load import TENANT, pids
from bench.usage import cpu_seconds
from tests.support.api import Api
from tests.support.stack import Stack

WAL_GROWTH = 1.3
"""How much more log a child may write in a fan-out ten times as wide."""
TIME_GROWTH = 1.1
"""How much longer a child may take in a fan-out a hundred times as wide."""


async def fanout(stack: Stack, *, widths: tuple[int, int, int], child_runs: int, repeat: int) -> dict[str, Any]:
    """Inline scatters of these widths, each gathered, and one whose children are runs. `time_growth`: time per child in the widest against the narrowest;
    `wal_growth`: log per child in the widest against the middle."""
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    try:
        async with Api(stack["edges"].target, TENANT) as api:
            await api.publish(_child("fan-child"))
            inline = await api.publish(_scatter("fan-inline", {"action": "noop:noop", "args": {"n": "${{ ITEM }}"}}))
            of_runs = {"mode": "child_workflow", "workflow": {"family_slug": "fan-child"}}
            runs = await api.publish(_scatter("fan-runs", of_runs))
            await _gathered(api, owner, inline, 20)
            await _gathered(api, owner, runs, 20)
            figures: dict[str, Any] = {
                str(width): await _measured(stack, api, owner, inline, width, max(repeat, 1000 // width))
                for width in widths
            }
            figures["child_runs"] = await _measured(stack, api, owner, runs, child_runs, repeat)
            async with _without_page_images(owner):
                for width in widths[1:]:
                    figures[str(width)]["wal_bytes_per_child"] = await _wal(api, owner, inline, width)
                figures["child_runs"]["wal_bytes_per_child"] = await _wal(api, owner, runs, child_runs)
    finally:
        await owner.close()
    narrow, middle, wide = (figures[str(width)] for width in widths)
    figures["time_growth"] = round(wide["us_per_child"] / narrow["us_per_child"], 2)
    figures["wal_growth"] = round(wide["wal_bytes_per_child"] / middle["wal_bytes_per_child"], 2)
    return figures


def shares(figures: Mapping[str, Any], width: int) -> dict[str, float]:
    """Children per second of the widest scatter and of child runs, as shares of the floor program and of the limit of the same run. `figures`: of the whole
    benchmark."""
    inline, runs = figures["fanout"][str(width)]["children_per_s"], figures["fanout"]["child_runs"]["children_per_s"]
    return {
        "inline_of_floor": round(inline / figures["floor_steps_per_s"], 3),
        "inline_of_limit": round(inline / figures["limit_rows_per_s"], 3),
        "runs_of_floor": round(runs / figures["floor_runs_per_s_1"], 3),
    }


def table(figures: Mapping[str, Any], width: int) -> list[tuple[str, Any]]:
    """What the benchmark prints of it."""
    of, share = figures["fanout"], shares(figures, width)
    timed = ", ".join(
        f"{name} in {found['seconds']} s" for name, found in of.items() if name.isdigit() and isinstance(found, dict)
    )
    wide, runs = of[str(width)], of["child_runs"]
    return [
        ("inline scatter, trigger to gathered", timed),
        (
            f"children/s, inline scatter of {width:,}",
            f"{wide['children_per_s']}  = {share['inline_of_floor']} of the floor, {share['inline_of_limit']} of the limit;"
            f" engine CPU {wide['engine_cpu_us_per_child']} µs each",
        ),
        (
            f"children/s, {runs['children']:,} child runs",
            f"{runs['children_per_s']}  = {share['runs_of_floor']} of the floor, in {runs['seconds']} s;"
            f" {runs['wal_bytes_per_child']} bytes of log each",
        ),
        ("the same, time per child, widest against narrowest", f"{of['time_growth']} (promised {TIME_GROWTH})"),
        (
            "the same, log per child, ten times as wide",
            f"{of['wal_growth']} (promised {WAL_GROWTH}), {wide['wal_bytes_per_child']} bytes",
        ),
    ]


async def _measured(
    stack: Stack, api: Api, owner: asyncpg.Connection, definition_id: str, width: int, repeat: int
) -> dict[str, Any]:
    """The median of some runs, one after the other."""
    await owner.execute("checkpoint")
    before = cpu_seconds(pids(stack))
    seconds = [await _gathered(api, owner, definition_id, width) for _ in range(repeat)]
    used = {name: after - before[name] for name, after in cpu_seconds(pids(stack)).items()}
    engine = sum(value for name, value in used.items() if name != "postgres")
    median = statistics.median(seconds)
    return {
        "children": width,
        "seconds": round(median, 3),
        "children_per_s": round(width / median),
        "us_per_child": round(median / width * 1e6, 1),
        "engine_cpu_us_per_child": round(engine / (width * repeat) * 1e6, 1),
        "postgres_cpu_us_per_child": round(used["postgres"] / (width * repeat) * 1e6, 1),
    }


async def _wal(api: Api, owner: asyncpg.Connection, definition_id: str, width: int) -> int:
    """Bytes of log per child, of one run and with nothing else to do."""
    await owner.execute("checkpoint")
    before = await owner.fetchval("select pg_current_wal_insert_lsn()")
    await _gathered(api, owner, definition_id, width)
    written = await owner.fetchval("select (pg_current_wal_insert_lsn() - $1::pg_lsn)::bigint", before)
    return round(int(written) / width)


async def _gathered(api: Api, owner: asyncpg.Connection, definition_id: str, width: int) -> float:
    """Seconds from the start of a run with so many children to its end."""
    text = json.dumps({"items": list(range(width))})
    [run_id] = await api.start_many(definition_id, 1, input_json=text)
    await _until(owner, "select end_time is not null from eec_workflow_run where run_id = $1", run_id)
    row = await owner.fetchrow(
        "select r.status, extract(epoch from r.end_time - s.create_time)::float8 as seconds,"
        " (select json_array_length(a.output -> 'result') from eec_workflow_step_attempt a"
        "  where a.tenant_id = s.tenant_id and a.run_id = s.run_id and a.step_ref = 'gather') as gathered"
        " from eec_workflow_run r join eec_workflow_run_start s using (tenant_id, run_id) where r.run_id = $1",
        run_id,
    )
    assert (row["status"], row["gathered"]) == ("completed", width), row
    return float(row["seconds"])


@asynccontextmanager
async def _without_page_images(owner: asyncpg.Connection) -> AsyncIterator[None]:
    await owner.execute("alter system set full_page_writes = off")
    await owner.execute("select pg_reload_conf()")
    try:
        await _until(owner, "select current_setting('full_page_writes') = 'off'")
        yield
    finally:
        await owner.execute("alter system reset full_page_writes")
        await owner.execute("select pg_reload_conf()")


def _scatter(slug: str, scatter: Mapping[str, Any]) -> dict[str, Any]:
    inline = {} if scatter.get("mode") == "child_workflow" else {"max_inline_children": 10_000}
    fan = {"items_expr": "TRIGGER.payload.items", **scatter, **inline}
    return {
        "family_slug": slug,
        "steps": [
            {"ref": "fan", "type": "scatter", "scatter": fan},
            {"ref": "gather", "type": "gather", "gather": {"scatter_ref": "fan"}},
        ],
        "edges": [{"source_ref": "fan", "target_ref": "gather", "type": "success"}],
    }


def _child(slug: str) -> dict[str, Any]:
    return {"family_slug": slug, "steps": [{"ref": "work", "type": "action", "action": "noop:noop"}]}


async def _until(owner: asyncpg.Connection, what: str, *values: Any) -> None:
    """Until a query says yes: rows have no event."""
    deadline = time.monotonic() + 300
    while not await owner.fetchval(what, *values):
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        await asyncio.sleep(0.01)
