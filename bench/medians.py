"""`python -m bench.medians FILE…`: the medians of several runs of the benchmark, figure by figure, as the table of one run, and how far the runs lie apart.

Every share is taken within its own run before the median is: floors of one run are never put beside figures of another.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.table import number, table
from bench.targets import TARGETS


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """A tree as that of a run: numbers are medians, everything else is the first run's."""
    result: dict[str, Any] = {}
    for key, first in runs[0].items():
        values = [run[key] for run in runs if key in run]
        if isinstance(first, Mapping):
            result[key] = medians([value for value in values if isinstance(value, Mapping)])
        elif isinstance(first, int | float) and not isinstance(first, bool):
            result[key] = statistics.median(values)
        else:
            result[key] = first
    return result


def judged(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[float], float, bool]]:
    """Per promise: title, its value in every run, the median of these values, whether the median reaches it."""
    rows: list[tuple[str, list[float], float, bool]] = []
    for target in TARGETS:
        values = [value for run in runs if (value := target.value(run)) is not None]
        if not values:
            rows.append((target.title, [], float("nan"), False))
            continue
        middle = statistics.median(values)
        rows.append(
            (target.title, values, middle, middle >= target.bound if target.at_least else middle <= target.bound)
        )
    return rows


def main() -> int:
    """Print; exit code 1 where a promise does not hold."""
    parser = argparse.ArgumentParser(prog="bench.medians", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    runs = [json.loads(path.read_text()) for path in parser.parse_args().files]
    rows = judged(runs)
    width = max(len(title) for title, *_ in rows)
    print(f"Medians of {len(runs)} runs, commits {', '.join(sorted({_commit(run) for run in runs}))}\n")
    for (title, values, middle, holds), target in zip(rows, TARGETS, strict=True):
        sign, each = "≥" if target.at_least else "≤", ", ".join(number(value) for value in values)
        bound = f"{sign} {number(target.bound)} {target.unit}"
        print(f"{title:<{width}}  {number(middle):>8}  {bound:<15}  {'reached' if holds else 'MISSED ':<7}  {each}")
    print(f"\n{sum(holds for *_, holds in rows)} of {len(rows)} promises hold\n")
    print(table(medians(runs)).split("\n\n", 1)[1])
    return 0 if all(holds for *_, holds in rows) else 1


def _commit(run: Mapping[str, Any]) -> str:
    return str(run.get("environment", {}).get("commit", "?"))


if __name__ == "__main__":
    sys.exit(main())
