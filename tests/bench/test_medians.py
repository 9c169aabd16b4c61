"""Medians of several benchmarks: figure by figure, shares within their own run."""

import copy
import json
import subprocess
import sys
from pathlib import Path

from bench.medians import judged, medians
from bench.memory import SAMPLES, verdict
from bench.targets import TARGETS
from tests.bench.sample import SAMPLE


def test_medians_of_figures_and_of_what_is_below_them() -> None:
    runs = [copy.deepcopy(SAMPLE) for _ in range(3)]
    for run, memory, latency in zip(runs, (80, 99, 90), (5, 9, 7), strict=True):
        run["memory_mb"] = memory
        run["latency_1_step_ms"]["p50"] = latency
    found = medians(runs)
    assert (found["memory_mb"], found["latency_1_step_ms"]["p50"], found["environment"]) == (
        90,
        7,
        SAMPLE["environment"],
    )


def test_a_share_is_taken_within_its_run() -> None:
    """Whatever the machines were: 0.3, 0.4 and 0.5 of their floors have the median 0.4."""
    runs = [
        SAMPLE | {"steps_per_s_10": ours, "floor_steps_per_s": floor}
        for ours, floor in ((3_000, 10_000), (400, 1_000), (50_000, 100_000))
    ]
    title, values, middle, holds = judged(runs)[0]
    assert title == TARGETS[0].title
    assert (values, middle, holds) == ([0.3, 0.4, 0.5], 0.4, True)


def test_the_command_prints_every_promise_and_fails_where_one_does_not_hold(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(SAMPLE))
    bad.write_text(json.dumps(SAMPLE | {"idle_cores": 1.0}))
    for files, code in (([good], 0), ([good, bad, good], 0), ([bad], 1)):
        done = subprocess.run(
            [sys.executable, "-m", "bench.medians", *map(str, files)], capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert all(target.title in done.stdout for target in TARGETS)


def test_memory_is_judged_over_the_second_half() -> None:
    """What a process takes to warm up is no growth; what it takes from the middle on is. Postgres is not judged."""
    flat = [{"coordinator0": 50 + min(n, 8) * 5.0, "postgres": 100.0 + n * 10} for n in range(SAMPLES)]
    assert verdict(flat)["growth"] == 1.0
    assert verdict(flat)["largest_mb"] == 90
    growing = [{"coordinator0": 50 + n * 5.0, "edges": 60.0} for n in range(SAMPLES)]
    assert verdict(growing)["growth"] > 1.3
    spike = [sample | {"coordinator0": 200.0} if n == 18 else sample for n, sample in enumerate(flat)]
    assert verdict(spike)["growth"] == 1.0
