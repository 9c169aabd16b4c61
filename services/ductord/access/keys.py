"""Who calls, by their API key, and whether they may (rulings N1, N2): the `Authenticator` of `DUCTOR_AUTH=keys`.

A key is looked up in its own tenant's transaction, kept for `DUCTOR_KEY_CACHE_MS` and then looked up anew, so that a revocation counts within that
time everywhere; whether its time is over is said by the database's clock. A secret is compared as its SHA-256, in constant time. While the database cannot
be asked nobody is let in on what was known before: the call is UNAVAILABLE. Everything that is wrong with a key is one and the same answer; which of it,
only log and audit trail say.
"""

import asyncio
import contextlib
import hmac
import uuid
from collections.abc import Iterable
from typing import Final

import asyncpg
from cachetools import LRUCache
from prometheus_client import Counter

from ductord.access.limits import Attempts, Bucket, buckets
from ductord.access.minting import hash_of
from ductord.access.trail import Attempt, Trail
from ductord.db.outage import refusal_of
from ductord.db.pool import retrying, tenant_transaction
from ductord.db.queries import Queries
from ductord.model.errors import Refusal
from ductord.model.keys import PLATFORM_TENANT, Token, parse_token
from ductord.rpc import caller as who
from ductord.rpc.addresses import host_of
from ductord.rpc.config import Settings
from ductord.rpc.errors import refused
from ductord.rpc.host import Scope
from ductord.rpc.metrics import Metrics
from ductord.rpc.permissions import PERMISSIONS

MAX_KNOWN: Final = 20_000
"""Keys that are kept in memory, and ids that were found to be no key's."""
UNKNOWN_S: Final = 1.0
"""How long an id that is no key's is not looked up again, at most."""
LOOK_S: Final = 5.0
"""How long a look-up may take before its callers are told that the database is away."""
LANE: Final = 8
"""How many callers may wait for their turn where too many failures came from where they come from."""
USED_S: Final = 60.0
TURN_MS: Final = 1_000

_q: Final = Queries("ductord.access")

Id = tuple[str, str]
"""Tenant and key id, as a token names them."""


class _Known:
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


