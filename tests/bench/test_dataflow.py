"""The benchmark of dataflow measures what it says: every shape of expression evaluates over all its elements (F6)."""

import pytest

from bench import dataflow


def test_the_figures_of_dataflow_f6(monkeypatch: pytest.MonkeyPatch) -> None:
    """In small: how the costs grow is measured by the benchmark, and no test on a machine with neighbours."""
    monkeypatch.setattr(dataflow, "MANY", 2_000)
    figures = dataflow.per_element(1)
    assert all(cost["us_of_1000"] > 0 and cost["us_of_10000"] > 0 for cost in figures.values())
    name, text = dataflow.row(figures)
    assert "2,000" in name
    assert all(shape in text for shape in figures)
