"""Loops never die, back off, beat, and stop in time (PG-02, KB-02)."""

import asyncio
import logging
from collections.abc import AsyncIterator

import pytest

from ductord.model.errors import Refusal
from ductord.rpc.errors import refused
from ductord.rpc.health import Pulse
from ductord.rpc.loops import Loop
from tests.rpc.echo import until


class Clock:
    """A monotonic clock that a test moves."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Turns:
    """A turn that the test sees begin and lets end."""

    def __init__(self) -> None:
        self.count = 0
        self.begun = asyncio.Event()
        self.errors: list[Exception] = []
        self.rest: float | None = None
        self.blocked: asyncio.Event | None = None
        self.ended = 0

    async def __call__(self) -> float | None:
        self.count += 1
        self.begun.set()
        if self.blocked is not None:
            await self.blocked.wait()
        self.ended += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.rest

    async def reach(self, count: int) -> None:
        """Wait for the turn with this number to begin."""
        async with asyncio.timeout(60):
            while self.count < count:
                self.begun.clear()
                await self.begun.wait()


def outage(error: BaseException) -> Refusal | None:
    return refused("DATABASE_UNAVAILABLE", "away") if isinstance(error, ConnectionError) else None


@pytest.fixture
async def turns() -> Turns:
    return Turns()


@pytest.fixture
async def loop(turns: Turns) -> AsyncIterator[Loop]:
    """A loop that rests for an hour unless something wakes it."""
    loop = Loop("test", turns, interval_ms=3_600_000, pulse=Pulse("test", 7200), translate=outage)
    yield loop
    if turns.blocked:
        turns.blocked.set()
    await loop.stop(1)


async def test_a_wake_ends_the_rest_and_one_during_a_turn_is_not_lost(loop: Loop, turns: Turns) -> None:
    loop.start()
    await turns.reach(1)
    loop.wake()
    await turns.reach(2)
    turns.blocked = asyncio.Event()
    loop.wake()
    await turns.reach(3)
    loop.wake()
    turns.blocked.set()
    await turns.reach(4)


async def test_a_loop_survives_what_its_turns_raise_and_says_so_once(
    loop: Loop, turns: Turns, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "ductor.loop")
    turns.errors = [ConnectionError(), ConnectionError(), ValueError("a bug")]
    loop.start()
    await turns.reach(4)
    await until(lambda: "works again" in caplog.text)
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "ERROR", "INFO"], "an outage is one warning, a bug has its traceback"
    assert "a bug" in caplog.text


async def test_stop_waits_for_the_turn_at_hand(loop: Loop, turns: Turns) -> None:
    turns.blocked = asyncio.Event()
    loop.start()
    await turns.reach(1)
    stopped = asyncio.ensure_future(loop.stop(10))
    await asyncio.sleep(0)
    assert loop.stopping
    assert not stopped.done()
    turns.blocked.set()
    await stopped
    assert (turns.count, turns.ended) == (1, 1)


async def test_pg_02_stop_has_a_time_limit(loop: Loop, turns: Turns, caplog: pytest.LogCaptureFixture) -> None:
    turns.blocked = asyncio.Event()
    loop.start()
    await turns.reach(1)
    async with asyncio.timeout(30):
        await loop.stop(0.05)
    assert turns.ended == 0
    assert "is cancelled" in caplog.text


async def test_stop_cuts_a_back_off_short(turns: Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("FIRST_BACK_OFF_S", "LAST_BACK_OFF_S"):
        monkeypatch.setattr(f"ductord.rpc.loops.{limit}", 600.0)
    turns.errors = [ConnectionError() for _ in range(1000)]
    loop = Loop("test", turns, interval_ms=1, pulse=Pulse("test", 7200), translate=outage)
    loop.start()
    await turns.reach(1)
    async with asyncio.timeout(30):
        await loop.stop(300)


async def test_a_stop_before_the_first_turn_lets_none_begin(loop: Loop, turns: Turns) -> None:
    loop.start()
    await loop.stop(1)
    assert turns.count == 0


def test_kb_02_a_pulse_goes_stale_without_a_beat_and_not_after_an_orderly_end() -> None:
    clock = Clock()
    pulse = Pulse("tick", 10, clock)
    clock.now += 9
    assert not pulse.stale
    clock.now += 2
    assert pulse.stale
    pulse.beat()
    assert not pulse.stale
    pulse.end()
    clock.now += 100
    assert not pulse.stale


async def test_a_resting_loop_beats_more_often_than_its_limit(turns: Turns) -> None:
    """A long interval must not look like a death: the rest is at most half of the pulse's limit."""
    loop = Loop("test", turns, interval_ms=3_600_000, pulse=Pulse("test", 0.02))
    loop.start()
    await turns.reach(5)
    await loop.stop(1)
