"""See the package. Exit code 1 where something grew, a call failed or the load was not held."""

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import asyncpg

from bench import load
from bench.environment import environment
from bench.soak import samples, verdict
from bench.soak.callers import STEPS, Others, Starting
from bench.soak.timed import Times, percentile
from bench.usage import cpu_seconds
from tests.support.api import Api
from tests.support.stack import Stack, running_stack

TENANT = "soak"
SHARE = 0.6
SAMPLES = 60
"""Looks at the stack, spread over the time; at most one a second."""
HELD = 0.98
"""Share of the wanted rate that must have been reached."""


async def soak(*, minutes: float, rate: float | None, share: float) -> dict[str, Any]:
    """A fresh stack, its throughput where no rate is given, and the load. `rate`: steps per second of which `share` is held."""
    with running_stack(forked=False) as stack:
        found: dict[str, Any] = {"environment": await environment(stack.postgres.dsn("postgres"))}
        if rate is None:
            await load.throughput(stack, slug="warm", steps=STEPS, runs=500)
            rate = (await load.throughput(stack, slug="ten", steps=STEPS, runs=4_000))["steps_per_s"]
        found |= {"throughput_steps_per_s": rate, "wanted_steps_per_s": round(rate * share, 1), "minutes": minutes}
        found |= await _held(stack, rate * share, minutes * 60)
    return found


async def _held(stack: Stack, steps_per_s: float, seconds: float) -> dict[str, Any]:
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    try:
        async with Api(stack["edges"].target, TENANT) as api, Api(stack["edges"].target, TENANT) as another:
            times = Times()
            until = times.begin + seconds
            starting = Starting(api, times, steps_per_s)
            others = Others(another, times, starting)
            before = cpu_seconds(load.pids(stack))
            looks, (queued, worked), *_ = await asyncio.gather(
                _looks(stack, owner, times.begin, until),
                _steps(stack, starting, until),
                starting.run(until),
                others.run(until),
            )
            elapsed = time.perf_counter() - times.begin
            used = {name: (value - before[name]) / elapsed for name, value in cpu_seconds(load.pids(stack)).items()}
            left = await owner.fetchval(
                "select count(*) from eec_workflow_run_start s left join eec_workflow_run r using (tenant_id, run_id)"
                " where s.tenant_id = $1 and s.family_slug = 'soak' and r.end_time is null",
                TENANT,
            )
    finally:
        await owner.close()
    lines = verdict.verdict(looks)
    held = (starting.started - left) * STEPS / elapsed
    return {
        "held_steps_per_s": round(held, 1),
        "held": held >= steps_per_s * HELD,
        "runs_started": starting.started,
        "runs_left_at_the_end": left,
        "cores": {name: round(value, 3) for name, value in used.items()},
        "calls_ms": times.figures(),
        "failures": dict(times.failures),
        "step_ms": {"queued to started": _of(queued), "started to next step": _of(worked)},
        "grew": [line["what"] for line in lines if line["grew"]],
        "series": lines,
        "samples": looks,
    }


async def _looks(stack: Stack, owner: asyncpg.Connection, begin: float, until: float) -> list[dict[str, Any]]:
    every = max((until - begin) / SAMPLES, 1.0)
    looks = []
    while time.perf_counter() < until:
        looks.append(await samples.sample(stack, owner, begin))
        await asyncio.sleep(min(every, max(until - time.perf_counter(), 0)))
    return looks


async def _steps(stack: Stack, starting: Starting, until: float) -> tuple[list[float], list[float]]:
    """What steps take, of a few runs every few seconds: those that were started a while before."""
    connection = await asyncpg.connect(stack.postgres.dsn("ductor"))
    queued: list[float] = []
    worked: list[float] = []
    try:
        while time.perf_counter() < until:
            chosen = list(starting.recent)[:: max(len(starting.recent) // 20, 1)]
            await asyncio.sleep(min(3, max(until - time.perf_counter(), 0.1)))
            found = await samples.steps(connection, chosen)
            queued += found[0]
            worked += found[1]
    finally:
        await connection.close()
    return queued, worked


def _of(seconds: list[float]) -> dict[str, Any]:
    return {"steps": len(seconds)} | {f"p{share * 100:g}": percentile(seconds, share) for share in (0.5, 0.99)}


def report(found: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [
        f"held {found['held_steps_per_s']} of {found['wanted_steps_per_s']} steps/s for {found['minutes']} minutes"
        f" ({found['throughput_steps_per_s']} is the throughput): {'yes' if found['held'] else 'NO'}; {found['runs_started']} runs",
        "cores: " + ", ".join(f"{name} {value}" for name, value in found["cores"].items()),
        "",
        f"{'ms':28} {'calls':>8} {'p50':>9} {'p99':>9} {'max':>9}   p99 of either half",
    ]
    for name, taken in found["calls_ms"].items():
        lines.append(
            f"{name:28} {taken['calls']:>8} {taken['p50']:>9} {taken['p99']:>9} {taken['max']:>9}   {taken['p99_first_half']} {taken['p99_second_half']}"
        )
    lines += [
        f"step, {name:22} {taken['steps']:>8} {taken['p50']:>9} {taken['p99']:>9}"
        for name, taken in found["step_ms"].items()
    ]
    lines += [f"failed {count} times: {name}" for name, count in found["failures"].items()]
    lines += ["", f"{'':42} {'begin':>9} {'1st peak':>9} {'2nd peak':>9} {'end':>9}"]
    for line in found["series"]:
        values = " ".join(f"{line[key]:>9g}" for key in ("begin", "first_peak", "second_peak", "end"))
        lines.append(f"{line['what']:42} {values}  {'GREW' if line['grew'] else ''}".rstrip())
    lines.append("nothing grew" if not found["grew"] else f"grew: {', '.join(found['grew'])}")
    return "\n".join(lines)


def main() -> int:
    """Parse, hold, report."""
    parser = argparse.ArgumentParser(prog="bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument(
        "--rate",
        type=float,
        help="the throughput in steps per second of which a share is held; measured where it is not given",
    )
    parser.add_argument("--share", type=float, default=SHARE)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = asyncio.run(soak(minutes=arguments.minutes, rate=arguments.rate, share=arguments.share))
    print(report(found))
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if found["held"] and not found["grew"] and not found["failures"] else 1


if __name__ == "__main__":
    sys.exit(main())
