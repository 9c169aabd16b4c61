"""Calls that wait until rows say something (that a checkpoint ended, that a control was settled), all of a process on one look at the database.

A waiting call holds a future and nothing else: no connection, no transaction. One loop looks, for all calls of a tenant at once; a NOTIFY only makes it look
sooner, and hints that come in a flood are answered together. A wait that ends, in whatever way, never touches what it waited for.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

LOOK_S: Final = 0.25
"""How often waiting calls are looked after when no hint comes."""
FIRST_LOOK_S: Final = 0.05
"""When a call is looked after that waits for what cannot have come yet, if no hint comes."""
GAP_S: Final = 0.005
"""The least time between two looks: a busy coordinator hints thousands of times a second."""

K = TypeVar("K")
V = TypeVar("V")


class Waits(Generic[K, V]):
    """The waits of a process. `look` answers, for one tenant, those of the keys of which the rows now say something.

    `turn` is the body of the loop that looks; `wake` is that loop's and is set before it starts.
    """

    def __init__(
        self, look: Callable[[str, Sequence[K]], Awaitable[Sequence[tuple[K, V]]]], *, gap_s: float = GAP_S
    ) -> None:
        self._look = look
        self._gap_s = gap_s
        self._open: dict[str, dict[K, list[asyncio.Future[V | None]]]] = {}
        self._looked = 0.0
        self._given_up = False
        self.wake: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return sum(len(futures) for tenant in self._open.values() for futures in tenant.values())

    async def result(self, tenant_id: str, key: K, timeout_s: float, *, early: bool = False) -> V | None:
        """What the rows say; None when they have said nothing within `timeout_s` or the process stops. `early`: they can hardly say anything yet, so that the
        first look may well wait for a hint."""
        if self._given_up:
            return None
        loop = asyncio.get_running_loop()
        future: asyncio.Future[V | None] = loop.create_future()
        self._open.setdefault(tenant_id, {}).setdefault(key, []).append(future)
        first = loop.call_later(FIRST_LOOK_S if early else 0, self.wake)
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return None
        finally:
            first.cancel()
            self._forget(tenant_id, key, future)

    async def turn(self) -> float | None:
        """Look once for everybody who waits; how long to rest."""
        if not self._open:
            return None
        clock = asyncio.get_running_loop().time
        if (early := self._looked + self._gap_s - clock()) > 0:
            await asyncio.sleep(early)
        self._looked = clock()
        for tenant_id in list(self._open):
            keys = list(self._open.get(tenant_id, ()))
            for key, value in await self._look(tenant_id, keys) if keys else ():
                for future in self._open.get(tenant_id, {}).get(key, ()):
                    if not future.done():
                        future.set_result(value)
        return LOOK_S

    async def give_up(self) -> None:
        """The process stops: whoever waits is told that nothing was said so far, and asks again elsewhere."""
        self._given_up = True
        for tenant in self._open.values():
            for futures in tenant.values():
                for future in futures:
                    if not future.done():
                        future.set_result(None)

    def _forget(self, tenant_id: str, key: K, future: asyncio.Future[V | None]) -> None:
        tenant = self._open[tenant_id]
        tenant[key].remove(future)
        if not tenant[key]:
            del tenant[key]
        if not tenant:
            del self._open[tenant_id]
