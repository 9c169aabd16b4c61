"""A server stream as server-sent events, which browsers and `curl -N` read: one event per message, its data the JSON that a unary answer would be.

An event's id names the run and the transition that its message tells of, so that a caller that lost its connection goes on where it was: browsers send it
back as `Last-Event-ID` by themselves. An error before the first message is an ordinary one; later it is an event named `error`, the last one.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from typing import Any, Final

from google.protobuf.message import Message

from ductord.gateway.bodies import Gone, Receive, Send, until_gone
from ductord.gateway.exchange import Exchange
from ductord.rpc.errors import field_invalid

HEADER: Final = b"last-event-id"
_ID: Final = re.compile(rb"([0-9A-Fa-f-]{36}):([0-9]{1,9})")


class Events:
    """The answer of one request."""

    def __init__(self, receive: Receive, send: Send, exchange: Exchange) -> None:
        self._receive = receive
        self._send = send
        self._exchange = exchange
        self.begun = False
        """Whether the head of the answer was sent: no other answer is possible any more."""

    async def tell(self, answers: AsyncGenerator[Message], text: Callable[[Message], bytes]) -> None:
        """Pass every message on. Raises what `answers` raises, and `Gone`; the call behind it is over then."""
        watching = asyncio.ensure_future(until_gone(self._receive))
        try:
            while True:
                asking = asyncio.ensure_future(anext(answers, None))
                try:
                    await asyncio.wait((asking, watching), return_when=asyncio.FIRST_COMPLETED)
                    if not asking.done():
                        raise Gone
                finally:
                    if not asking.done():
                        asking.cancel()
                        await asyncio.wait((asking,))
                answer = asking.result()
                if answer is None:
                    break
                await self.begin()
                await self._write(b"%sdata: %s\n\n" % (_id(answer), text(answer)))
            await self.end()
        finally:
            watching.cancel()
            await answers.aclose()

    async def begin(self) -> None:
        """The head, once."""
        if self.begun:
            return
        self.begun = True
        headers = [
            (b"content-type", b"text/event-stream"),
            (b"cache-control", b"no-store"),
            # A proxy that collects an answer before it passes it on would pass on nothing.
            (b"x-accel-buffering", b"no"),
            (b"x-content-type-options", b"nosniff"),
            (b"x-request-id", self._exchange.request_id.encode()),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def end(self) -> None:
        """No more events."""
        await self.begin()
        await self._send({"type": "http.response.body", "body": b""})

    async def fail(self, body: bytes) -> None:
        """An error in the middle, as the last event."""
        await self._write(b"event: error\ndata: %s\n\n" % body)
        await self.end()

    async def _write(self, event: bytes) -> None:
        await self._send({"type": "http.response.body", "body": event, "more_body": True})


def go_on(request: Message, exchange: Exchange) -> None:
    """Put what `Last-Event-ID` says into the request of a stream that can go on. Raises FIELD_INVALID for an id that is none of ours."""
    given = exchange.headers.get(HEADER)
    fields = request.DESCRIPTOR.fields_by_name
    if not given or "after_seq" not in fields or request.HasField("after_seq"):
        return
    match = _ID.fullmatch(given)
    if match is None:
        raise field_invalid(HEADER.decode(), "is not the id of an event of this stream")
    asked: Any = request
    # The run may be a successor of the one in the path.
    asked.run_id, asked.after_seq = match[1].decode(), int(match[2])


def _id(message: Any) -> bytes:
    fields = message.DESCRIPTOR.fields_by_name
    return b"id: %s:%d\n" % (message.run_id.encode(), message.seq) if "run_id" in fields and "seq" in fields else b""
