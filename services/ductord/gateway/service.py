"""The gateway: REST, Connect and gRPC-Web on one HTTP port, forwarded to the services through their generated stubs. It has no database and keeps no state."""

import functools
import logging
from collections.abc import Sequence

from ductord.gateway.backends import BACKENDS, Backend, Backends
from ductord.gateway.bodies import Event, Receive, Send
from ductord.gateway.connect import ConnectDoor
from ductord.gateway.cors import Cors
from ductord.gateway.credentials import Credentials
from ductord.gateway.exchange import Exchange
from ductord.gateway.openapi.serving import PATH, Document
from ductord.gateway.rest import RestDoor
from ductord.gateway.traffic import Traffic
from ductord.rpc.addresses import host_of
from ductord.rpc.host import Scope, Service

_log = logging.getLogger("ductor.gateway")


class Gateway:
    """The ASGI application."""

    def __init__(
        self, backends: Backends, traffic: Traffic, credentials: Credentials, cors: Cors, *, request_max_bytes: int
    ) -> None:
        self._rest = RestDoor(backends, traffic.admit, credentials.admit, request_max_bytes=request_max_bytes)
        self._connect = ConnectDoor(backends, traffic.admit, credentials.admit, request_max_bytes=request_max_bytes)
        self._credentials = credentials
        self._document = Document()
        self._traffic = traffic
        self._cors = cors

    async def __call__(self, scope: Event, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        exchange = Exchange(scope["headers"], host_of((scope.get("client") or ("",))[0]))
        with self._traffic.counted(exchange), self._credentials.accounted(exchange):
            if self._cors:
                granted = self._cors.preflight(scope)
                if granted is not None:
                    exchange.door, exchange.method = "cors", "preflight"
                    exchange.ended("OK", "")
                    await send({"type": "http.response.start", "status": 204, "headers": granted})
                    await send({"type": "http.response.body", "body": b""})
                    return
                send = self._cors.telling(scope, send)
            if self._connect.claims(scope["path"]):
                await self._connect.serve(scope, receive, send, exchange)
            elif scope["path"] == PATH:
                await self._document.serve(scope, send, exchange)
            else:
                await self._rest(scope, receive, send, exchange)


async def start(scope: Scope, table: Sequence[Backend] = BACKENDS) -> None:
    """Open a channel to every service of the table and serve HTTP. Ready when all of them serve."""
    channels = {backend.target: scope.channel(backend.target) for backend in table}
    backends = Backends(channels, table, draining=scope.draining)
    for backend in table:
        scope.ready_when(backend.target, functools.partial(backends.check, backend))
    traffic = Traffic(scope.metrics, scope.settings)
    cors = Cors(scope.settings.origins)
    credentials = Credentials(scope.settings, scope.metrics)
    scope.http(Gateway(backends, traffic, credentials, cors, request_max_bytes=scope.settings.request_max_bytes))


SERVICE = Service(name="gateway", start=start)
