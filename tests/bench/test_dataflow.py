"""The benchmark of dataflow measures what it says: every shape of expression evaluates over all its elements (F6)."""

from bench import dataflow


def test_the_figures_of_dataflow_f6() -> None:
    figures = dataflow.per_element(1)
    assert all(cost["us_of_1000"] > 0 and cost["us_of_10000"] > 0 for cost in figures.values())
    name, text = dataflow.row(figures)
    assert "10,000" in name
    assert all(shape in text for shape in figures)
