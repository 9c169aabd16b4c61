"""What our figures are beside those of the floor program and of Postgres alone, taken in the same run. Pure: figures in, shares out."""

from collections.abc import Mapping
from typing import Any


def shares(figures: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """By figure, how much it is of the floor and of the limit. A rate is a share; a latency is a multiple. The rate of a fan-out is that of its children."""
    limit, floor, floor_1 = (figures[key] for key in ("limit_rows_per_s", "floor_steps_per_s", "floor_runs_per_s_1"))
    rates = {
        "steps_per_s_10": (figures["steps_per_s_10"], floor),
        "runs_per_s_1": (figures["runs_per_s_1"], floor_1),
        "scatter_1k_s": (1_000 / figures["scatter_1k_s"], floor),
        "scatter_10k_s": (10_000 / figures["scatter_10k_s"], floor),
        "child_runs_1k_s": (1_000 / figures["child_runs_1k_s"], floor_1),
    }
    found = {
        key: {"of_the_floor": round(rate / beside, 3), "of_the_limit": round(rate / limit, 4)}
        for key, (rate, beside) in rates.items()
    }
    for steps in ("1_step", "10_steps"):
        for at in ("p50", "p99"):
            ours, theirs = figures[f"latency_{steps}_ms"][at], figures[f"floor_latency_{steps}_ms"][at]
            found[f"latency_{steps}_ms.{at}"] = {"times_the_floor": round(ours / theirs, 2)}
    found["timers.per_s"] = {"of_the_limit": round(figures["timers"]["per_s"] / limit, 4)}
    events = figures["events"]
    for waiters in (name for name, found_of in events.items() if isinstance(found_of, Mapping)):
        found[f"events.{waiters}.matched_per_s"] = {"of_the_limit": round(events[waiters]["matched_per_s"] / limit, 4)}
    return found
