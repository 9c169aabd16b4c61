"""The HTTP port of a process: /livez, /readyz and /metrics in front of the application that a service mounted, and the server under it.

/livez says whether the loops turn and never asks the database; /readyz says whether the process can serve now (KB-02). Bodies name loops and
checks, no error text.
"""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ductord.rpc import tls
from ductord.rpc.addresses import Address
from ductord.rpc.health import Health
from ductord.rpc.metrics import Metrics

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]
"""An ASGI application."""

PATHS = ("/livez", "/readyz", "/metrics")


class Operations:
    """The ASGI application of a process."""

    def __init__(self, health: Health, metrics: Metrics) -> None:
        self._health = health
        self._metrics = metrics
        self._mounted: App | None = None

    def mount(self, app: App) -> None:
        """Answer every other path with `app`."""
        if self._mounted is not None:
            raise ValueError("one service of a process serves HTTP, and there are two")
        self._mounted = app

    async def app(
        self, scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        """The entry that the server calls."""
        if scope["type"] == "http" and scope["path"] in PATHS:
            if scope["method"] in ("GET", "HEAD"):
                status, kind, body = await self._answer(scope["path"])
            else:
                status, kind, body = 405, "text/plain; charset=utf-8", b"GET only\n"
            await _respond(send, status, kind, b"" if scope["method"] == "HEAD" else body)
        elif self._mounted is not None:
            await self._mounted(scope, receive, send)
        elif scope["type"] == "http":
            await _respond(
                send, 404, "text/plain; charset=utf-8", b"this process serves /livez, /readyz and /metrics only\n"
            )

    async def _answer(self, path: str) -> tuple[int, str, bytes]:
        if path == "/metrics":
            await self._health.problems()  # so that what they show of it is true: at most once a second, and bounded
            return 200, "text/plain; version=0.0.4; charset=utf-8", self._metrics.exposition()
        problems = self._health.stale() if path == "/livez" else await self._health.problems()
        text = "".join(f"{problem}\n" for problem in problems) or "ok\n"
        return 503 if problems else 200, "text/plain; charset=utf-8", text.encode()


async def _respond(send: Callable[[Message], Awaitable[None]], status: int, kind: str, body: bytes) -> None:
    headers = [
        (b"content-type", kind.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


HEAD_MAX_BYTES: Final = 64 << 10
_HEAD_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
)


class _Uvicorn(uvicorn.Server):
    """uvicorn inside our event loop: signals are the host's."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _BoundedHead(HttpToolsProtocol):
    """uvicorn's protocol, but for a head that never ends: httptools keeps it all in memory, and has no limit of its own."""

    _unfinished = 0
    """Bytes of a head that was already begun when they came."""
    _in_head = False

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._unfinished = True, 0

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        if self._in_head:
            self._unfinished += len(data)
            if self._unfinished > HEAD_MAX_BYTES:
                if not self.transport.is_closing():
                    self.transport.write(_HEAD_TOO_LARGE)
                    self.transport.close()
                return
        super().data_received(data)


class HttpServer:
    """An ASGI application on one address. `certificates` None: in plaintext."""

    def __init__(self, app: App, address: Address, certificates: tls.CertificateFiles | None = None) -> None:
        self._address = address
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            interface="asgi3",
            proxy_headers=False,
            ws="none",
            http=_BoundedHead,
            server_header=False,
            date_header=False,
            timeout_keep_alive=75,  # longer than load balancers keep an idle connection
            ssl_context_factory=None
            if certificates is None
            else lambda config, default: tls.RenewingContext.of(certificates),
        )
        self._server = _Uvicorn(config)
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> Address:
        """Bind and serve; the address with the port that was bound. Raises OSError naming the address."""
        listener, bound = _listen(self._address)
        self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="http")
        while not self._server.started:
            if self._task.done():
                self._task.result()
                raise OSError(f"the HTTP server did not start on {bound}")
            await asyncio.sleep(0.005)
        return bound

    async def stop(self, grace_s: float) -> None:
        """Take no more; let what is in flight answer within `grace_s`."""
        if self._task is None:
            return
        self._server.config.timeout_graceful_shutdown = max(int(grace_s), 1)
        self._server.should_exit = True
        _, pending = await asyncio.wait([self._task], timeout=grace_s + 2)
        if pending:
            self._task.cancel()
            await asyncio.wait([self._task], timeout=1)


def _listen(address: Address) -> tuple[socket.socket, Address]:
    try:
        if not address.host:
            dual = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if dual else socket.AF_INET
            listener = socket.create_server(("", address.port), family=family, dualstack_ipv6=dual, backlog=1024)
        else:
            family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
            listener = socket.create_server((address.host, address.port), family=family, backlog=1024)
    except OSError as error:
        raise OSError(error.errno, f"cannot listen for HTTP on {address}: {error.strerror}") from None
    # An answer is two writes, head and body: with Nagle the second waits for the caller's delayed ACK, 40 ms. asyncio would see to it, but not
    # for a listener made here, whose protocol number reads 0.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener, address.at(listener.getsockname()[1])
