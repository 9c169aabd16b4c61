"""Keys as the database has them: looked up, and kept for a moment. Who may call is not judged here.

A key is looked up in its own tenant's transaction, kept for `DUCTOR_KEY_CACHE_MS` and then looked up anew, so that a revocation counts within that time
everywhere; whether its time is over is said by the database's clock. However many ask, connections are left for those whose keys are known.
"""

import asyncio
import uuid
from typing import Final

import asyncpg
from cachetools import LRUCache

from ductord.access.limits import Attempts, buckets
from ductord.db.outage import refusal_of
from ductord.db.pool import retrying, tenant_transaction
from ductord.db.queries import Queries
from ductord.model.keys import PLATFORM_TENANT
from ductord.rpc import caller as who
from ductord.rpc.addresses import host_of
from ductord.rpc.config import Settings
from ductord.rpc.metrics import Metrics

MAX_KNOWN: Final = 20_000
"""Keys that are kept in memory, and ids that were found to be no key's."""
UNKNOWN_S: Final = 1.0
"""How long an id that is no key's is not looked up again, at most."""
LOOK_S: Final = 5.0
"""How long a look-up may take before its callers are told that the database is away."""
LANE: Final = 8
"""How many callers may wait for their turn where too many failures came from where they come from."""

_q: Final = Queries("ductord.access")

Id = tuple[str, str]
"""Tenant and key id, as a token names them."""


class TooMany(Exception):
    """An id that nobody knows is not looked up now: too many failures came before it. `wait_s`: until one may be tried again."""

    def __init__(self, wait_s: float) -> None:
        super().__init__(wait_s)
        self.wait_s = wait_s


class Known:
    """A key as it was when it was looked up. `ends`: when its time is over, by this process's clock."""

    __slots__ = ("ends", "identity", "looked", "revoked", "secret_hash", "used")

    def __init__(self, token_id: Id, row: asyncpg.Record, looked: float, used: float) -> None:
        tenant_id, key_id = token_id
        platform = tenant_id == PLATFORM_TENANT
        scopes = frozenset(row["scopes"])
        self.identity = who.Identity(
            tenant_id=None if platform else tenant_id,
            actor=f"key:{row['name']}",
            scopes=scopes | {who.PLATFORM} if platform else scopes,
            groups=tuple(row["groups"]),
            acts_for_others=row["acts_for_others"],
            key_id=str(uuid.UUID(key_id)),
        )
        self.secret_hash: bytes = row["secret_hash"]
        self.revoked: bool = row["revoked"]
        self.ends = float("inf") if row["left_s"] is None else looked + row["left_s"]
        self.looked = looked
        self.used = used


class Lookups:
    """The keys that a process has looked up. `attempts`: of what failed, by who judges."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings, metrics: Metrics, attempts: Attempts) -> None:
        self._pool = pool
        self._attempts = attempts
        self._clock = asyncio.get_running_loop().time
        self._fresh_s = settings.key_cache_ms / 1000
        self._known: LRUCache[Id, Known] = LRUCache(MAX_KNOWN)
        self._unknown: LRUCache[Id, float] = LRUCache(MAX_KNOWN)
        self._looking: dict[Id, asyncio.Task[Known | None]] = {}
        self._looks = asyncio.Semaphore(max(pool.get_max_size() // 2, 1))
        """However many keys are asked for at once, calls that have theirs get connections too."""
        self._strangers = asyncio.Semaphore(max(pool.get_max_size() // 2, 1))
        """And however many strangers come, keys that are known are looked at anew."""
        self._lane = asyncio.Semaphore(1)
        self._in_lane = 0
        self._counted = metrics.counter("ductor_auth_lookups", "Keys that were looked up.", ("result",))

    async def find(self, token_id: Id, peer: str) -> Known | None:
        """A key as it is, or was less than `DUCTOR_KEY_CACHE_MS` ago; None for an id that is no key's, also for a moment after that was found.

        Ids that this process does not know are looked up freely only as often as failures may be (`limits`); `peer` is who asks. Raises `TooMany`,
        DATABASE_UNAVAILABLE.
        """
        known = self._known.get(token_id)
        if known is not None:
            return known if self._clock() - known.looked < self._fresh_s else await self.look(token_id)
        if self._clock() - self._unknown.get(token_id, float("-inf")) < min(self._fresh_s, UNKNOWN_S):
            return None
        await _entered(self._strangers)
        try:
            # Now, after those who came before have been judged.
            wait = self._attempts.wait_s(buckets(host_of(peer), *token_id))
            if not wait:
                return await self.look(token_id)
        finally:
            self._strangers.release()
        return await self._find_in_lane(token_id, wait)

    async def _find_in_lane(self, token_id: Id, wait: float) -> Known | None:
        """Look up an id where too many failures were before it, one after the other. Not at all would mean that strangers who share a host, or only know a
        tenant's name, keep out every good key that this process has not met yet: after a restart, all of them. Raises `TooMany` when the lane is full.
        """
        if self._in_lane >= LANE:
            raise TooMany(wait)
        self._in_lane += 1
        try:
            await _entered(self._lane)
            try:
                return await self.look(token_id)
            finally:
                self._lane.release()
        finally:
            self._in_lane -= 1

    async def look(self, token_id: Id) -> Known | None:
        """The key as it is now; those who ask for the same at the same time share one look. A caller who goes away takes it from nobody.

        Raises DATABASE_UNAVAILABLE.
        """
        task = self._looking.get(token_id)
        if task is None:
            task = self._looking[token_id] = asyncio.create_task(self._look_up(token_id))
            task.add_done_callback(lambda done: self._looked(token_id, done))
        try:
            async with asyncio.timeout(LOOK_S):  # in a black hole the look's own end takes as long as its roll-back
                return await asyncio.shield(task)
        except TimeoutError as error:
            raise (refusal_of(error) or error) from None

    def _looked(self, token_id: Id, done: asyncio.Task[Known | None]) -> None:
        self._looking.pop(token_id, None)
        if not done.cancelled():
            done.exception()  # its callers have it; without any left nobody needs it

    async def _look_up(self, token_id: Id) -> Known | None:
        tenant_id, key_id = token_id

        async def look() -> asyncpg.Record | None:
            async with tenant_transaction(self._pool, tenant_id) as db:
                return await db.fetchrow(_q["look_up"], tenant_id, str(uuid.UUID(key_id)))

        looked = self._clock()
        try:
            async with asyncio.timeout(LOOK_S), self._looks:
                row = await retrying(look, tries=3)
        except Exception as error:
            refusal = refusal_of(error)
            self._counted.labels("failed").inc()
            raise refusal or error from None
        if row is None:
            self._known.pop(token_id, None)
            self._unknown[token_id] = self._clock()
            self._counted.labels("unknown").inc()
            return None
        before = self._known.get(token_id)
        known = self._known[token_id] = Known(token_id, row, looked, before.used if before else float("-inf"))
        self._counted.labels("found").inc()
        return known

    def close(self) -> None:
        """Look no more up."""
        for task in list(self._looking.values()):
            task.cancel()


async def _entered(room: asyncio.Semaphore) -> None:
    """Wait for a place, no longer than for a look. Raises DATABASE_UNAVAILABLE."""
    try:
        async with asyncio.timeout(LOOK_S):
            await room.acquire()
    except TimeoutError as error:
        raise (refusal_of(error) or error) from None
