"""The benchmark itself: two fresh stacks, one stage after another, all figures in one tree.

The first stack is measured while it works; the second is for what takes many runs: memory over them, then the idle stack with runs that wait. What is quoted
as a share of the floor program is taken in turns with it.
"""

import statistics
import sys
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, TypeVar

import asyncpg

from bench import dataflow, fanout, floor, generations, history, limit, load, memory, parked, shares, starting, waiting
from bench.environment import environment
from ductord.db.embedded import EmbeddedPostgres
from tests.support.stack import running_stack

WIDTHS = (100, 1_000, 10_000)
"""Of the inline scatters: narrow, middle, wide."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is measured. `runs`: of 10 steps; twice as many of 1 step."""

    rounds: int
    runs: int
    repeat: int
    latency_1: int
    latency_10: int
    generations: int
    lateness: int
    decisions: int
    timers: int
    events: int
    starting: int
    history: int
    history_rounds: int
    memory_runs: int
    idle_s: float
    limit_s: int


FULL = Size(
    rounds=3, runs=5_000, repeat=5, latency_1=500, latency_10=200, generations=1_000, lateness=200, decisions=300, timers=10_000,
    events=5_000, starting=2_000, history=10_000, history_rounds=10, memory_runs=100_000, idle_s=30, limit_s=5,
)  # fmt: skip
QUICK = Size(
    rounds=1, runs=2_000, repeat=1, latency_1=100, latency_10=30, generations=250, lateness=50, decisions=40, timers=2_000,
    events=1_000, starting=500, history=2_000, history_rounds=4, memory_runs=20_000, idle_s=10, limit_s=2,
)  # fmt: skip


async def figures(size: Size) -> dict[str, Any]:
    """Everything. The keys of `bench.targets.KEYS` are at the top."""
    found: dict[str, Any] = {"seconds_by_stage": {}}
    stage = _Stages(found["seconds_by_stage"])
    with running_stack(forked=False) as stack:
        found["environment"] = await environment(stack.postgres.dsn("postgres"))
        # Latency first: what a load leaves behind is vacuumed for minutes, and a stack on which that goes on is not idle.
        found["latency_1_step_ms"] = await stage(
            "latency 1", load.latency(stack, slug="lat1", steps=1, count=size.latency_1)
        )
        found["latency_10_steps_ms"] = await stage(
            "latency 10", load.latency(stack, slug="lat10", steps=10, count=size.latency_10)
        )
        found |= await stage("yardstick", _yardstick(stack.postgres, size))
        found |= await stage("throughput", _throughput(stack, size))
        found["dataflow"] = dataflow.per_element(size.repeat)
        found["fanout"] = await stage(
            "fan-outs", fanout.fanout(stack, widths=WIDTHS, child_runs=1_000, repeat=size.repeat)
        )
        found["generations"] = await stage("generations", generations.loop(stack, generations=size.generations))
        found["history"] = await stage(
            "history", history.growth(stack, transitions=size.history, rounds=size.history_rounds, ticks=50)
        )
        found["timer_lateness_ms"] = await stage("lateness", waiting.lateness(stack, count=size.lateness))
        found["approve_to_next_step_ms"] = await stage("decisions", waiting.decisions(stack, count=size.decisions))
        found["timers"] = await stage("timers", waiting.timers(stack, count=size.timers))
        found["events"] = await stage("events", waiting.events(stack, few=100, many=10_000, count=size.events))
        found["triggers"] = await stage(
            "triggers", starting.triggers(stack, few=100, many=10_000, count=size.starting, rounds=5)
        )
    with running_stack(forked=False) as stack:
        found["memory"] = await stage("memory", memory.over_runs(stack, runs=size.memory_runs))
        found["parked"] = await stage("parked", parked.idle(stack, runs=10_000, seconds=size.idle_s))
    found |= _at_the_top(found)
    found["shares"] = shares.shares(found)
    found["seconds"] = round(sum(found["seconds_by_stage"].values()), 1)
    return found


class _Stages:
    """Says which stage is measured and how long it took."""

    def __init__(self, seconds: dict[str, float]) -> None:
        self._seconds = seconds

    async def __call__(self, name: str, work: Awaitable[T]) -> T:
        begin = time.monotonic()
        result = await work
        self._seconds[name] = round(time.monotonic() - begin, 1)
        print(f"{name:12} {self._seconds[name]:6.1f} s", file=sys.stderr, flush=True)
        return result


