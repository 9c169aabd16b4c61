"""What happens around every RPC: who calls, a span, clean fields, coded errors, one access-log line, metrics.

It wraps a servicer's methods once, at registration, so that a call pays for no interceptor chain. Methods get `(request, context)`, raise what
they have to say, and never abort by themselves. Nothing of an unexpected exception reaches the caller but the request id under which the log
holds it.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NoReturn

import grpc
from google.protobuf.message import DecodeError, Message

from ductord.model.errors import PayloadInvalid, Refusal
from ductord.rpc import caller as who
from ductord.rpc import errors
from ductord.rpc.addresses import host_of
from ductord.rpc.config import Settings
from ductord.rpc.going_on import LongCalls
from ductord.rpc.hygiene import refuse_faults
from ductord.rpc.metrics import Metrics
from ductord.rpc.tracing import start_span

Context = grpc.aio.ServicerContext[Any, Any]
Translate = Callable[[BaseException], Refusal | None]
Metadata = Iterable[tuple[str, str | bytes]]

QUIET: Final = frozenset({"ductor.workflow.v1.TaskService"})
"""Services whose successful calls are logged at debug only: workers poll for ever."""
WAITING: Final = frozenset({"PollTasks", "WaitOperation", "TriggerWorkflow"})
"""RPCs with one answer that may wait long for it: their callers' keys are looked at again meanwhile, as those of streams are."""

_NOBODY: Final = who.Identity(tenant_id=None)
"""Who calls as long as that has not been said."""

_access = logging.getLogger("ductor.access")
_log = logging.getLogger("ductor.rpc")


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
        self.calls = metrics.counter("ductor_grpc_calls", "RPCs served, by method and code.", ("method", "code"))
        self.seconds = metrics.histogram(
            "ductor_grpc_call_seconds", "Time that RPCs took, long waits included.", ("method",)
        )
        metrics.gauge("ductor_grpc_calls_in_flight", "RPCs being served.").set_function(lambda: self._in_flight)

    def wrapped(self, service: str, method: str, rpc: Any, translate: Translate) -> Any:
        """The method handler of `/service/method` around the one that the generated code made."""
        if rpc.request_streaming:
            raise TypeError(f"{service}.{method}: request streams are not part of the contract")
        around = _Around(self, service, method, rpc, translate)
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

    def logs(self, code: str, quiet: bool) -> bool:
        """Whether a call that ended so is written to the access log."""
        if self._access_log == "off" or (self._access_log == "errors" and code == "OK"):
            return False
        return _access.isEnabledFor(logging.DEBUG if quiet and code == "OK" else logging.INFO)


class _Around:
    """The pipeline of one method."""

    def __init__(self, pipeline: Pipeline, service: str, method: str, rpc: Any, translate: Translate) -> None:
        self._pipeline = pipeline
        self._service = service
        self._name = f"{service.rpartition('.')[2]}/{method}"
        self._span = f"{service}/{method}"
        self._decode = rpc.request_deserializer
        self._method = rpc.unary_stream if rpc.response_streaming else rpc.unary_unary
        self._translate = translate
        self._rechecked = not pipeline.open and (rpc.response_streaming or method in WAITING)
        self._method_name = method
        self._seconds = pipeline.seconds.labels(self._name)
        self._counts: dict[str, Any] = {}

    async def unary(self, encoded: bytes, context: Context) -> Any:
        """A call with one answer."""
        call = _Call(self, context)
        try:
            with call, self._pipeline.counted():
                if self._pipeline.open:
                    call.take_at_word()
                else:
                    await call.authenticate(self._method_name)
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
        call = _Call(self, context)
        try:
            with call, self._pipeline.counted():
                if self._pipeline.open:
                    call.take_at_word()
                else:
                    await call.authenticate(self._method_name)
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

    def refusal_of(self, error: BaseException) -> Refusal | None:
        """What an exception says to the caller; None for what nobody expected."""
        if isinstance(error, Refusal):
            return error
        if isinstance(error, PayloadInvalid):
            return errors.of_payload(error)
        if isinstance(error, NotImplementedError):  # the generated base class: an RPC that its service has not written
            return errors.refused("RPC_NOT_FOUND", "this RPC is part of the contract and not served yet")
        return self._translate(error)

    def account(self, code: str, seconds: float, reason: str, context: Context) -> None:
        """Count the call and log it; where it came from too, which of a call through the gateway is the gateway."""
        count = self._counts.get(code)
        if count is None:
            count = self._counts[code] = self._pipeline.calls.labels(self._name, code)
        count.inc()
        self._seconds.observe(seconds)
        quiet = self._service in QUIET
        if self._pipeline.logs(code, quiet):
            fields = {
                "method": self._name,
                "code": code,
                "reason": reason,
                "peer": host_of(context.peer() or ""),
                "duration_ms": round(seconds * 1000, 2),
            }
            _access.log(
                logging.DEBUG if quiet and code == "OK" else logging.INFO, "%s %s", self._name, code, extra=fields
            )


