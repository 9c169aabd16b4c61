"""One HTTP request and what comes to be known of it: its ids, its deadline, the metadata that travels on, and how it ended.

The headers that mean something are named here and no other is passed on; a caller on HTTP cannot name a scope of all tenants. Whether tenant and
credential are good is for the service to say: here they only have to be something that gRPC can carry.
"""

import re
import time
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, Final

from ductord.rpc import caller as who
from ductord.rpc import errors
from ductord.rpc.tracing import Span, start_span

DEFAULT_TIMEOUT_S: Final = 30.0
"""How long a call may take whose caller names no deadline, beyond what the request itself asks to wait for."""
MAX_TIMEOUT_S: Final = 3_600.0
MAX_HEADER: Final = 4_096

_KEPT: Final = frozenset(
    {
        b"authorization", b"x-tenant-id", b"x-request-id", b"traceparent", b"tracestate",
        b"content-type", b"content-length", b"content-encoding", b"last-event-id", b"if-none-match",
        b"grpc-timeout", b"connect-timeout-ms", b"connect-protocol-version", b"x-request-timeout",
    }
)  # fmt: skip
_CARRIED: Final = re.compile(rb"[\x20-\x7e]{1,%d}" % MAX_HEADER)
_UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_TIMEOUT: Final = re.compile(rb"([0-9]{1,8})([HMSmun])")
_MILLISECONDS: Final = re.compile(rb"[0-9]{1,10}")
_SECONDS: Final = re.compile(rb"[0-9]{1,6}(?:\.[0-9]{1,6})?")


class Exchange:
    """What is known of one request. `door` is `rest`, `connect`, `grpc-web` or `cors`; `code` and `reason` say how it ended."""

    __slots__ = (
        "authorizations", "code", "door", "forwarded", "headers", "method", "peer", "reason", "request_id", "span", "started", "tenants",
    )  # fmt: skip

    def __init__(self, headers: Iterable[tuple[bytes, bytes]], peer: str = "") -> None:
        self.started = time.perf_counter()
        self.headers: dict[bytes, bytes] = {}
        self.tenants: set[bytes] = set()
        self.authorizations: set[bytes] = set()
        for key, value in headers:
            if key in _KEPT:
                self.headers[key] = value
                if key == b"x-tenant-id":
                    self.tenants.add(value)
                elif key == b"authorization":
                    self.authorizations.add(value)
        given = self.headers.get(b"x-request-id", b"").decode("latin-1")
        self.request_id = who.request_id_of(((who.REQUEST_ID_KEY, given),))
        self.peer = peer
        """The caller's host, of an IPv6 address its network."""
        self.door = "rest"
        self.method = "unknown"
        self.code = "CANCELLED"  # unless something else is said
        self.reason = ""
        self.forwarded = False
        """Whether a service was called, which then logs the call."""
        self.span: Span

    def begin(self, method: str) -> Span:
        """The RPC is known: the span of the call, to be used as a context manager."""
        self.method = method
        trace = self.headers.get(b"traceparent", b"").decode("latin-1")
        self.span = start_span(f"gateway {method}", traceparent=trace, kind="server")
        return self.span

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What the call to the service carries. Raises TENANT_INVALID, CREDENTIAL_INVALID for what cannot travel or is given twice."""
        pairs = [
            (errors.BUDGET_KEY, str(errors.LARGEST_BUDGET)),
            (who.REQUEST_ID_KEY, self.request_id),
            (who.TRACEPARENT_KEY, self.span.traceparent),
        ]
        if self.tenants:
            tenant = _carried(self.tenants)
            if not tenant:
                raise errors.refused("TENANT_INVALID", "x-tenant-id is one value of 1 to 64 letters, digits, _ and -")
            pairs.append((who.TENANT_KEY, tenant))
        if self.authorizations:
            authorization = _carried(self.authorizations)
            if not authorization:
                raise errors.refused("CREDENTIAL_INVALID", "authorization is one value of printable ASCII")
            pairs.append((who.AUTHORIZATION_KEY, authorization))
        state = self.headers.get(b"tracestate")
        if state and _CARRIED.fullmatch(state):
            pairs.append(("tracestate", state.decode()))
        return tuple(pairs)

    def timeout_s(self) -> float | None:
        """The caller's own deadline from now, None without one: the nearest of those that the headers name.

        `grpc-timeout: 10S`, `connect-timeout-ms: 10000` and `x-request-timeout: 10` (seconds) say the same. Raises FIELD_INVALID naming the header.
        """
        times = [
            seconds
            for name, read in _TIMEOUTS.items()
            if (value := self.headers.get(name)) is not None and (seconds := read(name, value)) is not None
        ]
        return min(times) if times else None

    def ended(self, code: str, reason: str) -> None:
        """How it ended: a code's name and an `ErrorReason`."""
        self.code, self.reason = code, reason


current: ContextVar[Exchange] = ContextVar("ductor_exchange")
"""The exchange at hand, for the Connect door, whose library stands between."""


def _carried(values: set[bytes]) -> str:
    value = next(iter(values))
    return value.decode() if len(values) == 1 and _CARRIED.fullmatch(value) else ""


def _units(name: bytes, value: bytes) -> float:
    match = _TIMEOUT.fullmatch(value)
    return min(int(match[1]) * _UNITS[match[2]], MAX_TIMEOUT_S) if match else _refuse(name, "10S or 500m")


def _milliseconds(name: bytes, value: bytes) -> float:
    return min(int(value) / 1000, MAX_TIMEOUT_S) if _MILLISECONDS.fullmatch(value) else _refuse(name, "milliseconds")


def _seconds(name: bytes, value: bytes) -> float:
    return min(float(value), MAX_TIMEOUT_S) if _SECONDS.fullmatch(value) else _refuse(name, "seconds, as 10 or 0.5")


def _refuse(name: bytes, wanted: str) -> Any:
    raise errors.field_invalid(name.decode(), f"must be {wanted}")


_TIMEOUTS: Final = {b"grpc-timeout": _units, b"connect-timeout-ms": _milliseconds, b"x-request-timeout": _seconds}
