"""Where `http:request` may connect to (ruling N4): public unicast addresses, judged after resolving and before connecting. Opens no socket."""

import ipaddress
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_METADATA: Final = frozenset(map(ipaddress.ip_address, ("168.63.129.16", "192.0.0.192")))
"""Public by number in some table, yet a platform's inside (Azure, Oracle). The other clouds' metadata addresses are link-local, shared or unique-local."""
_CARRIES_IPV4: Final = tuple(map(ipaddress.ip_network, ("::ffff:0:0/96", "::/96", "64:ff9b::/96")))
"""IPv6 forms of an IPv4 address, in the low 32 bits: mapped, compatible, NAT64. They are what the IPv4 address is."""


def forbidden(text: str) -> str | None:
    """Why a connection to the address must not be made: `loopback`, `link-local`, `private`, `metadata` …; None when it may."""
    address: Address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if int(address) > 1 and any(address in network for network in _CARRIES_IPV4):
            return _judged(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        tunnels = (address.sixtofour, *(address.teredo or ()))
        for inner in tunnels:
            if inner is not None and (reason := _judged(inner)) is not None:
                return reason
    return _judged(address)


def _judged(address: Address) -> str | None:
    if address in _METADATA:
        return "metadata"
    if address.is_loopback:
        return "loopback"
    if address.is_link_local:
        return "link-local"
    if address.is_multicast:
        return "multicast"
    if address.is_unspecified:
        return "unspecified"
    if address.is_private:
        return "private"
    if address.is_reserved or not address.is_global:
        return "reserved"
    return None
