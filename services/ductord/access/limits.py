"""How many failed attempts at a credential are looked at: token buckets per caller's host, per host and tenant named, per key named.

A gateway has many callers behind one host, so that a host's own bucket is wide and the one of host and tenant is narrow. Only failures take anything: who has a
good key is not counted. Nothing here says what a failure is.
"""

import ipaddress
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import unquote

import msgspec
from cachetools import LRUCache

Bucket = tuple[str, ...]
"""The name of a bucket; its first word says how wide it is."""

MAX_BUCKETS: Final = 10_000


class Width(msgspec.Struct, frozen=True, kw_only=True):
    """`burst` attempts at once, then one every `every_s` seconds."""

    burst: int
    every_s: float


WIDTHS: Final = {
    "host": Width(burst=200, every_s=0.1),
    "tenant": Width(burst=20, every_s=1.0),
    "key": Width(burst=20, every_s=1.0),
}


def buckets(host: str, tenant_id: str = "", key_id: str = "") -> tuple[Bucket, ...]:
    """The buckets of one attempt from `host` with a token that names `tenant_id` and `key_id`; empty: it names none."""
    wide = (("host", host), ("tenant", host, tenant_id))
    return (*wide, ("key", tenant_id, key_id)) if key_id else wide


class Attempts:
    """The buckets of a process. `clock`: seconds of a clock that never goes back."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._left: LRUCache[Bucket, tuple[float, float]] = LRUCache(MAX_BUCKETS)

    def wait_s(self, names: Sequence[Bucket]) -> float:
        """Seconds until all of the buckets hold an attempt; 0: they do."""
        now = self._clock()
        return max(0.0, *((1.0 - self._in(name, now)) * WIDTHS[name[0]].every_s for name in names))

    def take(self, names: Sequence[Bucket]) -> float:
        """Take one failed attempt from each of the buckets; where one is empty nothing is taken. The answer is as `wait_s` was before: 0 when it was taken."""
        if (wait := self.wait_s(names)) > 0:
            return wait
        now = self._clock()
        for name in names:
            self._left[name] = self._in(name, now) - 1.0, now
        return 0.0

    def _in(self, name: Bucket, now: float) -> float:
        width = WIDTHS[name[0]]
        left, at = self._left.get(name, (float(width.burst), now))
        return min(left + (now - at) / width.every_s, float(width.burst))


def host_of(peer: str) -> str:
    """The host of a caller as gRPC writes it (`ipv4:10.0.0.1:5555`, `ipv6:%5B::1%5D:5555`, `unix:/path`), or of a bare address. Of an IPv6 address the network
    that one customer has (/64)."""
    kind, _, rest = peer.partition(":")
    if kind == "unix":
        return "unix"
    address = unquote(rest) if kind in ("ipv4", "ipv6") else peer
    address = address.partition("]")[0].lstrip("[") if address.startswith("[") else address
    if kind == "ipv4":
        return address.partition(":")[0]
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:64]
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
