"""What happens around every RPC: who calls, a span, clean fields, coded errors, one access-log line, metrics.

It wraps a servicer's methods once, at registration, so that a call pays for no interceptor chain. Methods get `(request, context)`, raise what
they have to say, and never abort by themselves. Nothing of an unexpected exception reaches the caller but the request id under which the log
holds it.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError, Message

from ductord.rpc import caller as who
from ductord.rpc import errors
from ductord.rpc.call import Call, Context, Method, Translate
from ductord.rpc.config import Settings
from ductord.rpc.going_on import LongCalls
from ductord.rpc.hygiene import refuse_faults
from ductord.rpc.metrics import Metrics

WAITING: Final = frozenset({"PollTasks", "WaitOperation", "TriggerWorkflow"})
"""RPCs with one answer that may wait long for it: their callers' keys are looked at again meanwhile, as those of streams are."""


class Pipeline:
    """The pipeline of a process."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._request_max_bytes = settings.request_max_bytes
        self._max_calls = settings.max_calls
        self._access_log = settings.access_log
        self._in_flight = 0
        self.begun = 0
        """How many calls were taken up so far."""
        self.open = settings.auth == "off"
        """Whether callers are taken at their word."""
        self.authenticator: who.Authenticator | None = None
        """Who says who calls, where they are not. Without one nobody is let in."""
        self.inside = ""
        """By which the process knows its own calls; empty: it makes none."""
        self.going_on = LongCalls()
        self._calls = metrics.counter("ductor_grpc_calls", "RPCs served, by method and code.", ("method", "code"))
        self._seconds = metrics.histogram(
            "ductor_grpc_call_seconds", "Time that RPCs took, long waits included.", ("method",)
        )
        metrics.gauge("ductor_grpc_calls_in_flight", "RPCs being served.").set_function(lambda: self._in_flight)

    def wrapped(self, service: str, method: str, rpc: Any, translate: Translate) -> Any:
        """The method handler of `/service/method` around the one that the generated code made."""
        if rpc.request_streaming:
            raise TypeError(f"{service}.{method}: request streams are not part of the contract")
        described = Method(
            service, method, translate, calls=self._calls, seconds=self._seconds, access_log=self._access_log
        )
        around = _Around(self, described, rpc)
        if rpc.response_streaming:
            return grpc.unary_stream_rpc_method_handler(around.stream, None, rpc.response_serializer)
        return grpc.unary_unary_rpc_method_handler(around.unary, None, rpc.response_serializer)

    def decoded(self, decode: Callable[[bytes], Message], encoded: bytes) -> Message:
        """The request, bounded, well-formed and clean."""
        if len(encoded) > self._request_max_bytes:
            limit = self._request_max_bytes
            message = f"the request is {len(encoded):,} bytes, the limit is {limit:,}"
            raise errors.refused("REQUEST_TOO_LARGE", message, limit_bytes=limit)
        try:
            request = decode(encoded)
        except DecodeError as error:
            if "MaxDepth" in str(error):  # protobuf stops two levels beyond what a payload may have, and knows no path
                message = "a payload of the request is nested too deep"
                raise errors.refused("PAYLOAD_INVALID", message, field="", path="", problem="too_deep") from None
            raise errors.refused("BODY_MALFORMED", "the request is not the message that this RPC takes") from None
        refuse_faults(request, encoded)
        return request

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Refuse what is too much at once."""
        self.begun += 1
        if self._in_flight >= self._max_calls:
            raise errors.refused(
                "OVERLOADED", "more calls are in flight than the service takes; try again", retry_after_ms=500
            )
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1

    async def recheck(self) -> None:
        """Look once at the keys of all calls that go on, and end those whose key is not good any more."""
        if self.authenticator is not None:
            await self.going_on.recheck(self.authenticator)


class _Around:
    """The pipeline of one method."""

    def __init__(self, pipeline: Pipeline, method: Method, rpc: Any) -> None:
        self._pipeline = pipeline
        self._described = method
        self._decode = rpc.request_deserializer
        self._method = rpc.unary_stream if rpc.response_streaming else rpc.unary_unary
        self._rechecked = not pipeline.open and (rpc.response_streaming or method.rpc in WAITING)

    async def unary(self, encoded: bytes, context: Context) -> Any:
        """A call with one answer."""
        call = Call(self._described, context)
        try:
            with call, self._pipeline.counted():
                if self._pipeline.open:
                    call.take_at_word()
                else:
                    await call.authenticate(self._pipeline.authenticator, self._pipeline.inside)
                request = self._pipeline.decoded(self._decode, encoded)
                if not self._rechecked:
                    return await self._method(request, context)
                with self._pipeline.going_on.begun(call.identity):
                    return await self._method(request, context)
        except Exception as error:
            refusal = call.refusal_of(error)
        return await call.abort(refusal)

    async def stream(self, encoded: bytes, context: Context) -> AsyncIterator[Any]:
        """A call with a stream of answers."""
        call = Call(self._described, context)
        try:
            with call, self._pipeline.counted():
                if self._pipeline.open:
                    call.take_at_word()
                else:
                    await call.authenticate(self._pipeline.authenticator, self._pipeline.inside)
                answers = self._method(self._pipeline.decoded(self._decode, encoded), context)
                if self._rechecked:
                    with self._pipeline.going_on.begun(call.identity) as long:
                        async for answer in answers:
                            with long.handing_over():
                                yield answer
                else:
                    async for answer in answers:
                        yield answer
            return
        except Exception as error:
            refusal = call.refusal_of(error)
        await call.abort(refusal)
