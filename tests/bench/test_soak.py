"""The load test's own arithmetic, and the load test itself for seconds: every call is answered, every kind of call is timed, the load is held."""

import asyncio
from typing import Any

import pytest

from bench.soak.__main__ import _held, report
from bench.soak.callers import PER_S
from bench.soak.timed import Times, at_rate, percentile
from bench.soak.verdict import RULES, peaks, verdict
from tests.support.stack import Stack


def _sample(**values: float) -> dict[str, Any]:
    return {rule.key: {"one": values.get(rule.key, 10.0)} for rule in RULES}


def test_what_goes_up_and_down_does_not_grow() -> None:
    samples = [_sample(dead_rows=1000.0 * (n % 20)) for n in range(100)]
    assert not any(line["grew"] for line in verdict(samples))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.key)
def test_what_goes_up_grew(rule: Any) -> None:
    samples = [_sample(**{rule.key: rule.slack * n / 10 + n}) for n in range(100)]
    assert [line["what"] for line in verdict(samples) if line["grew"]] == [f"{rule.key} one"]


def test_the_begin_is_left_out() -> None:
    assert peaks([9.0, 1, 1, 1, 1, 1, 2, 3, 1, 1]) == (1, 3)
    assert peaks([5.0]) == (5, 5)


def test_percentiles_are_in_milliseconds() -> None:
    assert (percentile([0.001 * n for n in range(1, 101)], 0.99), percentile([], 0.5)) == (100.0, 0.0)


async def test_a_call_is_timed_from_when_it_was_due() -> None:
    """The loop is open: a stalled call keeps nobody waiting, and one that comes late through no fault of its own has taken long."""
    times, stalled = Times(), asyncio.Event()

    async def call(number: int) -> None:
        if number == 0:
            await stalled.wait()
        elif number == 5:
            stalled.set()
        elif number == 6:
            raise AssertionError("said so")

    await at_rate(times, "call", 1000, times.begin + 0.02, call)
    assert len(times.taken["call"]) >= 15
    assert times.figures()["call"]["max"] >= 4
    assert times.failures == {"call: AssertionError: said so": 1}


@pytest.mark.xdist_group("bench")
@pytest.mark.timeout(120)
async def test_the_load_test_in_small(stack: Stack) -> None:
    found = await _held(stack, 100, 6)
    assert not found["failures"]
    assert found["runs_started"] == pytest.approx(60, abs=3)
    assert set(PER_S) | {"BatchTriggerWorkflow", "WatchRun, first message"} == set(found["calls_ms"])
    assert all(taken["p50"] > 0 for taken in found["calls_ms"].values())
    assert found["step_ms"]["queued to started"]["steps"] > 0
    head = {"wanted_steps_per_s": 100, "throughput_steps_per_s": 100, "minutes": 0.1}
    assert "held " in report(head | found)
