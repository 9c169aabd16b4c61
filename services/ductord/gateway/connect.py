"""The Connect door: every RPC of the table, in Connect and gRPC-Web, as connectrpc serves them.

connectrpc speaks the protocols; the JSON is ours, because its codec ignores unknown fields and loses digits (contract, «JSON dialects»). Nothing but a
coded error leaves: connectrpc would tell a caller the text of whatever exception it meets.
"""

import functools
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

from connectrpc.code import Code
from connectrpc.compression.gzip import GzipCompression
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.request import RequestContext
from connectrpc.server import ConnectASGIApplication, Endpoint
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor

from ductord.gateway.backends import Backends, CallFailed
from ductord.gateway.bodies import Event, Receive, Send, respond, too_large
from ductord.gateway.codecs import Answer, BinaryCodec, JsonCodec, told
from ductord.gateway.exchange import Exchange, current
from ductord.gateway.reading import Asked
from ductord.gateway.statuses import HTTP, Told, as_connect_body, in_callers_words, items_in_callers_words
from ductord.model.errors import Refusal
from ductord.rpc import errors
from ductord.rpc.tracing import Span

_OWN: Final = {
    Code.CANCELED: ("CANCELLED", "the call was cancelled"),
    Code.DEADLINE_EXCEEDED: ("DEADLINE_EXCEEDED", "the deadline passed before the answer was there"),
    Code.INVALID_ARGUMENT: ("BODY_MALFORMED", "the request is not what its headers say"),
}
"""What an error is that connectrpc made itself, by its code; its text may quote an exception."""

_log = logging.getLogger("ductor.gateway")

Context = RequestContext[Any, Any]
Served = Mapping[str, Any]
"""Path → `Endpoint`; connectrpc does not export the type of one kind."""


class ConnectDoor(ConnectASGIApplication[None]):
    """Serves `/ductor.workflow.v1.<Service>/<Rpc>`."""

    path = "/"

    def __init__(
        self,
        backends: Backends,
        admit: Callable[[], None],
        look_at: Callable[[Exchange], None],
        *,
        request_max_bytes: int,
    ) -> None:
        """`admit`: refuses what is too much at once. `look_at`: at the credential of a request (`credentials`)."""
        self._backends = backends
        self._admit = admit
        self._limit = request_max_bytes
        self._paths = {
            f"/{backend.service.full_name}/{rpc.name}": rpc
            for backend in backends.table
            for rpc in backend.service.methods
        }
        super().__init__(
            service=None,
            endpoints=lambda _: self._served(),
            interceptors=(_Around(request_max_bytes, look_at),),
            read_max_bytes=request_max_bytes,
            compressions=(GzipCompression(level=1),),
            codecs=(BinaryCodec(), JsonCodec(self._paths.values())),
        )

    def claims(self, path: str) -> bool:
        """Whether a path is meant for this door."""
        return path.startswith("/ductor.")

    async def serve(self, scope: Event, receive: Receive, send: Send, exchange: Exchange) -> None:
        """Answer one request."""
        exchange.door = "connect"
        exchange.ended("INVALID_ARGUMENT", "")  # until connectrpc has understood the request
        token = current.set(exchange)
        started = False

        async def sending(event: Event) -> None:
            nonlocal started
            started = True
            await send(event)

        try:
            self._refuse(scope, exchange)
            await self(_clean(scope), receive, sending)
        except Refusal as refusal:
            status = errors.to_status(refusal, request_id=exchange.request_id)
            exchange.ended(refusal.code, refusal.reason)
            http = {"RPC_NOT_FOUND": 404, "CONTENT_TYPE_UNSUPPORTED": 415}.get(refusal.reason, HTTP[refusal.code])
            await respond(send, exchange, http, [], as_connect_body(status))
        except Exception as error:  # connectrpc raises what it could not tell, as when the caller is gone
            exchange.ended("INTERNAL", "INTERNAL")
            if not started:
                _log.error("%s raised", exchange.method, exc_info=error, extra={"request_id": exchange.request_id})
                status = errors.to_status(errors.internal(), request_id=exchange.request_id)
                await respond(send, exchange, 500, [], as_connect_body(status))
        finally:
            current.reset(token)

    def _refuse(self, scope: Event, exchange: Exchange) -> None:
        """Raise what connectrpc would answer without a code."""
        self._admit()
        headers = exchange.headers
        kind = headers.get(b"content-type", b"").lower()
        if scope["path"] not in self._paths:
            raise errors.refused("RPC_NOT_FOUND", "no RPC is served under this name")
        if kind.startswith(b"application/grpc") and not kind.startswith(b"application/grpc-web"):
            message = "gRPC is spoken on the gRPC port; here it is Connect, gRPC-Web and REST"
            raise errors.refused("CONTENT_TYPE_UNSUPPORTED", message, content_type="application/grpc")
        if headers.get(b"connect-protocol-version", b"1") != b"1":
            raise errors.field_invalid("connect-protocol-version", "must be 1")
        if not scope["query_string"].isascii():
            raise errors.refused("BODY_MALFORMED", "the query is not percent-encoded")
        length = headers.get(b"content-length", b"")
        if length.isdigit() and (len(length) > 12 or int(length) > self._limit):
            raise too_large(self._limit)
        exchange.timeout_s()

    def _served(self) -> Served:
        return {path: self._endpoint(rpc) for path, rpc in self._paths.items()}

    def _endpoint(self, rpc: MethodDescriptor) -> Any:
        if rpc.server_streaming:
            return Endpoint.server_stream(method=_method(rpc), function=functools.partial(self._stream, rpc))
        return Endpoint.unary(method=_method(rpc), function=functools.partial(self._unary, rpc))

    async def _stream(self, rpc: MethodDescriptor, asked: Asked, context: Context) -> AsyncIterator[Answer]:
        try:
            async with aclosing(
                self._backends.stream(rpc, asked.message, current.get(), _timeout_s(context))
            ) as answers:
                async for answer in answers:
                    yield Answer(answer, asked.spliced)
        except CallFailed as failed:
            raise Told(in_callers_words(failed.status, asked.twins)) from None
        except Refusal as refusal:
            raise told(refusal) from None

    async def _unary(self, rpc: MethodDescriptor, asked: Asked, context: Context) -> Answer:
        try:
            answer = await self._backends.call(rpc, asked.message, current.get(), _timeout_s(context))
        except CallFailed as failed:
            raise Told(in_callers_words(failed.status, asked.twins)) from None
        except Refusal as refusal:
            raise told(refusal) from None
        items_in_callers_words(answer, asked.twins)
        return Answer(answer, asked.spliced)


