"""Figures as text: every promise with what was measured, its share of the floor or of the limit, and whether it holds; below it what was measured besides.

Takes figures as they are in the JSON, so a file of an earlier run prints as that run did.
"""

from collections.abc import Mapping
from typing import Any

from bench import dataflow, fanout, starting, waiting
from bench.targets import TARGETS, Target, figure, missed

WIDEST = 10_000


def table(figures: Mapping[str, Any]) -> str:
    """The promises, then everything else."""
    rows = [_row(target, figures) for target in TARGETS]
    heads = ("", "measured", "promised", "", "beside the floor and the limit of this run")
    widths = [max(len(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [heads, *rows]
    ]
    left = missed(figures)
    lines.append(f"{len(TARGETS) - len(left)} of {len(TARGETS)} promises hold")
    rest = [*_yardsticks(figures), *_more(figures)]
    name_width = max((len(name) for name, _ in rest), default=0)
    return "\n".join([*lines, "", *(f"{name:<{name_width}}  {value}" for name, value in rest)])


def number(value: float | None) -> str:
    """A figure as it is read best: whole from a hundred on, three digits below."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _row(target: Target, figures: Mapping[str, Any]) -> tuple[str, str, str, str, str]:
    sign = "≥" if target.at_least else "≤"
    unit = f" {target.unit}" if target.unit else ""
    verdict = {True: "reached", False: "MISSED", None: "not measured"}[target.reached(figures)]
    value = target.value(figures)
    return (
        target.title,
        f"{number(value)}{unit}" if value is not None else "–",
        f"{sign} {number(target.bound)}{unit}",
        verdict,
        _beside(target, figures),
    )


def _beside(target: Target, figures: Mapping[str, Any]) -> str:
    if target.of:
        return f"{number(figure(figures, target.key))} of {number(figure(figures, target.of))} per s"
    shares = figures.get("shares", {}).get(target.key, {})
    return ", ".join(f"{value:.3g} {name.replace('_', ' ')}" for name, value in shares.items())


def _yardsticks(figures: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [
        ("Postgres alone, rows advanced/s (500 per transaction)", number(figure(figures, "limit_rows_per_s"))),
        ("floor program, steps/s of 10-step runs, by batch", _each(figures.get("floor_steps_per_s_by_batch", {}))),
        ("floor program, 1-step runs/s, by batch", _each(figures.get("floor_runs_per_s_1_by_batch", {}))),
    ]
    for name, value in figures.get("environment", {}).items():
        rows.append((f"environment: {name}", value))
    return rows


def _each(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _more(figures: Mapping[str, Any]) -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = [
        ("CPU per step, µs", _each(figures.get("cpu_us_per_step_by_process", {}))),
        ("memory, MB", _each(figures.get("memory_mb_by_process", {}))),
    ]
    if "memory" in figures:
        rows.append(("memory, MB, over the runs", _each(figures["memory"]["mb"])))
    if "history" in figures:
        rows.append(("tick of a run with a history", _each(figures["history"])))
    if "parked" in figures:
        rows.append(("idle, share of a core", _each(figures["parked"]["cores"])))
    if "generations" in figures:
        rows.append(("continue-as-new generations, first against last 100", _each(figures["generations"])))
    if "fanout" in figures:
        rows += fanout.table(figures, WIDEST)
    if "dataflow" in figures:
        rows.append(dataflow.row(figures["dataflow"]))
    if "triggers" in figures:
        rows.append(starting.row(figures["triggers"]))
    return [*rows, *waiting.table(figures)]
