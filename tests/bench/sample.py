"""Figures as a benchmark has them, every promise kept, with round numbers."""

from typing import Any

SAMPLE: dict[str, Any] = {
    "quick": True,
    "limit_rows_per_s": 80_000,
    "floor_steps_per_s": 10_000,
    "floor_steps_per_s_by_batch": {"20": 2_000, "500": 10_000},
    "floor_runs_per_s_1": 5_000,
    "floor_latency_1_step_ms": {"p50": 3, "p99": 6},
    "floor_latency_10_steps_ms": {"p50": 20, "p99": 30},
    "steps_per_s_10": 4_000,
    "runs_per_s_1": 2_000,
    "latency_1_step_ms": {"p50": 6, "p99": 12},
    "latency_10_steps_ms": {"p50": 50, "p99": 70},
    "further_step_ms": 5,
    "scatter_1k_s": 0.4,
    "scatter_10k_s": 2.5,
    "child_runs_1k_s": 1,
    "cpu_us_per_step": 200,
    "cpu_us_per_step_by_process": {"coordinator0": 150, "dispatch0": 50},
    "memory_mb": 90,
    "memory_growth": 1.0,
    "memory_mb_by_process": {"coordinator0": 90},
    "growth_width": 0.9,
    "growth_history": 1.02,
    "idle_cores": 0.01,
    "events": {"events": 10, "100": {"matched_per_s": 800, "unmatched_per_s": 900}, "ratio_matched": 1, "ratio_unmatched": 1,
               "cpu_ratio_matched": 1, "cpu_ratio_unmatched": 1},
    "timers": {"timers": 10, "per_s": 4_000},
    "environment": {"commit": "0123456789ab"},
}  # fmt: skip