class _Around:
    """What happens around every call that connectrpc has recognised: ids, a span, and a code for every error."""

    def __init__(self, limit: int, look_at: Callable[[Exchange], None]) -> None:
        self._limit = limit
        self._look_at = look_at

    async def on_start(self, context: Context) -> Span:
        """Begin the call's span and name the request to the caller; its credential is looked at before its body is read."""
        exchange = current.get()
        if context.request_headers.get("content-type", "").startswith("application/grpc-web"):
            exchange.door = "grpc-web"
        method = context.method
        span = exchange.begin(f"{method.service_name.rpartition('.')[2]}/{method.name}")
        context.response_headers["x-request-id"] = exchange.request_id
        context.response_headers["cache-control"] = "no-store"
        span.__enter__()
        try:
            self._look_at(exchange)
        except Refusal as refusal:
            span.__exit__(None, None, None)  # who does not begin is not ended
            _ended(exchange, context, refusal.code, refusal.reason)
            raise told(refusal) from None
        return span

    async def on_end(self, span: Span, context: Context, error: Exception | None, /) -> None:
        """End it; an error that says no reason is replaced by one that does."""
        span.__exit__(None, None, None)
        exchange = current.get()
        if error is None:
            exchange.ended("OK", "")
            return
        if isinstance(error, Told):
            _ended(exchange, context, error.grpc_code, error.reason)
            return
        refusal = self._own(error)
        exchange.ended(refusal.code, refusal.reason)
        raise told(refusal)

    def _own(self, error: Exception) -> Refusal:
        if isinstance(error, ConnectError):
            if error.code is Code.RESOURCE_EXHAUSTED:
                return too_large(self._limit)
            if error.code is Code.UNIMPLEMENTED:
                message = "a request is one message, as it is or compressed with gzip"
                return errors.not_supported("content-encoding", message)
            if error.code in _OWN:
                return errors.refused(*_OWN[error.code])
        exchange = current.get()
        _log.error("%s raised", exchange.method, exc_info=error, extra={"request_id": exchange.request_id})
        return errors.internal()


def _ended(exchange: Exchange, context: Context, code: str, reason: str) -> None:
    """How it ended, also in the header that HTTP asks for."""
    exchange.ended(code, reason)
    if code == "UNAUTHENTICATED":
        context.response_headers["www-authenticate"] = "Bearer"


def _timeout_s(context: Context) -> float | None:
    """What is left of the caller's own deadline; None without one."""
    left_ms = context.timeout_ms
    return None if left_ms is None else max(left_ms / 1000, 0)


def _clean(scope: Event) -> Event:
    """The scope with headers that connectrpc can read: it takes them for UTF-8, HTTP does not."""
    headers = scope["headers"]
    if all(value.isascii() for _, value in headers):
        return scope
    return {**scope, "headers": [(key, value.decode("latin-1").encode()) for key, value in headers]}


def _method(rpc: MethodDescriptor) -> MethodInfo[Any, Any]:
    level = IdempotencyLevel(rpc.GetOptions().idempotency_level + 1)
    service = rpc.containing_service
    assert service is not None
    return MethodInfo(
        name=rpc.name,
        service_name=service.full_name,
        input=message_factory.GetMessageClass(rpc.input_type),
        output=message_factory.GetMessageClass(rpc.output_type),
        idempotency_level=level,
        stream_type=StreamType.SERVER_STREAM if rpc.server_streaming else StreamType.UNARY,
    )
