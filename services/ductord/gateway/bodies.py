"""Reading a request's body and writing a response, for every door. A body is bounded before it is held, whatever its length was said to be."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from ductord.gateway.exchange import Exchange
from ductord.model.errors import Refusal
from ductord.rpc import errors

Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


class Gone(Exception):
    """The caller went away before it was answered."""


async def read_body(receive: Receive, exchange: Exchange, limit: int) -> bytes:
    """The whole body. Raises REQUEST_TOO_LARGE, `Gone`."""
    announced = exchange.headers.get(b"content-length", b"")
    if announced.isdigit() and (len(announced) > 12 or int(announced) > limit):
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] != "http.request":
            raise Gone
        part = event.get("body", b"")
        size += len(part)
        if size > limit:
            raise too_large(limit)
        parts.append(part)
        if not event.get("more_body", False):
            return b"".join(parts)


async def until_gone(receive: Receive) -> None:
    """Returns when the caller of a request whose body was read goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def respond(send: Send, exchange: Exchange, http_status: int, headers: Headers, body: bytes) -> None:
    """One JSON answer. `no-store`: it depends on headers that a shared cache does not look at."""
    start = {
        "type": "http.response.start",
        "status": http_status,
        "headers": [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"x-request-id", exchange.request_id.encode()),
            *headers,
        ],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})


def too_large(limit: int) -> Refusal:
    """The refusal of a request over its limit, in bytes."""
    message = f"the request is larger than the limit of {limit:,} bytes"
    return errors.refused("REQUEST_TOO_LARGE", message, limit_bytes=limit)
