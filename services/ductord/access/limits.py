"""How many failed attempts at a credential are looked at: token buckets per caller's host, per host and tenant named, per key named.

A gateway has many callers behind one host, so that a host's own bucket is wide and the one of host and tenant is narrow. Only failures take anything: who has a
good key is not counted. Nothing here says what a failure is.
"""

from collections.abc import Callable, Sequence
from typing import Final

from cachetools import LRUCache

Bucket = tuple[str, ...]
"""The name of a bucket; its first word says how wide it is (`WIDTHS`)."""

MAX_BUCKETS: Final = 10_000
WIDTHS: Final = {"crowd": 100, "host": 10, "tenant": 1, "key": 1}
"""How many attempts come back in `EVERY_S`, and how many times the burst a bucket holds."""
EVERY_S: Final = 1.0
"""How soon an empty bucket holds an attempt again."""


def buckets(host: str, tenant_id: str = "", key_id: str = "") -> tuple[Bucket, ...]:
    """The buckets of one attempt from `host` with a token that names `tenant_id` and `key_id`; empty: it names none."""
    wide = (("host", host), ("tenant", host, tenant_id))
    return (*wide, ("key", tenant_id, key_id)) if key_id else wide


def crowd(host: str) -> tuple[Bucket, ...]:
    """The bucket of what comes from a host that has failed too often, and is passed on all the same: behind a load balancer that is everybody."""
    return (("crowd", host),)


class Attempts:
    """The buckets of a process. `clock`: seconds of a clock that never goes back. `burst`: how many attempts a bucket holds that nobody has taken from."""

    def __init__(self, clock: Callable[[], float], burst: int) -> None:
        self._clock = clock
        self._burst = burst
        self._left: LRUCache[Bucket, tuple[float, float]] = LRUCache(MAX_BUCKETS)

    def wait_s(self, names: Sequence[Bucket]) -> float:
        """Seconds until all of the buckets hold an attempt; 0: they do."""
        now = self._clock()
        return max((0.0, *((1.0 - self._in(name, now)) * EVERY_S / _width(name) for name in names)))

    def take(self, names: Sequence[Bucket], count: int = 1) -> float:
        """Take a failed attempt (`count`: as much as so many) from each of the buckets; where one is empty nothing is taken. The answer is as `wait_s` was
        before: 0 when it was taken."""
        if (wait := self.wait_s(names)) > 0:
            return wait
        now = self._clock()
        for name in names:
            self._left[name] = self._in(name, now) - count, now
        return 0.0

    def _in(self, name: Bucket, now: float) -> float:
        full = float(self._burst * _width(name))
        left, at = self._left.get(name, (full, now))
        return min(left + (now - at) / EVERY_S * _width(name), full)


def _width(name: Bucket) -> int:
    return WIDTHS[name[0]]
