"""Background loops that never die: each turn beats a pulse, a failing turn backs off, a stop has a time limit.

A turn does one piece of work and says how long to rest. Work that must not be torn apart stays inside a turn: a stop wakes a resting loop at once
and waits for a turn, up to the limit, before it cancels. NOTIFY and other hints only `wake()` a loop; resting is bounded by the interval (PG-02),
so a lost hint costs time and nothing else. A loop must never decide what an error means for a run.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable

from ductord.model.errors import Refusal
from ductord.rpc.health import Pulse

Turn = Callable[[], Awaitable[float | None]]
"""One piece of work; the answer is how many seconds to rest, at most the interval: 0 goes on at once, None rests for the interval."""
Translate = Callable[[BaseException], Refusal | None]
"""What an exception is to a caller; None for what nobody expected. `db.outage.refusal_of` for services with a database."""

FIRST_BACK_OFF_S = 0.1
LAST_BACK_OFF_S = 5.0

_log = logging.getLogger("ductor.loop")


class Loop:
    """One loop. `start` it inside the running event loop, `wake` it from callbacks, `stop` it once."""

    def __init__(
        self,
        name: str,
        turn: Turn,
        *,
        interval_ms: int,
        pulse: Pulse,
        translate: Translate = lambda error: None,
        on_failure: Callable[[str], None] = lambda kind: None,
    ) -> None:
        self.name = name
        self._turn = turn
        self._interval_s = interval_ms / 1000
        self._pulse = pulse
        self._translate = translate
        self._on_failure = on_failure
        self._wake = asyncio.Event()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._failures = 0

    @property
    def stopping(self) -> bool:
        """Whether a stop was asked for: a long turn looks at it between its pieces."""
        return self._stop.is_set()

    def start(self) -> None:
        """Begin to turn."""
        self._pulse.beat()
        self._task = asyncio.create_task(self._run(), name=f"loop {self.name}")

    def wake(self) -> None:
        """End the rest, or make the next rest end at once when the loop is in a turn. Does not shorten a back-off."""
        self._wake.set()

    def cancel(self) -> None:
        """Do not wait for the turn at hand any longer."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self, limit_s: float) -> None:
        """Let the turn at hand end, at most `limit_s`, then cancel it. Never raises and never takes much longer than the limit."""
        self._stop.set()
        self._wake.set()
        task = self._task
        if task is None:
            return
        _, pending = await asyncio.wait([task], timeout=limit_s)
        if pending:
            _log.warning("loop %s did not end in %.1f s and is cancelled", self.name, limit_s)
            task.cancel()
            _, pending = await asyncio.wait([task], timeout=1)
            if pending:
                _log.error("loop %s ignores its cancellation and is left behind", self.name)
        self._pulse.end()

    async def _run(self) -> None:
        while not self._stop.is_set():
            self._pulse.beat()
            self._wake.clear()
            if self._stop.is_set():  # a stop between the test above and the clear
                return
            try:
                rest = await self._turn()
            except asyncio.CancelledError:
                if self._stop.is_set():
                    return
                raise
            except Exception as error:
                await self._back_off(error)
                continue
            if self._failures:
                _log.info("loop %s works again after %d failures", self.name, self._failures)
                self._failures = 0
            await self._rest(self._wake, self._interval_s if rest is None else min(rest, self._interval_s))

    async def _back_off(self, error: Exception) -> None:
        refusal = self._translate(error)
        self._failures += 1
        self._on_failure(refusal.reason if refusal else "INTERNAL")
        if refusal is None:
            _log.error("loop %s: a turn raised", self.name, exc_info=error)
        elif self._failures == 1:
            _log.warning("loop %s: %s; it tries again until it works", self.name, refusal.message)
        delay = min(FIRST_BACK_OFF_S * 2 ** min(self._failures - 1, 10), LAST_BACK_OFF_S)
        await self._rest(self._stop, random.uniform(0.5, 1.0) * delay)

    async def _rest(self, until: asyncio.Event, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)  # a busy loop still lets others run
            return
        try:
            async with asyncio.timeout(min(seconds, self._pulse.limit_s / 2)):
                await until.wait()
        except TimeoutError:
            return
