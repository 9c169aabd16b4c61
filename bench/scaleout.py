"""`python -m bench.scaleout [--json FILE]`: two coordinators, two dispatchers and four workers against one of each, on the same cores.

More processes cannot be faster where the cores are used up; they must not be much slower either: what they lose is what sharing the work costs (locks, empty
claims, smaller batches). Both are measured in turns, each round on fresh stacks, and the medians are compared.
"""

import argparse
import asyncio
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench import load
from bench.environment import environment
from bench.resources import used
from tests.support.stack import running_stack

LOSS = 0.15
"""How much of the throughput two of everything may lose."""
ONE, TWO = (1, 1, 1), (2, 2, 4)
"""Coordinators, dispatchers, workers."""


async def _round(shape: tuple[int, int, int], runs: int) -> dict[str, Any]:
    coordinators, dispatchers, workers = shape
    with running_stack(coordinators=coordinators, dispatchers=dispatchers, workers=workers, forked=False) as stack:
        await load.throughput(stack, slug="warm", steps=10, runs=500)
        return await used(stack, slug="ten", runs=runs)


async def measured(shapes: Sequence[tuple[int, int, int]], *, rounds: int, runs: int) -> dict[str, Any]:
    """Every shape in turns; medians by shape, and what the last loses against the first."""
    found: dict[str, list[dict[str, Any]]] = {name(shape): [] for shape in shapes}
    for number in range(rounds):
        for shape in shapes if number % 2 == 0 else list(reversed(shapes)):
            result = await _round(shape, runs)
            found[name(shape)].append(result)
            print(f"{name(shape):8} {result['steps_per_s']:8.0f} steps/s", file=sys.stderr, flush=True)
    return {
        "steps_per_s": {key: [result["steps_per_s"] for result in results] for key, results in found.items()},
        "median": {key: _median(results) for key, results in found.items()},
        "loss": loss(found[name(shapes[0])], found[name(shapes[-1])]),
        "rounds": found,
    }


def name(shape: tuple[int, int, int]) -> str:
    """As it is written: coordinators/dispatchers/workers."""
    return "/".join(map(str, shape))


def loss(one: Sequence[dict[str, Any]], two: Sequence[dict[str, Any]]) -> float:
    """Share of the throughput that is lost, by medians; negative where more processes are faster."""
    return round(1 - _median(two) / _median(one), 3)


def _median(results: Sequence[dict[str, Any]]) -> float:
    return float(statistics.median(result["steps_per_s"] for result in results))


async def _main(arguments: argparse.Namespace) -> dict[str, Any]:
    shapes = [ONE, (1, 1, 2), (2, 1, 2), TWO] if arguments.all else [ONE, TWO]
    found = await measured(shapes, rounds=arguments.rounds, runs=arguments.runs)
    with running_stack(forked=False) as stack:
        found["environment"] = await environment(stack.postgres.dsn("postgres"))
    return found


def main() -> int:
    """Parse, measure, print; exit code 1 where too much is lost."""
    parser = argparse.ArgumentParser(prog="bench.scaleout", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--runs", type=int, default=3_000, help="10-step runs per round")
    parser.add_argument("--all", action="store_true", help="shapes in between too")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    found = asyncio.run(_main(arguments))
    for shape, results in found["rounds"].items():
        middle = sorted(results, key=lambda result: float(result["steps_per_s"]))[len(results) // 2]
        print(f"{shape:8} {found['median'][shape]:8.0f} steps/s  of {found['steps_per_s'][shape]}")
        for key in (
            "cpu_us_per_step",
            "cores_used",
            "wal_bytes_per_step",
            "commits_per_step",
            "connections",
            "active_sessions",
        ):
            print(f"         {key:20} {middle[key]}")
    holds = found["loss"] <= LOSS
    print(
        f"{name(TWO)} against {name(ONE)}: loss {found['loss']:.1%}, promised ≤ {LOSS:.0%}: {'reached' if holds else 'MISSED'}"
    )
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
