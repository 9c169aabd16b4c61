"""The benchmark of event triggers measures what it says, in small: every event starts one run, few triggers and many."""

import pytest

from bench import starting
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("bench"), pytest.mark.timeout(180)]


async def test_the_figures_of_triggers(stack: Stack) -> None:
    """T3."""
    found = await starting.triggers(stack, few=4, many=250, count=40, rounds=2)
    assert set(found) == {"events", "4", "250", "growth", "cpu_growth"}
    assert all(found[number]["per_s"] > 0 and len(found[number]["rates"]) == 2 for number in ("4", "250"))
    title, text = starting.row(found)
    assert title
    assert "250 triggers" in text
