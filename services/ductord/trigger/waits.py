"""Calls that wait for a checkpoint of a run (G9), all of a process on one look at the database.

A waiting call holds a future and nothing else: no connection, no transaction. One loop looks, for all calls of a tenant with one statement; the channel
`ductor_run` only makes it look sooner, and hints that come in a flood are answered together. A wait that ends, in whatever way, never touches the run.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

import asyncpg
import msgspec

from ductord.db.pool import tenant_transaction
from ductord.db.queries import Queries
from ductord.model.enums import CheckpointStatus, RunStatus

LOOK_S: Final = 0.25
"""How often waiting calls are looked after when no hint comes."""
GAP_S: Final = 0.005
"""The least time between two looks: a busy coordinator hints thousands of times a second."""

_q: Final = Queries("ductord.trigger")
_refs: Final = msgspec.json.Decoder(dict[str, int])


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """How a wait ended. `refs`: step ref → attempt whose row holds the output; empty unless the checkpoint was reached."""

    status: CheckpointStatus
    run_status: RunStatus
    refs: dict[str, int] = {}


_Key = tuple[str, str]  # run id, checkpoint
_Futures = dict[_Key, list[asyncio.Future[Ended | None]]]


class Waits:
    """The waits of a process. `turn` is the body of the loop that looks; `wake` is that loop's and is set before it starts."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._open: dict[str, _Futures] = {}
        self._looked = 0.0
        self._given_up = False
        self.wake: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return sum(len(futures) for tenant in self._open.values() for futures in tenant.values())

    async def ended(self, tenant_id: str, run_id: str, checkpoint: str, timeout_s: float) -> Ended | None:
        """How the checkpoint ended; None when it has not within `timeout_s` or the process stops."""
        if self._given_up:
            return None
        future: asyncio.Future[Ended | None] = asyncio.get_running_loop().create_future()
        futures = self._open.setdefault(tenant_id, {}).setdefault((run_id, checkpoint), [])
        futures.append(future)
        self.wake()
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return None
        finally:
            self._forget(tenant_id, (run_id, checkpoint), future)

    async def turn(self) -> float | None:
        """Look once for everybody who waits; how long to rest."""
        if not self._open:
            return None
        clock = asyncio.get_running_loop().time
        if (early := self._looked + GAP_S - clock()) > 0:
            await asyncio.sleep(early)
        self._looked = clock()
        for tenant_id in list(self._open):
            for key, ended in await self._look(tenant_id, self._open.get(tenant_id, {}).keys()):
                for future in self._open.get(tenant_id, {}).get(key, ()):
                    if not future.done():
                        future.set_result(ended)
        return LOOK_S

    async def give_up(self) -> None:
        """The process stops: whoever waits is told that the checkpoint was not reached so far, and asks again elsewhere."""
        self._given_up = True
        for tenant in self._open.values():
            for futures in tenant.values():
                for future in futures:
                    if not future.done():
                        future.set_result(None)

    async def _look(self, tenant_id: str, keys: Iterable[_Key]) -> list[tuple[_Key, Ended]]:
        waited = list(keys)
        if not waited:
            return []
        async with tenant_transaction(self._pool, tenant_id) as db:
            rows = await db.fetch(
                _q["ended_checkpoints"], tenant_id, [run_id for run_id, _ in waited], [name for _, name in waited]
            )
        return [((row["run_id"], row["name"]), _ended(row)) for row in rows]

    def _forget(self, tenant_id: str, key: _Key, future: asyncio.Future[Ended | None]) -> None:
        tenant = self._open[tenant_id]
        tenant[key].remove(future)
        if not tenant[key]:
            del tenant[key]
        if not tenant:
            del self._open[tenant_id]


def _ended(row: asyncpg.Record) -> Ended:
    """A checkpoint that ended, or that no tick can reach any more because its run ended without it."""
    return Ended(
        status=CheckpointStatus(row["status"] or CheckpointStatus.UNREACHABLE),
        run_status=RunStatus(row["run_status"]),
        refs=_refs.decode(row["refs"]) if row["status"] == CheckpointStatus.REACHED else {},
    )
