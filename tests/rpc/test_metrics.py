"""The number of series is bounded, whatever runs through (OB-01)."""

import pytest

from ductord.rpc.metrics import OTHER, Cap, Metrics


def series(metrics: Metrics) -> list[str]:
    """The series of ours in an exposition."""
    return [line for line in metrics.exposition().decode().splitlines() if line.startswith("ductor_")]


def test_ob_01_tenants_beyond_the_cap_are_other() -> None:
    metrics, tenant = Metrics(), Cap(3)
    counter = metrics.counter("ductor_runs", "Runs.", ("tenant",))
    for number in range(50):
        counter.labels(tenant(f"t{number}")).inc()
    assert len(series(metrics)) == 4
    assert tenant("t1") == "t1"
    assert tenant("t40") == OTHER
    assert f'ductor_runs_total{{tenant="{OTHER}"}} 47.0' in series(metrics)


def test_ob_01_gauges_of_what_is_gone_vanish() -> None:
    metrics = Metrics()
    queues = metrics.snapshot("ductor_queue_tasks", "Tasks.", ("queue", "state"))
    queues.replace({("default", "ready"): 2, ("mail", "ready"): 1})
    assert len(series(metrics)) == 2
    queues.replace({("default", "ready"): 0})
    assert series(metrics) == ['ductor_queue_tasks{queue="default",state="ready"} 0.0']


def test_a_name_is_one_metric() -> None:
    metrics = Metrics()
    assert metrics.counter("ductor_x", "X.") is metrics.counter("ductor_x", "X.")
    with pytest.raises(TypeError, match="already a Counter"):
        metrics.gauge("ductor_x", "X.")


def test_no_second_series_says_when_a_counter_began() -> None:
    metrics = Metrics()
    metrics.counter("ductor_x", "X.").inc()
    assert series(metrics) == ["ductor_x_total 1.0"]
