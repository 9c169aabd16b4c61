"""Who calls, by their API key, and whether they may (rulings N1, N2): the `Authenticator` of `DUCTOR_AUTH=keys`.

A secret is compared as its SHA-256, in constant time. While the database cannot be asked nobody is let in on what was known before: the call is UNAVAILABLE.
Everything that is wrong with a key is one and the same answer; which of it, only log and audit trail say. How a key is looked up is `lookups`' business.
"""

import asyncio
import contextlib
import hmac
import uuid
from collections.abc import Iterable
from typing import Final

import asyncpg
from prometheus_client import Counter

from ductord.access.drafts import hash_of
from ductord.access.limits import Attempts, Bucket, buckets
from ductord.access.lookups import Known, Lookups, TooMany
from ductord.access.trail import Attempt, Trail
from ductord.model.errors import Refusal
from ductord.model.keys import PLATFORM_TENANT, Token, parse_token
from ductord.rpc import caller as who
from ductord.rpc.addresses import host_of
from ductord.rpc.config import Settings
from ductord.rpc.errors import refused
from ductord.rpc.host import Scope
from ductord.rpc.metrics import Metrics
from ductord.rpc.permissions import PERMISSIONS

USED_S: Final = 60.0
TURN_MS: Final = 1_000


class Keys:
    """The keys of a process: an `Authenticator` over the pool of any service that serves RPCs."""

    def __init__(self, pool: asyncpg.Pool, settings: Settings, metrics: Metrics) -> None:
        self._clock = asyncio.get_running_loop().time
        self._attempts = Attempts(self._clock, settings.key_attempts)
        self._lookups = Lookups(pool, settings, metrics, self._attempts)
        self._trail = Trail(pool, self._clock)
        self._failures = failures(metrics)

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
        known = await self._lookups.look((owner, uuid.UUID(identity.key_id).hex))
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
        self._lookups.close()

    async def _judged(self, token: Token, peer: str) -> Known:
        """The key behind a token that is good. Raises CREDENTIAL_INVALID, TOO_MANY_ATTEMPTS, DATABASE_UNAVAILABLE."""
        try:
            known = await self._lookups.find((token.tenant_id, token.key_id), peer)
        except TooMany as many:
            raise self._too_many(many.wait_s, peer, token) from None
        reason = _fault(known, token, self._clock())
        if known is not None and not reason:
            return known
        raise self._bad(reason, peer, buckets(host_of(peer), token.tenant_id, token.key_id), token, known)

    def _named(self, known: Known, service: str, tenants: set[str], token: Token, peer: str) -> who.Identity:
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
        self, reason: str, peer: str, names: tuple[Bucket, ...], token: Token | None = None, known: Known | None = None
    ) -> Refusal:
        """What a bad credential is answered, having been counted."""
        if wait := self._attempts.take(names):
            return self._too_many(wait, peer, token)
        self._note(reason, token, peer, known)
        return _invalid()

    def _too_many(self, wait_s: float, peer: str, token: Token | None) -> Refusal:
        self._failures.labels("too_many_attempts").inc()
        self._trail.refused(Attempt(reason="too_many_attempts", host=host_of(peer)), token.prefix if token else "")
        message = "too many attempts with bad keys came from this address; try again later"
        return refused("TOO_MANY_ATTEMPTS", message, retry_after_ms=int(wait_s * 1000) + 1)

    def _note(self, reason: str, token: Token | None, peer: str, known: Known | None) -> None:
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


def _fault(known: Known | None, token: Token, now: float) -> str:
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
