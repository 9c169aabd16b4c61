"""The benchmarks of memory, of long histories and of an idle stack measure what they say, in small."""

import pytest

from bench import history, memory, parked
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("bench"), pytest.mark.timeout(180)]


async def test_the_figures_of_memory_of_a_history_and_of_an_idle_stack(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    memories = await memory.over_runs(stack, runs=100)
    assert memories["runs"] == 100
    assert memories["largest_mb"] > 20
    found = await history.growth(stack, transitions=120, rounds=1, ticks=10)
    assert found["transitions"] >= 120
    assert found["time_growth"] > 0
    monkeypatch.setattr(parked, "SETTLE_S", 0.0)
    idle = await parked.idle(stack, runs=40, seconds=1)
    assert idle["runs"] >= 40
    assert set(idle["cores"]) >= {"postgres", "coordinator0", "dispatch0"}
    assert idle["ours"] < 0.5
