"""What this release promises, in one place: every figure that is held against a target, and how it is judged. No stack, no I/O.

Absolute figures move with the machine, so throughput is promised as a share of the floor program of the same run; the absolute values beside them
are what that share meant on the machine where the targets were set, and are judged too.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`key`: where the figure is, a path with dots. `of`: the figure that it is quoted as a share of, if the share is what is promised."""

    key: str
    title: str
    bound: float
    unit: str = ""
    at_least: bool = False
    of: str = ""

    def value(self, figures: Mapping[str, Any]) -> float | None:
        """The figure, or the share; None where it was not measured."""
        value, of = figure(figures, self.key), figure(figures, self.of) if self.of else 1.0
        return None if value is None or not of else value / of

    def reached(self, figures: Mapping[str, Any]) -> bool | None:
        """Whether the promise holds; None where the figure was not measured."""
        value = self.value(figures)
        if value is None:
            return None
        return value >= self.bound if self.at_least else value <= self.bound


TARGETS = (
    Target(
        key="steps_per_s_10",
        of="floor_steps_per_s",
        title="10-step runs, share of the floor",
        bound=0.35,
        at_least=True,
    ),
    Target(key="steps_per_s_10", title="10-step runs", bound=3_500, unit="steps/s", at_least=True),
    Target(
        key="runs_per_s_1",
        of="floor_runs_per_s_1",
        title="1-step runs, share of the floor (batches of 100)",
        bound=0.30,
        at_least=True,
    ),
    Target(key="runs_per_s_1", title="1-step runs", bound=1_600, unit="runs/s", at_least=True),
    Target(key="latency_1_step_ms.p50", title="latency of 1 step, p50", bound=10, unit="ms"),
    Target(key="latency_1_step_ms.p99", title="latency of 1 step, p99", bound=25, unit="ms"),
    Target(key="latency_10_steps_ms.p50", title="latency of 10 steps, p50", bound=60, unit="ms"),
    Target(key="further_step_ms", title="a further step", bound=5.5, unit="ms"),
    Target(key="scatter_1k_s", title="inline scatter of 1,000, gathered", bound=0.6, unit="s"),
    Target(key="scatter_10k_s", title="inline scatter of 10,000, gathered", bound=3, unit="s"),
    Target(key="child_runs_1k_s", title="1,000 child runs", bound=2, unit="s"),
    Target(key="cpu_us_per_step", title="engine CPU per step, all our processes", bound=350, unit="µs"),
    Target(key="memory_mb", title="memory of the largest process after all its runs", bound=100, unit="MB"),
    Target(key="memory_growth", title="the same, second half of the runs", bound=1.03),
    Target(key="growth_width", title="time per child, width 10,000 against 100", bound=1.1),
    Target(key="growth_history", title="tick cost, long history against 100", bound=1.1),
    Target(key="growth_triggers", title="an event that starts a run, 10,000 triggers against 100", bound=1.5),
    Target(key="idle_cores", title="idle stack, 10,000 parked runs, share of a core", bound=0.02),
)
"""The «speed» column. `memory_growth` is what «flat» means here: 3 % is what one measurement differs from the next."""

KEYS = (
    "limit_rows_per_s",
    "floor_steps_per_s",
    "steps_per_s_10",
    "runs_per_s_1",
    "latency_1_step_ms",
    "latency_10_steps_ms",
    "scatter_10k_s",
    "child_runs_1k_s",
    "cpu_us_per_step",
    "memory_mb",
    "growth_width",
    "growth_history",
    "events_per_s_100_triggers",
    "events_per_s_10k_triggers",
    "growth_triggers",
    "idle_cores",
)
"""The keys that every JSON of a benchmark has at its top, whatever else is beside them."""


def figure(figures: Mapping[str, Any], path: str) -> float | None:
    """The number at a path such as `latency_1_step_ms.p50`; None where there is none."""
    value: Any = figures
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def missed(figures: Mapping[str, Any], targets: Iterable[Target] = TARGETS) -> list[Target]:
    """The promises that do not hold, those that nothing was measured for included."""
    return [target for target in targets if not target.reached(figures)]