async def _yardstick(postgres: EmbeddedPostgres, size: Size) -> dict[str, Any]:
    admin = await asyncpg.connect(postgres.dsn("postgres"))
    await admin.execute("create database yardstick")
    await admin.close()
    dsn = postgres.dsn("yardstick")
    return {
        "limit_rows_per_s": round(await limit.rows_per_second(dsn, size.limit_s)),
        "floor_steps_per_s_by_batch": {
            str(batch): round(await floor.measure(dsn, runs=size.runs, steps=10, batch=batch)) for batch in (20, 100)
        },
        "floor_latency_1_step_ms": await floor.latency(dsn, steps=1, count=size.latency_1),
        "floor_latency_10_steps_ms": await floor.latency(dsn, steps=10, count=size.latency_10),
    }


async def _throughput(stack: Any, size: Size) -> dict[str, Any]:
    """The floor program at its best batch and the stack in turns; medians of both. Of 1-step runs the floor is taken at batches of 100, as it was where the
    promise was made, and at its best batch too."""
    dsn, batch, batch_1 = stack.postgres.dsn("yardstick"), 500, 100
    floors, floors_1, best_1, tens, ones = [], [], [], [], []
    for turn in range(size.rounds):
        floors.append(await floor.measure(dsn, runs=2 * size.runs, steps=10, batch=batch))
        tens.append(await load.throughput(stack, slug=f"ten{turn}", steps=10, runs=size.runs))
        floors_1.append(await floor.measure(dsn, runs=4 * size.runs, steps=1, batch=batch_1))
        best_1.append(await floor.measure(dsn, runs=4 * size.runs, steps=1, batch=batch))
        ones.append(await load.throughput(stack, slug=f"one{turn}", steps=1, runs=2 * size.runs))
    return {
        "floor_steps_per_s": round(statistics.median(floors)),
        "floor_runs_per_s_1": round(statistics.median(floors_1)),
        "floor_runs_per_s_1_by_batch": {
            str(batch_1): round(statistics.median(floors_1)),
            str(batch): round(statistics.median(best_1)),
        },
        "ten_step_runs": sorted(tens, key=_rate)[len(tens) // 2],
        "one_step_runs": sorted(ones, key=_rate)[len(ones) // 2],
        "ten_step_rates": [_rate(ten) for ten in tens],
        "one_step_rates": [_rate(one) for one in ones],
        "floor_rates": [round(rate) for rate in floors],
    }


def _rate(found: dict[str, Any]) -> float:
    return float(found["steps_per_s"])


def _at_the_top(found: dict[str, Any]) -> dict[str, Any]:
    """The figures that are promised, under the names by which they are known."""
    by_process, one, ten = (
        found["ten_step_runs"]["cpu_us_per_step"],
        found["latency_1_step_ms"]["p50"],
        found["latency_10_steps_ms"]["p50"],
    )
    by_batch = found["floor_steps_per_s_by_batch"] | {"500": found["floor_steps_per_s"]}
    return {
        "floor_steps_per_s_by_batch": by_batch,
        "floor_steps_per_s": max(by_batch.values()),
        "steps_per_s_10": found["ten_step_runs"]["steps_per_s"],
        "runs_per_s_1": found["one_step_runs"]["runs_per_s"],
        "further_step_ms": round((ten - one) / 9, 2),
        "scatter_1k_s": found["fanout"]["1000"]["seconds"],
        "scatter_10k_s": found["fanout"]["10000"]["seconds"],
        "child_runs_1k_s": found["fanout"]["child_runs"]["seconds"],
        "cpu_us_per_step": round(sum(used for name, used in by_process.items() if name != "postgres"), 1),
        "cpu_us_per_step_by_process": by_process,
        "memory_mb": found["memory"]["largest_mb"],
        "memory_growth": found["memory"]["growth"],
        "memory_mb_by_process": found["memory"]["at_the_end_mb"],
        "growth_width": found["fanout"]["time_growth"],
        "growth_history": found["history"]["cpu_growth"],
        "events_per_s_100_triggers": found["triggers"]["100"]["per_s"],
        "events_per_s_10k_triggers": found["triggers"]["10000"]["per_s"],
        "growth_triggers": found["triggers"]["growth"],
        "idle_cores": found["parked"]["ours"],
    }
