"""Addresses: where to listen, the rule that a server without authentication stays on loopback (ruling N3), and what is told of a caller's. Opens no socket."""

import ipaddress
import re
from typing import Final
from urllib.parse import unquote

import msgspec

_ORIGIN: Final = re.compile(r"([a-z][a-z0-9+.-]*)://(?:[a-z0-9._-]+|\[[0-9a-f:]+\])(?::([1-9][0-9]{0,4}))?")
_OWN_PORTS: Final = {("http", "80"), ("https", "443")}


class AddressInvalid(ValueError):
    """A text that is not a listen address."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where to listen. `host` empty: all interfaces. `path` set: a Unix socket. `port` 0: one that the system picks."""

    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach it. A name other than `localhost` is not taken at its word."""
        if self.path or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def grpc(self) -> str:
        """The form that a gRPC server binds."""
        if self.path:
            return f"unix:{self.path}"
        return f"{_bracketed(self.host or '[::]')}:{self.port}"

    def at(self, port: int) -> "Address":
        """The same address with the port that was really bound."""
        return msgspec.structs.replace(self, port=port)

    @property
    def reachable(self) -> str:
        """How a client in this process reaches it: all interfaces are reached by loopback."""
        if self.path:
            return f"unix:{self.path}"
        host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, _bracketed(self.host))
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"unix:{self.path}" if self.path else f"{_bracketed(self.host)}:{self.port}"


def parse_address(text: str) -> Address:
    """`:9090`, `127.0.0.1:9090`, `[::1]:9090`, `localhost:0` or `unix:/run/ductor.sock`. Raises `AddressInvalid`."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        path = "/" + path.lstrip("/") if path.startswith("//") else path
        if not path:
            raise AddressInvalid(f"{text!r} names no socket file")
        return Address(path=path)
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise AddressInvalid(f"{text!r} is not host:port, :port or unix:/path")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise AddressInvalid(f"{text!r}: write an IPv6 address in brackets, as in [::1]:9090")
    return Address(host=host, port=int(port))


def is_origin(text: str) -> bool:
    """Whether a browser sends `text` as `Origin`: `https://ops.example`, `http://localhost:5173`. `null`, which every sandboxed page sends, says nothing."""
    match = _ORIGIN.fullmatch(text)
    return match is not None and match.groups() not in _OWN_PORTS and int(match[2] or 0) < 1 << 16


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


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
