"""The benchmark of waiting measures what it says, in small: every event matches one wait, every timer fires and none early, every decision is followed."""

import pytest

from bench import waiting
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("bench"), pytest.mark.timeout(180)]


async def test_the_figures_of_waiting(stack: Stack) -> None:
    """TC-10 (never early), E2, E3."""
    late = await waiting.lateness(stack, count=10)
    assert 0 <= late["p50"] <= late["p99"]
    decided = await waiting.decisions(stack, count=5)
    assert 0 <= decided["p50"] <= decided["p99"]
    timers = await waiting.timers(stack, count=50)
    assert timers["per_s"] > 0
    assert 0 <= timers["first_after_s"] <= timers["last_after_s"]
    events = await waiting.events(stack, few=4, many=40, count=40)
    assert set(events) == {
        "events",
        "4",
        "40",
        "ratio_matched",
        "ratio_unmatched",
        "cpu_ratio_matched",
        "cpu_ratio_unmatched",
    }
    assert all(events[waiters]["matched_per_s"] > 0 for waiters in ("4", "40"))
    figures = {"events": events, "timers": timers, "timer_lateness_ms": late, "approve_to_next_step_ms": decided}
    assert len(waiting.table(figures)) == 5