class _Call:
    """One call, as a context manager around everything that is done for it."""

    def __init__(self, around: _Around, context: Context) -> None:
        self._around = around
        self._context = context
        self._metadata: Metadata = context.invocation_metadata() or ()
        self._started = time.perf_counter()
        self._request_id = who.request_id_of(self._metadata)
        trace = next((v for k, v in self._metadata if k == who.TRACEPARENT_KEY and isinstance(v, str)), "")
        self._span = start_span(around._span, traceparent=trace, kind="server")
        self._token: Any = None
        self.identity = _NOBODY

    def take_at_word(self) -> None:
        """Who calls, authentication being off. Raises as `tenant_of`."""
        tenant, scopes = who.tenant_of(self._around._service, self._metadata)
        self._known(who.Identity(tenant_id=tenant, scopes=scopes))

    async def authenticate(self, method: str) -> None:
        """Who calls, by their credential: judged before anything of the request is. Raises as `Authenticator.identify`."""
        pipeline = self._around._pipeline
        identity = who.inside_of(self._metadata, pipeline.inside)
        if identity is None:
            if pipeline.authenticator is None:
                raise errors.refused("CREDENTIAL_INVALID", "nobody may call: the process has no way to look at keys")
            peer = self._context.peer() or ""
            identity = await pipeline.authenticator.identify(self._around._service, method, self._metadata, peer)
        self._known(identity)

    def _known(self, identity: who.Identity) -> None:
        self.identity = identity
        who.set_caller(self._as_caller(identity))
        if identity.tenant_id is not None:
            self._span.set({"ductor.tenant_id": identity.tenant_id})

    def __enter__(self) -> None:
        self._span.__enter__()
        self._token = who.set_caller(self._as_caller(self.identity))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        code, reason = "OK", ""
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            code, reason = self._cancelled()
        elif isinstance(error, grpc.aio.AbortError):
            code = _code_name(self._context.code())
        elif error is not None:
            refusal = self._around.refusal_of(error) or errors.internal()
            code, reason = refusal.code, refusal.reason
            if refusal.reason == "INTERNAL":
                _log.error("%s raised", self._around._name, exc_info=error, extra={"method": self._around._name})
        if code != "OK":
            self._span.set({"ductor.reason": reason, "rpc.grpc.status": code})
            if code in ("INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS"):
                self._span.fail(reason or code)
        self._around.account(code, time.perf_counter() - self._started, reason, self._context)
        who.reset_caller(self._token)
        self._span.__exit__(None, None, None)

    def refusal_of(self, error: Exception) -> Refusal:
        """What to tell the caller. An abort by a servicer passes through."""
        if isinstance(error, grpc.aio.AbortError):
            raise error
        return self._around.refusal_of(error) or errors.internal()

    async def abort(self, refusal: Refusal) -> NoReturn:
        """End the call with a status."""
        status = errors.to_status(refusal, request_id=self._request_id, budget=errors.budget_of(self._metadata))
        code = grpc.StatusCode[refusal.code]
        await self._context.abort(code, status.message, errors.trailing(status))
        raise AssertionError("abort raises")

    def _as_caller(self, identity: who.Identity) -> who.Caller:
        return who.Caller(
            tenant_id=identity.tenant_id,
            actor=identity.actor,
            scopes=identity.scopes,
            groups=identity.groups,
            acts_for_others=identity.acts_for_others,
            key_id=identity.key_id,
            request_id=self._request_id,
            trace_id=self._span.trace_id,
            traceparent=self._span.traceparent,
        )

    def _cancelled(self) -> tuple[str, str]:
        left = self._context.time_remaining()
        late = left is not None and left <= 0
        return ("DEADLINE_EXCEEDED",) * 2 if late else ("CANCELLED",) * 2


def _code_name(code: Any) -> str:
    if isinstance(code, grpc.StatusCode):
        return code.name
    return next((c.name for c in grpc.StatusCode if c.value[0] == code), "UNKNOWN")
