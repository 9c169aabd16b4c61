"""What scaling out loses, and what a load used up: in small."""

import pytest

from bench import resources, scaleout
from tests.support.stack import Stack


def test_the_loss_is_one_of_medians() -> None:
    one, two = ([{"steps_per_s": rate} for rate in rates] for rates in ((100, 90, 500), (90, 80, 1)))
    assert scaleout.loss(one, two) == 0.2
    assert scaleout.loss(two, one) < 0
    assert scaleout.name(scaleout.TWO) == "2/2/4"


@pytest.mark.xdist_group("bench")
@pytest.mark.timeout(120)
async def test_what_a_load_used(stack: Stack) -> None:
    found = await resources.used(stack, slug="resources", runs=30, steps=2)
    assert found["wal_bytes_per_step"] > 500
    assert found["commits_per_step"] > 0
    assert found["connections"] >= 5
    assert found["deadlocks"] == 0
