"""The REST door: a path of the contract, a JSON body or query, the RPC behind it, its answer in the REST dialect or an AIP-193 error.

A server stream is answered with server-sent events. Nothing here knows an RPC by name.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import Message
from google.rpc import status_pb2

from ductord.gateway.backends import Backends, CallFailed, patience
from ductord.gateway.bodies import Event, Gone, Receive, Send, read_body, respond, until_gone
from ductord.gateway.events import Events, go_on
from ductord.gateway.exchange import Exchange
from ductord.gateway.faults import Reading
from ductord.gateway.query import read_query
from ductord.gateway.reading import Asked, Reader
from ductord.gateway.routing import Match, Route, Routes
from ductord.gateway.statuses import as_rest, in_callers_words, items_in_callers_words, name_of, reason_of
from ductord.model.errors import Refusal
from ductord.rpc import errors
from ductord.rpc.vocabulary import Dialect
from ductord.rpc.writing import Writer

_JSON: Final = frozenset({b"", b"application/json", b"application/x-www-form-urlencoded"})
"""Content types that are read as JSON. The last is what `curl -d` says when it is told nothing; no form is ever read."""
_CHARSETS: Final = frozenset({b"", b"charset=utf-8", b'charset="utf-8"'})

_log = logging.getLogger("ductor.gateway")


class RestDoor:
    """Serves every path that is annotated in the contract."""

    def __init__(
        self,
        backends: Backends,
        admit: Callable[[], None],
        look_at: Callable[[Exchange], None],
        *,
        request_max_bytes: int,
    ) -> None:
        """`admit`: refuses what is too much at once. `look_at`: at the credential of a request (`credentials`)."""
        self.routes = Routes(backend.service for backend in backends.table)
        self._backends = backends
        self._admit = admit
        self._look_at = look_at
        self._limit = request_max_bytes
        self._reader = Reader(Dialect.REST)
        self._spliced = Writer(Dialect.REST)
        self._twinned = Writer(Dialect.REST, spliced=False)
        for route in self.routes.all:  # what cannot be spoken is found at start
            self._reader.of(route.rpc.input_type)
            self._spliced.of(route.rpc.output_type)
            self._twinned.of(route.rpc.output_type)

    async def __call__(self, scope: Event, receive: Receive, send: Send, exchange: Exchange) -> None:
        """Answer one request; never raises but when the caller is gone."""
        twins: dict[str, str] = {}
        events = Events(receive, send, exchange)
        try:
            self._admit()
            http_method = "GET" if scope["method"] == "HEAD" else scope["method"]
            match = self.routes.match(http_method, scope["raw_path"].decode("latin-1"))
            with exchange.begin(_name(match.route)):
                self._look_at(exchange)
                if match.route.rpc.server_streaming:
                    await self._streamed(match, scope, receive, exchange, events)
                    exchange.ended("OK", "")
                    return
                body = await self._served(match, scope["query_string"], receive, exchange, twins)
        except Gone:
            exchange.ended("CANCELLED", "CANCELLED")
            return
        except CallFailed as failed:
            status = in_callers_words(failed.status, twins)
        except Refusal as refusal:
            status = _status(refusal, exchange)
        except Exception as error:
            _log.error("%s raised", exchange.method, exc_info=error, extra={"request_id": exchange.request_id})
            status = _status(errors.internal(), exchange)
        else:
            exchange.ended("OK", "")
            await respond(send, exchange, 200, [], body)
            return
        exchange.ended(name_of(status), reason_of(status))
        if events.begun:
            await events.fail(as_rest(status)[2])
            return
        await respond(send, exchange, *as_rest(status))

    async def _streamed(self, match: Match, scope: Event, receive: Receive, exchange: Exchange, events: Events) -> None:
        timeout_s = exchange.timeout_s()
        body = await read_body(receive, exchange, self._limit)
        asked = self._asked(match, scope["query_string"], body, exchange)
        if scope["method"] == "HEAD":
            await events.end()
            return
        go_on(asked.message, exchange)
        writer = self._spliced if asked.spliced else self._twinned
        await events.tell(self._backends.stream(match.route.rpc, asked.message, exchange, timeout_s), writer.text)

    async def _served(
        self, match: Match, query: bytes, receive: Receive, exchange: Exchange, twins: dict[str, str]
    ) -> bytes:
        timeout_s = exchange.timeout_s()
        asked = self._asked(match, query, await read_body(receive, exchange, self._limit), exchange)
        twins.update(asked.twins)
        answer = await self._unary(match.route, asked, receive, exchange, timeout_s)
        items_in_callers_words(answer, asked.twins)
        return (self._spliced if asked.spliced else self._twinned).text(answer)

    async def _unary(
        self, route: Route, asked: Asked, receive: Receive, exchange: Exchange, timeout_s: float | None
    ) -> Message:
        call = self._backends.call(route.rpc, asked.message, exchange, timeout_s)
        if not patience(route.rpc, asked.message):
            return await call
        # A long wait ends with its caller. Short calls are not watched: it would cost each of them a task.
        calling = asyncio.ensure_future(call)
        watching = asyncio.ensure_future(until_gone(receive))
        try:
            await asyncio.wait((calling, watching), return_when=asyncio.FIRST_COMPLETED)
            if not calling.done():
                raise Gone
            return calling.result()
        finally:
            calling.cancel()
            watching.cancel()

    def _asked(self, match: Match, query: bytes, body: bytes, exchange: Exchange) -> Asked:
        """The request of path, query and body. Raises `Refusal` naming every field at fault."""
        route, reading = match.route, Reading()
        reader = self._reader.of(route.rpc.input_type)
        if route.takes_body:
            _refuse_other_types(exchange)
            fields = self._reader.members(reader, body, reading)
            for key, _ in _query_keys(query):
                reading.invalid(key, "is a query parameter; this RPC takes its fields in the body")
        else:
            if body.strip() not in (b"", b"{}"):
                message = "this RPC takes no body; give its fields as query parameters"
                raise errors.refused("BODY_MALFORMED", message)
            fields = read_query(reader, query, reading)
        for name, value in match.values.items():
            if fields.setdefault(name, value) != value:
                reading.duplicate(name, "is given by the path, with another value than here")
        return self._reader.asked(reader, fields, reading)


def _refuse_other_types(exchange: Exchange) -> None:
    content_type = exchange.headers.get(b"content-type", b"").lower()
    kind, _, parameters = content_type.partition(b";")
    encoding = exchange.headers.get(b"content-encoding", b"identity").lower()
    if kind.strip() in _JSON and parameters.strip() in _CHARSETS and encoding == b"identity":
        return
    said = (content_type if encoding == b"identity" else encoding).decode("latin-1")[:100]
    message = "the body must be application/json in UTF-8, not compressed"
    raise errors.refused("CONTENT_TYPE_UNSUPPORTED", message, content_type=said)


def _query_keys(query: bytes) -> Any:
    return ((part.partition(b"=")[0].decode("latin-1")[:64], part) for part in query.split(b"&") if part)


def _status(refusal: Refusal, exchange: Exchange) -> status_pb2.Status:
    return errors.to_status(refusal, request_id=exchange.request_id, budget=errors.LARGEST_BUDGET)


def _name(route: Route) -> str:
    service = route.rpc.containing_service
    return f"{service.name if service is not None else ''}/{route.rpc.name}"
