"""When a certificate ends, found with nothing but Python's own TLS, which tells what a certificate says only of the other side of a connection.

So both sides are made, in memory, and shake hands. Nothing here judges whether a certificate is good for its purpose: who is shown it does.
"""

import contextlib
import ssl
from typing import Any, Final

ROUNDS: Final = 4
"""More than a handshake takes."""
_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python has no name for: a certificate that is over tells when it ended."""


def end_of(certificate_file: str, key_file: str, *, server: bool) -> float | None:
    """When the first certificate of a chain ends, as seconds since 1970; None where that cannot be found out. `server`: it is for servers."""
    shows, looks = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    looks.check_hostname = False
    try:
        shows.load_cert_chain(certificate_file, key_file)
        if not server:
            looks.load_cert_chain(certificate_file, key_file)
            looks.verify_mode = ssl.CERT_NONE
        _trust(looks if server else shows, certificate_file)
        peer = _shaken(shows, looks, server)
        return ssl.cert_time_to_seconds(peer["notAfter"])
    except (ssl.SSLError, OSError, KeyError, ValueError):
        return None


def _trust(context: ssl.SSLContext, certificate_file: str) -> None:
    """Have the side take the certificate itself for its own authority."""
    context.load_verify_locations(certificate_file)
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags = ssl.VerifyFlags(ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME)


def _shaken(shows: ssl.SSLContext, looks: ssl.SSLContext, server: bool) -> dict[str, Any]:
    one, other = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = looks.wrap_bio(one, other), shows.wrap_bio(other, one, server_side=True)
    for _ in range(ROUNDS):
        for side in sides:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    peer: dict[str, Any] = (sides[0] if server else sides[1]).getpeercert() or {}
    return peer
