"""Pages of other origins (CORS): which of them may call, what a preflight is answered, and what a page may read of an answer, for every door alike.

Nothing here lets anybody in: callers are known by what their `authorization` says and never by cookies, so that credentials mode is not offered and a
page can do no more than its user's key can. What an origin that is not named gets is what it would get with CORS off.
"""

from collections.abc import Mapping
from typing import Final

from ductord.gateway.bodies import Event, Headers, Send

MAX_AGE_S: Final = 7_200
"""How long a browser may keep the answer to a preflight; Chromium keeps none longer."""

METHODS: Final = b"GET, POST, PUT, PATCH, DELETE"
ASKED: Final = (
    b"authorization, content-type, x-tenant-id, x-request-id, x-request-timeout, traceparent, tracestate, last-event-id, "
    b"connect-protocol-version, connect-timeout-ms, connect-accept-encoding, connect-content-encoding, "
    b"grpc-timeout, x-grpc-web, x-user-agent"
)
"""Headers that a page may send: those that `exchange` reads, and what Connect's and gRPC-Web's clients add. Named one by one: `*` would not stand for
`authorization`."""
TOLD: Final = (
    b"x-request-id, retry-after, www-authenticate, connect-content-encoding, "
    b"grpc-status, grpc-message, grpc-status-details-bin"
)
"""Headers of an answer that a page may read."""


class Cors:
    """The origins of `DUCTOR_CORS_ORIGINS`; `*` stands for every one."""

    def __init__(self, origins: frozenset[str]) -> None:
        self._any = "*" in origins
        self._origins = frozenset(origin.encode() for origin in origins)
        # Also an answer that is kept from a page depends on who asked; one that `*` gives does not.
        self._vary: Headers = [] if self._any else [(b"vary", b"origin")]

    def __bool__(self) -> bool:
        """Whether any page may call."""
        return bool(self._origins)

    def preflight(self, scope: Event) -> Headers | None:
        """The headers of the answer to a preflight that is granted, whatever its path; None for any other request."""
        if scope["method"] != "OPTIONS":
            return None
        headers: Mapping[bytes, bytes] = dict(scope["headers"])
        granted = self._granted(headers.get(b"origin"))
        if granted is None or b"access-control-request-method" not in headers:
            return None
        return [
            *self._vary,
            *granted,
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", ASKED),
            (b"access-control-max-age", str(MAX_AGE_S).encode()),
        ]

    def telling(self, scope: Event, send: Send) -> Send:
        """`send`, with what a browser has to know before it shows the answer to the page that asked."""
        granted = self._granted(dict(scope["headers"]).get(b"origin"))
        exposed = [] if granted is None else [*granted, (b"access-control-expose-headers", TOLD)]

        async def sending(event: Event) -> None:
            if event["type"] == "http.response.start":
                event = {**event, "headers": [*event["headers"], *self._vary, *exposed]}
            await send(event)

        return sending

    def _granted(self, origin: bytes | None) -> Headers | None:
        if origin is None:
            return None
        if self._any:
            return [(b"access-control-allow-origin", b"*")]
        return [(b"access-control-allow-origin", origin)] if origin in self._origins else None
