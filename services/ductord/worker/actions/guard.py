"""The network of `http:request`: resolves a name, judges every address it has, and connects to the very address that was judged (ruling N4).

It stands below the connection pool, so that nothing reaches a socket around it: neither a redirect nor a name that resolves differently a moment later (DNS
rebinding). TLS above it checks the certificate against the name, not the address.
"""

import asyncio
import socket
from collections.abc import Iterable
from typing import Any

import httpcore

from ductord.worker.actions.addresses import forbidden
from ductord.worker.context import ActionError


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """Connects to public addresses only, or with `allow_private` to any: then the operator trusts its definitions with inner addresses."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._sockets = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """A connection to one of the addresses of `host`. Raises PERMISSION_DENIED when any of them is forbidden, UNAVAILABLE when there is none."""
        failure: Exception | None = None
        for address in await self._resolved(host, port):
            try:
                return await self._sockets.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        assert failure is not None
        raise failure

    async def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.AsyncNetworkStream:
        """No request goes to a socket of this machine."""
        raise ActionError("PERMISSION_DENIED", "http:request does not call Unix sockets", non_retryable=True)

    async def sleep(self, seconds: float) -> None:
        """Part of the interface."""
        await asyncio.sleep(seconds)

    async def _resolved(self, host: str, port: int) -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise ActionError("UNAVAILABLE", f"{host} does not resolve: {error}") from None
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        for address in addresses:
            reason = None if self._allow_private else forbidden(address)
            if reason is not None:
                message = f"{host} has a {reason} address, which http:request does not call"
                raise ActionError("PERMISSION_DENIED", message, non_retryable=True)
        return addresses
