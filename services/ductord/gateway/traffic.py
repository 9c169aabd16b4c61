"""What the gateway counts, times and logs of its requests. Labels are doors, RPCs of the contract and codes: a path or a tenant never is one (OB-01).

A forwarded call is logged by the service that served it, under the same request id; here only what got no further, so that no call is logged twice. But who was
refused for a credential is logged here as well: to the service it came from the gateway.
"""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from ductord.gateway.exchange import Exchange
from ductord.rpc.config import Settings
from ductord.rpc.errors import refused
from ductord.rpc.metrics import Metrics

_REFUSED: Final = ("UNAUTHENTICATED", "PERMISSION_DENIED")

_access = logging.getLogger("ductor.access")


class Traffic:
    """The metrics of the gateway, its access log and its bound on requests in flight."""

    def __init__(self, metrics: Metrics, settings: Settings) -> None:
        self._requests = metrics.counter(
            "ductor_gateway_requests", "HTTP requests, by door, RPC and code.", ("door", "method", "code")
        )
        self._seconds = metrics.histogram(
            "ductor_gateway_request_seconds", "Time that HTTP requests took, long waits included.", ("door", "method")
        )
        gauge = metrics.gauge("ductor_gateway_requests_in_flight", "HTTP requests being served.")
        gauge.set_function(lambda: self._in_flight)
        self._in_flight = 0
        self._max_calls = settings.max_calls
        self._counters: dict[tuple[str, str, str], Any] = {}
        self._timers: dict[tuple[str, str], Any] = {}
        self._logs = settings.access_log != "off"

    def admit(self) -> None:
        """Raise OVERLOADED when more requests are in flight than the process takes."""
        if self._in_flight > self._max_calls:
            message = "more requests are in flight than the gateway takes; try again"
            raise refused("OVERLOADED", message, retry_after_ms=500)

    @contextmanager
    def counted(self, exchange: Exchange) -> Iterator[None]:
        """Around one exchange."""
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._account(exchange, time.perf_counter() - exchange.started)

    def _account(self, exchange: Exchange, seconds: float) -> None:
        key = (exchange.door, exchange.method, exchange.code)
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = self._requests.labels(*key)
        counter.inc()
        timer = self._timers.get(key[:2])
        if timer is None:
            timer = self._timers[key[:2]] = self._seconds.labels(*key[:2])
        timer.observe(seconds)
        if self._logs and (not exchange.forwarded or exchange.code in _REFUSED):
            fields = {
                "method": exchange.method,
                "code": exchange.code,
                "reason": exchange.reason,
                "request_id": exchange.request_id,
                "peer": exchange.peer,
                "duration_ms": round(seconds * 1000, 2),
            }
            _access.info("%s %s %s", exchange.door, exchange.method, exchange.code, extra=fields)
