"""What the gateway itself looks at in a credential, with `DUCTOR_AUTH=keys`: that there is one, that it has the form of one, and how often its caller's were
bad.

Whether a key is good is for the services to say, who know keys and limit by their own callers, of whom the gateway is one. Here a caller is a peer on HTTP:
who comes with one bad key after the other is passed on less often for a while. A key that a service has taken is never held up, and one that was not seen yet
is not kept out by a neighbour's bad one.
"""

import asyncio
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from cachetools import LRUCache

from ductord.access.limits import Attempts, buckets, crowd
from ductord.gateway.exchange import Exchange
from ductord.model.errors import Refusal
from ductord.model.keys import Token, parse_token
from ductord.rpc import errors
from ductord.rpc.caller import credential_of
from ductord.rpc.config import Settings
from ductord.rpc.metrics import Metrics

MAX_TAKEN: Final = 20_000
"""Keys that are known to have been taken."""
COSTLY: Final = 10
"""What a request that was read in vain takes from its host's crowd."""
_UNREADABLE: Final = ("INVALID_ARGUMENT", "CANCELLED")
"""How a request ends that was no request, or never came to its end: read in vain, since nobody has looked at its key."""


class Credentials:
    """The credentials of a gateway's callers. Off: nothing is looked at."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._on = settings.auth != "off"
        self._attempts = Attempts(asyncio.get_running_loop().time, settings.key_attempts)
        self._taken: LRUCache[bytes, None] = LRUCache(MAX_TAKEN)
        """By the hash of the whole token."""
        self._refused = metrics.counter(
            "ductor_gateway_credentials_refused", "Requests that went no further for their credential.", ("reason",)
        )

    def admit(self, exchange: Exchange) -> None:
        """Look at a request's credential before anything else of it. Raises CREDENTIAL_REQUIRED, CREDENTIAL_INVALID, TOO_MANY_ATTEMPTS."""
        if not self._on:
            return
        credential = credential_of([value.decode("latin-1") for value in exchange.authorizations])
        if credential is None:
            self._refused.labels("missing").inc()
            raise errors.refused("CREDENTIAL_REQUIRED", "give a key: authorization: Bearer dk_…")
        token = parse_token(credential)
        if token is None:
            if wait := self._attempts.take(buckets(exchange.peer)):
                raise self._too_many(wait)
            self._refused.labels("malformed").inc()
            raise errors.refused("CREDENTIAL_INVALID", "the key is not good: unknown, expired or revoked")
        if _digest(token) in self._taken:
            return
        if self._attempts.wait_s(_buckets(exchange, token)) and (wait := self._attempts.take(crowd(exchange.peer))):
            raise self._too_many(wait)

    @contextmanager
    def accounted(self, exchange: Exchange) -> Iterator[None]:
        """Around one exchange: note what the service has said of its credential."""
        try:
            yield
        finally:
            if self._on:
                self._account(exchange)

    def _account(self, exchange: Exchange) -> None:
        token = parse_token(credential_of([value.decode("latin-1") for value in exchange.authorizations]) or "")
        if token is None:
            return
        if not exchange.forwarded:
            if exchange.code in _UNREADABLE and _digest(token) not in self._taken:
                self._attempts.take(_buckets(exchange, token))
                self._attempts.take(crowd(exchange.peer), COSTLY)
        elif exchange.code == "OK":
            self._taken[_digest(token)] = None
        elif exchange.code == "UNAUTHENTICATED":
            self._taken.pop(_digest(token), None)
            self._attempts.take(_buckets(exchange, token))

    def _too_many(self, wait_s: float) -> Refusal:
        self._refused.labels("too_many_attempts").inc()
        message = "too many attempts with bad keys came from this address; try again later"
        return errors.refused("TOO_MANY_ATTEMPTS", message, retry_after_ms=int(wait_s * 1000) + 1)


def _buckets(exchange: Exchange, token: Token) -> tuple[tuple[str, ...], ...]:
    return buckets(exchange.peer, token.tenant_id)


def _digest(token: Token) -> bytes:
    return hashlib.sha256(token.text.encode()).digest()