class Keys:
    """The keys of a process: an `Authenticator` over the pool of any service that serves RPCs."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings, metrics: Metrics) -> None:
        self._pool = pool
        self._clock = asyncio.get_running_loop().time
        self._fresh_s = settings.key_cache_ms / 1000
        self._known: LRUCache[Id, _Known] = LRUCache(MAX_KNOWN)
        self._unknown: LRUCache[Id, float] = LRUCache(MAX_KNOWN)
        self._looking: dict[Id, asyncio.Task[_Known | None]] = {}
        self._looks = asyncio.Semaphore(max(pool.get_max_size() // 2, 1))
        """However many keys are asked for at once, calls that have theirs get connections too."""
        self._strangers = asyncio.Semaphore(max(pool.get_max_size() // 2, 1))
        """And however many strangers come, keys that are known are looked at anew."""
        self._lane = asyncio.Semaphore(1)
        self._in_lane = 0
        self._attempts = Attempts(self._clock, settings.key_attempts)
        self._trail = Trail(pool, self._clock)
        self._failures = failures(metrics)
        self._lookups = metrics.counter("ductor_auth_lookups", "Keys that were looked up.", ("result",))

    async def identify(
        self, service: str, method: str, metadata: Iterable[tuple[str, str | bytes]], peer: str
    ) -> who.Identity:
        """The caller, who may call `service` and `method`. Raises as `rpc.caller.Authenticator` says."""
        credential, tenants = _given(metadata)
        if credential is None:
            self._note("missing", None, peer, None)
            raise refused("CREDENTIAL_REQUIRED", "give a key: authorization: Bearer dk_…")
        token = parse_token(credential)
        if token is None:
            raise self._bad("malformed", peer, buckets(host_of(peer)))
        known = await self._judged(token, peer)
        scope = PERMISSIONS.get(f"{service}/{method}", "")
        if not scope or scope not in known.identity.scopes:
            self._note("permission_missing", token, peer, known)
            message = f"the key does not carry the scope {scope}" if scope else "no key may call this"
            raise refused("PERMISSION_MISSING", message, permission=scope)
        identity = self._named(known, service, tenants, token, peer)
        now = self._clock()
        if now - known.used >= USED_S:
            known.used = now
            self._trail.used(token.tenant_id, identity.key_id)
        return identity

    async def recheck(self, identity: who.Identity) -> None:
        """Look the key of a call that goes on up anew. Raises CREDENTIAL_INVALID, DATABASE_UNAVAILABLE."""
        owner = PLATFORM_TENANT if who.PLATFORM in identity.scopes else identity.tenant_id or ""
        known = await self._look((owner, uuid.UUID(identity.key_id).hex))
        if known is None or known.revoked or known.ends <= self._clock():
            self._failures.labels("ended").inc()
            raise _invalid()

    async def turn(self) -> float | None:
        """Write what was noted: the body of a loop."""
        return await self._trail.turn()

    async def close(self) -> None:
        """Write the last of it, if the database is there."""
        with contextlib.suppress(Exception):
            await self._trail.turn(last=True)
        for task in list(self._looking.values()):
            task.cancel()

    async def _judged(self, token: Token, peer: str) -> _Known:
        """The key behind a token that is good. Raises CREDENTIAL_INVALID, TOO_MANY_ATTEMPTS, DATABASE_UNAVAILABLE."""
        token_id = token.tenant_id, token.key_id
        known = self._known.get(token_id)
        if known is None or self._clock() - known.looked >= self._fresh_s:
            known = await self._found(token_id, peer, known)
        reason = _fault(known, token, self._clock())
        if known is not None and not reason:
            return known
        names = buckets(host_of(peer), token.tenant_id, token.key_id)
        raise self._bad(reason, peer, names, token, known)

    async def _found(self, token_id: Id, peer: str, stale: _Known | None) -> _Known | None:
        """Look a key up, unless it was found to be none a moment ago. Ids that this process does not know are looked up freely only as often as
        failures may be."""
        if stale is not None:
            return await self._look(token_id)
        if self._clock() - self._unknown.get(token_id, float("-inf")) < min(self._fresh_s, UNKNOWN_S):
            return None
        await _entered(self._strangers)
        try:
            # Now, after those who came before have been judged.
            wait = self._attempts.wait_s(buckets(host_of(peer), *token_id))
            if not wait:
                return await self._look(token_id)
        finally:
            self._strangers.release()
        return await self._found_in_lane(token_id, wait)

    async def _found_in_lane(self, token_id: Id, wait: float) -> _Known | None:
        """Look up an id where too many failures were before it, one after the other. Not at all would mean that strangers who share a host, or only know a
        tenant's name, keep out every good key that this process has not met yet: after a restart, all of them. Raises TOO_MANY_ATTEMPTS when the lane is full.
        """
        if self._in_lane >= LANE:
            self._failures.labels("too_many_attempts").inc()
            raise _too_many(wait)
        self._in_lane += 1
        try:
            await _entered(self._lane)
            try:
                return await self._look(token_id)
            finally:
                self._lane.release()
        finally:
            self._in_lane -= 1

    async def _look(self, token_id: Id) -> _Known | None:
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

    def _looked(self, token_id: Id, done: asyncio.Task[_Known | None]) -> None:
        self._looking.pop(token_id, None)
        if not done.cancelled():
            done.exception()  # its callers have it; without any left nobody needs it

    async def _look_up(self, token_id: Id) -> _Known | None:
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
            self._lookups.labels("failed").inc()
            raise refusal or error from None
        if row is None:
            self._known.pop(token_id, None)
            self._unknown[token_id] = self._clock()
            self._lookups.labels("unknown").inc()
            return None
        before = self._known.get(token_id)
        known = self._known[token_id] = _Known(token_id, row, looked, before.used if before else float("-inf"))
        self._lookups.labels("found").inc()
        return known

    def _named(self, known: _Known, service: str, tenants: set[str], token: Token, peer: str) -> who.Identity:
        """The identity with the tenant that the call names. Raises TENANT_MISMATCH; of the platform's keys TENANT_REQUIRED, TENANT_INVALID."""
        identity = known.identity
        if identity.tenant_id is not None:
            if tenants and tenants != {identity.tenant_id}:
                self._note("tenant_mismatch", token, peer, known)
                raise refused("TENANT_MISMATCH", "x-tenant-id names another tenant than the key's; leave it out")
            return identity
        if not tenants:
            if service not in who.PLATFORM_SERVICES:
                raise refused("TENANT_REQUIRED", "a key of the platform serves every tenant: name one in x-tenant-id")
            return identity
        tenant = tenants.pop()
        return who.Identity(
            tenant_id=who.checked_tenant("" if tenants else tenant),
            actor=identity.actor,
            scopes=identity.scopes,
            groups=identity.groups,
            acts_for_others=identity.acts_for_others,
            key_id=identity.key_id,
        )

    def _bad(
        self, reason: str, peer: str, names: tuple[Bucket, ...], token: Token | None = None, known: _Known | None = None
    ) -> Refusal:
        """What a bad credential is answered, having been counted."""
        if wait := self._attempts.take(names):
            self._failures.labels("too_many_attempts").inc()
            self._trail.refused(Attempt(reason="too_many_attempts", host=host_of(peer)), token.prefix if token else "")
            return _too_many(wait)
        self._note(reason, token, peer, known)
        return _invalid()

    def _note(self, reason: str, token: Token | None, peer: str, known: _Known | None) -> None:
        self._failures.labels(reason).inc()
        attempt = Attempt(
            reason=reason,
            host=host_of(peer),
            tenant_id=token.tenant_id if token else "",
            key_id=known.identity.key_id if known else "",
            actor=known.identity.actor if known else "",
        )
        self._trail.refused(attempt, token.prefix if token else "")


