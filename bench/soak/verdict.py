"""Whether something grew over the time of a load test. Pure: series in, words out.

The begin is left out (a tenth: caches fill). What is left is halved, and the high part of the second half is held against that of the first: the high part,
because what is collected or vacuumed goes up and down by itself; not the highest value, because when a look meets a vacuum is chance. A test that is shorter
than a few rounds of autovacuum (a minute each by default) shows dead rows growing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`times`: how much higher the second peak may be; `slack`: and how much more, in the unit of the values."""

    key: str
    times: float
    slack: float
    what: str


RULES = (
    Rule(key="memory_mb", times=1.03, slack=2, what="MB of a process"),
    Rule(key="queue_age_s", times=1.5, slack=0.5, what="seconds that the oldest has been due"),
    Rule(key="dead_rows", times=1.25, slack=5_000, what="dead rows of a table"),
    Rule(
        key="bytes_per_row", times=1.1, slack=50, what="bytes per row of a table that keeps its rows, indexes included"
    ),
    Rule(key="size_mb", times=1.25, slack=4, what="MB of a table that is turned over"),
)


def verdict(samples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """By series: both peaks, first and last value, and whether it grew."""
    lines = []
    for rule in RULES:
        for name in samples[0][rule.key]:
            values = [float(sample[rule.key][name]) for sample in samples]
            first, second = peaks(values)
            grew = second > first * rule.times + rule.slack
            lines.append(
                {"what": f"{rule.key} {name}", "begin": values[0], "first_peak": first, "second_peak": second, "end": values[-1], "grew": grew}
            )  # fmt: skip
    return lines


def peaks(values: Sequence[float]) -> tuple[float, float]:
    """The mean of the highest quarter of the first and of the second half of what is left without the begin."""
    rest = values[len(values) // 10 :]
    half = max(len(rest) // 2, 1)
    return _high(rest[:half]), _high(rest[half:] or rest)


def _high(values: Sequence[float]) -> float:
    quarter = sorted(values)[-max(len(values) // 4, 1) :]
    return sum(quarter) / len(quarter)
