"""The benchmark of fan-outs measures what it says, in small; and in small already a child of a wide one costs no more than one of a narrow one (SG-06)."""

import pytest

from bench import fanout
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("bench"), pytest.mark.timeout(180)]


async def test_sg_06_the_figures_of_fan_outs(stack: Stack) -> None:
    """SG-06: the log of a child does not grow with the width. Times on a machine with neighbours are no test."""
    figures = await fanout.fanout(stack, widths=(20, 200, 2_000), child_runs=40, repeat=1)
    assert set(figures) == {"20", "200", "2000", "child_runs", "time_growth", "wal_growth"}
    for name in ("20", "200", "2000", "child_runs"):
        assert figures[name]["seconds"] > 0
        assert figures[name]["children_per_s"] > 0
    assert figures["wal_growth"] <= fanout.WAL_GROWTH
    floor = {"floor_steps_per_s": 10_000, "limit_rows_per_s": 40_000, "floor_runs_per_s_1": 5_000}
    assert len(fanout.table({"fanout": figures, **floor}, 2_000)) == 5