def failures(metrics: Metrics) -> Counter:
    """The counter of calls that were refused for their credential."""
    return metrics.counter(
        "ductor_auth_failures", "Calls that were refused for their credential, by what was wrong.", ("reason",)
    )


def authenticate(scope: Scope, pool: asyncpg.Pool) -> None:
    """Have the process ask for keys, where it is configured so: the first of its services that has a pool lends it. Off: nothing, at no cost."""
    failures(scope.metrics)  # there in any case: a dashboard shows 0, not a gap
    if scope.settings.auth == "off" or scope.authenticated:
        return
    keys = Keys(pool, scope.settings, scope.metrics)
    scope.authenticate(keys)
    scope.loop("keys", keys.turn, interval_ms=TURN_MS)
    scope.at_stop(keys.close)


def _given(metadata: Iterable[tuple[str, str | bytes]]) -> tuple[str | None, set[str]]:
    """(the credential as `credential_of` says, tenants that are named)."""
    authorizations: list[str] = []
    tenants: set[str] = set()
    for key, value in metadata:
        if key == who.AUTHORIZATION_KEY:
            authorizations.append(value if isinstance(value, str) else "")
        elif key == who.TENANT_KEY:
            tenants.add(value if isinstance(value, str) else "")
    return who.credential_of(authorizations), tenants


def _fault(known: _Known | None, token: Token, now: float) -> str:
    """What is wrong; empty if nothing is. A secret is judged before what became of the key."""
    given = hash_of(token.secret)
    if known is None:
        return "unknown"
    if not hmac.compare_digest(known.secret_hash, given):
        return "wrong_secret"
    if known.revoked:
        return "revoked"
    return "expired" if known.ends <= now else ""


def _invalid() -> Refusal:
    return refused("CREDENTIAL_INVALID", "the key is not good: unknown, expired or revoked")


async def _entered(room: asyncio.Semaphore) -> None:
    """Wait for a place, no longer than for a look. Raises DATABASE_UNAVAILABLE."""
    try:
        async with asyncio.timeout(LOOK_S):
            await room.acquire()
    except TimeoutError as error:
        raise (refusal_of(error) or error) from None


def _too_many(wait_s: float) -> Refusal:
    message = "too many attempts with bad keys came from this address; try again later"
    return refused("TOO_MANY_ATTEMPTS", message, retry_after_ms=int(wait_s * 1000) + 1)
