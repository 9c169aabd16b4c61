"""Acceptance: under load every process of the suite is told to stop and replaced, in turn; twice, the second time with an older release beside it.

No call fails that a client's standard retry does not cover, no step is lost or doubled, every run ends.
"""

import os

import asyncpg
import pytest

from tests.rolling.audit import audit
from tests.rolling.caller import Caller
from tests.rolling.suite import REPLICAS, Suite
from tests.rolling.traffic import Traffic
from tests.support.recorder import Recorder

LONG = os.environ.get("DUCTOR_CHAOS") == "long"
ROUNDS = 4 if LONG else 1

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900), pytest.mark.xdist_group("rolling")]


async def test_kb_03_every_process_is_replaced_under_load(
    suite: Suite, caller: Caller, owner: asyncpg.Connection, recorder: Recorder
) -> None:
    """Both replicas of each service, one after the other, by processes of the same release."""
    async with Traffic(caller, owner, recorder, starting=True) as traffic:
        await traffic.publish()
        traffic.begin()
        for _ in range(ROUNDS):
            await suite.roll(REPLICAS[0])
            await traffic.catch_up()
            await suite.roll(REPLICAS[1])
        await traffic.end()
    await audit(traffic)
    assert not (told := suite.complaints()), "\n\n".join(told)


async def test_kb_03_every_process_is_replaced_beside_an_older_release(
    suite: Suite, caller: Caller, owner: asyncpg.Connection, recorder: Recorder
) -> None:
    """One replica of each service goes back to the older release; beside it the other one is replaced; then the older ones are replaced by this release."""
    async with Traffic(caller, owner, recorder, starting=False) as traffic:
        await traffic.publish()
        traffic.begin()
        for _ in range(ROUNDS):
            await suite.roll(REPLICAS[0], old=True)
            await suite.roll(REPLICAS[1])
            await suite.roll(REPLICAS[0])
        await traffic.end()
    await audit(traffic)
    assert not (told := suite.complaints()), "\n\n".join(told)
