"""One call of one RPC: who makes it, its span, what its caller is told where it fails, and how it is counted and logged.

It does not know what the call does. Nothing of an unexpected exception is told.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

import grpc
from prometheus_client import Counter, Histogram

from ductord.model.errors import PayloadInvalid, Refusal
from ductord.rpc import caller as who
from ductord.rpc import errors
from ductord.rpc.addresses import host_of
from ductord.rpc.tracing import start_span

Context = grpc.aio.ServicerContext[Any, Any]
Translate = Callable[[BaseException], Refusal | None]
Metadata = Iterable[tuple[str, str | bytes]]

QUIET: Final = frozenset({"ductor.workflow.v1.TaskService"})
"""Services whose successful calls are logged at debug only: workers poll for ever."""

_NOBODY: Final = who.Identity(tenant_id=None)
"""Who calls as long as that has not been said."""

_access = logging.getLogger("ductor.access")
_log = logging.getLogger("ductor.rpc")


class Method:
    """An RPC, and how its calls end: refused, counted, logged. `rpc`: its name alone. `access_log`: which calls are logged (DUCTOR_ACCESS_LOG)."""

    def __init__(
        self, service: str, rpc: str, translate: Translate, *, calls: Counter, seconds: Histogram, access_log: str
    ) -> None:
        self.service = service
        self.rpc = rpc
        self.name = f"{service.rpartition('.')[2]}/{rpc}"
        self.span = f"{service}/{rpc}"
        self._translate = translate
        self._calls = calls
        self._seconds = seconds.labels(self.name)
        self._access_log = access_log
        self._counts: dict[str, Any] = {}

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
            count = self._counts[code] = self._calls.labels(self.name, code)
        count.inc()
        self._seconds.observe(seconds)
        quiet = self.service in QUIET
        if self._logs(code, quiet):
            fields = {
                "method": self.name,
                "code": code,
                "reason": reason,
                "peer": host_of(context.peer() or ""),
                "duration_ms": round(seconds * 1000, 2),
            }
            _access.log(
                logging.DEBUG if quiet and code == "OK" else logging.INFO, "%s %s", self.name, code, extra=fields
            )

    def _logs(self, code: str, quiet: bool) -> bool:
        """Whether a call that ended so is written to the access log."""
        if self._access_log == "off" or (self._access_log == "errors" and code == "OK"):
            return False
        return _access.isEnabledFor(logging.DEBUG if quiet and code == "OK" else logging.INFO)


class Call:
    """One call, as a context manager around everything that is done for it."""

    def __init__(self, method: Method, context: Context) -> None:
        self._method = method
        self._context = context
        self._metadata: Metadata = context.invocation_metadata() or ()
        self._started = time.perf_counter()
        self._request_id = who.request_id_of(self._metadata)
        trace = next((v for k, v in self._metadata if k == who.TRACEPARENT_KEY and isinstance(v, str)), "")
        self._span = start_span(method.span, traceparent=trace, kind="server")
        self._token: Any = None
        self.identity = _NOBODY

    def take_at_word(self) -> None:
        """Who calls, authentication being off. Raises as `tenant_of`."""
        tenant, scopes = who.tenant_of(self._method.service, self._metadata)
        self._known(who.Identity(tenant_id=tenant, scopes=scopes))

    async def authenticate(self, authenticator: who.Authenticator | None, inside: str) -> None:
        """Who calls, by their credential: judged before anything of the request is. `inside`: by which the process knows its own calls. Raises as
        `Authenticator.identify`."""
        identity = who.inside_of(self._metadata, inside)
        if identity is None:
            if authenticator is None:
                raise errors.refused("CREDENTIAL_INVALID", "nobody may call: the process has no way to look at keys")
            method, peer = self._method, self._context.peer() or ""
            identity = await authenticator.identify(method.service, method.rpc, self._metadata, peer)
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
            refusal = self._method.refusal_of(error) or errors.internal()
            code, reason = refusal.code, refusal.reason
            if refusal.reason == "INTERNAL":
                _log.error("%s raised", self._method.name, exc_info=error, extra={"method": self._method.name})
        if code != "OK":
            self._span.set({"ductor.reason": reason, "rpc.grpc.status": code})
            if code in ("INTERNAL", "UNKNOWN", "UNAVAILABLE", "DATA_LOSS"):
                self._span.fail(reason or code)
        self._method.account(code, time.perf_counter() - self._started, reason, self._context)
        who.reset_caller(self._token)
        self._span.__exit__(None, None, None)

    def refusal_of(self, error: Exception) -> Refusal:
        """What to tell the caller. An abort by a servicer passes through."""
        if isinstance(error, grpc.aio.AbortError):
            raise error
        return self._method.refusal_of(error) or errors.internal()

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
