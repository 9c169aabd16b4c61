"""`python -m bench [--quick] [--json FILE]`: a fresh stack, its figures, and next to them the limit and the floor program of the same run.

Absolute figures move with the machine and its neighbours; quote the shares.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import asyncpg

from bench import dataflow, fanout, floor, generations, limit, load, waiting
from ductord.db.embedded import EmbeddedPostgres
from tests.support.stack import running_stack

TARGET_10, TARGET_1 = 0.12, 0.10
"""Shares of the floor program that this release promises for 10-step and 1-step runs."""
WIDTHS = (100, 1_000, 10_000)
"""Of the inline scatters: narrow, middle, wide."""


async def _yardstick(postgres: EmbeddedPostgres, quick: bool) -> dict[str, Any]:
    admin = await asyncpg.connect(postgres.dsn("postgres"))
    await admin.execute("create database yardstick")
    await admin.close()
    dsn = postgres.dsn("yardstick")
    runs = 1000 if quick else 2000
    by_batch = {
        str(batch): round(await floor.measure(dsn, runs=runs, steps=10, batch=batch)) for batch in (20, 100, 500)
    }
    return {
        "limit_rows_per_s": round(await limit.rows_per_second(dsn, 2 if quick else 5)),
        "floor_steps_per_s_by_batch": by_batch,
        "floor_steps_per_s": max(by_batch.values()),
        "floor_runs_per_s_1": round(await floor.measure(dsn, runs=10_000, steps=1, batch=500)),
    }


async def _figures(quick: bool) -> dict[str, Any]:
    runs = 2000 if quick else 5000
    with running_stack() as stack:
        figures = await _yardstick(stack.postgres, quick)
        ten = await load.throughput(stack, slug="ten", steps=10, runs=runs)
        one = await load.throughput(stack, slug="one", steps=1, runs=2 * runs)
        figures |= {
            "steps_per_s_10": ten["steps_per_s"],
            "share_of_floor_10": round(ten["steps_per_s"] / figures["floor_steps_per_s"], 3),
            "runs_per_s_1": one["runs_per_s"],
            "share_of_floor_1": round(one["runs_per_s"] / figures["floor_runs_per_s_1"], 3),
            "latency_1_step_ms": await load.latency(stack, slug="lat1", steps=1, count=100 if quick else 500),
            "latency_10_steps_ms": await load.latency(stack, slug="lat10", steps=10, count=30 if quick else 200),
            "cpu_us_per_step": ten["cpu_us_per_step"],
            "engine_cpu_us_per_step": round(sum(v for k, v in ten["cpu_us_per_step"].items() if k != "postgres"), 1),
            "memory_mb": one["memory_mb"],
            "dataflow": dataflow.per_element(1 if quick else 5),
            "fanout": await fanout.fanout(stack, widths=WIDTHS, child_runs=1000, repeat=1 if quick else 5),
            "generations": await generations.loop(stack, generations=300 if quick else 1000),
            "timer_lateness_ms": await waiting.lateness(stack, count=100 if quick else 300),
            "approve_to_next_step_ms": await waiting.decisions(stack, count=50 if quick else 300),
            "timers": await waiting.timers(stack, count=2000 if quick else 10_000),
            "events": await waiting.events(stack, few=100, many=10_000, count=2000 if quick else 5000),
            "ten_step_runs": ten,
            "one_step_runs": one,
        }
    return figures


def _table(figures: dict[str, Any]) -> str:
    cpu = figures["cpu_us_per_step"]
    rows = [
        ("Postgres alone, rows advanced/s (500 per transaction)", figures["limit_rows_per_s"]),
        ("floor program, steps/s of 10-step runs, by batch", figures["floor_steps_per_s_by_batch"]),
        ("floor program, 1-step runs/s", figures["floor_runs_per_s_1"]),
        (
            "steps/s, 10-step runs",
            f"{figures['steps_per_s_10']}  = {figures['share_of_floor_10']} of the floor (promised {TARGET_10})",
        ),
        (
            "runs/s, 1-step runs",
            f"{figures['runs_per_s_1']}  = {figures['share_of_floor_1']} of the floor (promised {TARGET_1})",
        ),
        ("latency 1 step, ms", figures["latency_1_step_ms"]),
        ("latency 10 steps, ms", figures["latency_10_steps_ms"]),
        (
            "engine CPU per step, µs",
            f"{figures['engine_cpu_us_per_step']}  " + ", ".join(f"{k} {v}" for k, v in cpu.items()),
        ),
        ("continue-as-new generations, first against last 100", figures["generations"]),
        *fanout.table(figures, WIDTHS[-1]),
        dataflow.row(figures["dataflow"]),
        *_waiting(figures),
        ("memory, MB", ", ".join(f"{k} {v}" for k, v in figures["memory_mb"].items())),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _waiting(figures: dict[str, Any]) -> list[tuple[str, Any]]:
    events, timers = figures["events"], figures["timers"]
    rates = ", ".join(
        f"{waiters} waiters {rate['matched_per_s']} matched, {rate['unmatched_per_s']} unmatched"
        for waiters, rate in events.items()
        if isinstance(rate, dict)
    )
    return [
        ("events published/s", rates),
        (
            "the same, how much dearer with many waiters",
            f"{events['ratio_matched']} matched, {events['ratio_unmatched']} unmatched (promised {waiting.RATIO}); in CPU"
            f" {events['cpu_ratio_matched']}, {events['cpu_ratio_unmatched']}",
        ),
        (f"timers fired/s, {timers['timers']} due at once", timers["per_s"]),
        ("timer lateness on an idle stack, ms", figures["timer_lateness_ms"]),
        ("approve to next step, ms", figures["approve_to_next_step_ms"]),
    ]


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer runs, a few minutes")
    parser.add_argument("--json", type=Path, help="write the figures here too")
    arguments = parser.parse_args()
    figures = asyncio.run(_figures(arguments.quick))
    print(_table(figures))
    print(json.dumps(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
