"""Memory over many runs: of every process, sampled after each twentieth of them. It must not grow once the process has seen what there is to see."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from bench.load import TENANT, open_runs, pids, until_ended
from bench.usage import memory_mb
from tests.support.api import Api, chain
from tests.support.stack import Stack

SAMPLES = 20
AROUND = 3
"""Samples that one value is the median of: a collection of garbage that is due makes one sample high."""


async def over_runs(stack: Stack, *, runs: int) -> dict[str, Any]:
    """1-step runs in twenty parts: MB of every process after each, and what `verdict` says of them."""
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    samples: list[dict[str, float]] = []
    try:
        async with Api(stack["edges"].target, TENANT) as api:
            definition_id = await api.publish(chain("memory", 1))
            besides = await open_runs(owner)
            for _ in range(SAMPLES):
                await api.start_many(definition_id, runs // SAMPLES)
                await until_ended(owner, besides)
                samples.append(memory_mb(pids(stack)))
    finally:
        await owner.close()
    return {"runs": runs // SAMPLES * SAMPLES, **verdict(samples)}


def verdict(samples: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """`mb`: by process, half-way and at the end; `growth`: the largest ratio of the two among our processes; `largest_mb`: of the largest of ours at the end.
    Postgres is shown and not judged: its shared buffers fill up to what they are set to."""
    half = len(samples) // 2
    ends: dict[str, tuple[float, float]] = {}
    for name in samples[0]:
        values = [sample[name] for sample in samples]
        middle = statistics.median(values[half - AROUND // 2 - 1 : half + AROUND // 2])
        ends[name] = (round(middle, 1), round(statistics.median(values[-AROUND:]), 1))
    ours = {name: pair for name, pair in ends.items() if name != "postgres"}
    return {
        "mb": {name: f"{middle} → {end}" for name, (middle, end) in ends.items()},
        "at_the_end_mb": {name: end for name, (_, end) in ends.items()},
        "largest_mb": max(end for _, end in ours.values()),
        "growth": round(max(end / middle for middle, end in ours.values()), 3),
        "samples": [{name: round(value, 1) for name, value in sample.items()} for sample in samples],
    }
