"""Spans and trace context. The context always travels (W3C traceparent: metadata, rows, tasks); spans are recorded only where an OTLP endpoint is configured.

Without one a span is the parent's context passed on, which costs next to nothing; OpenTelemetry is not even imported. A span must never decide anything.
"""

import os
import re
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal

from ductord.rpc.config import Settings

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

Kind = Literal["internal", "server", "client", "producer", "consumer"]
Attributes = Mapping[str, str | int | float | bool]

_TRACEPARENT: Final = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
)

_current: ContextVar[str] = ContextVar("ductor_traceparent", default="")
_recorder: "_Recorder | None" = None


class Span:
    """One span, as a context manager. `traceparent` is what whatever it calls is told; `trace_id` is its 32 hexadecimal digits."""

    __slots__ = ("_recorded", "_token", "traceparent")

    def __init__(self, traceparent: str, recorded: Any = None) -> None:
        self.traceparent = traceparent
        self._recorded = recorded
        self._token: Token[str] | None = None

    @property
    def trace_id(self) -> str:
        """The trace that the span belongs to."""
        return self.traceparent[3:35]

    def set(self, attributes: Attributes) -> None:
        """Say more about the span. Never a payload."""
        if self._recorded is not None:
            self._recorded.set_attributes(attributes)

    def fail(self, what: str) -> None:
        """Mark the span as failed, with a code or a reason."""
        if self._recorded is not None:
            from opentelemetry.trace import Status, StatusCode

            self._recorded.set_status(Status(StatusCode.ERROR, what))

    def end(self, end_ns: int | None = None) -> None:
        """The span is over, now or at a Unix time in nanoseconds. Leaving the context does it too."""
        if self._recorded is not None:
            self._recorded.end(end_ns)
            self._recorded = None

    def __enter__(self) -> "Span":
        self._token = _current.set(self.traceparent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _current.reset(self._token)
        if error is not None:
            self.fail(type(error).__name__)
        self.end()


def start_span(
    name: str,
    *,
    traceparent: str = "",
    attributes: Attributes | None = None,
    kind: Kind = "internal",
    start_ns: int | None = None,
) -> Span:
    """A span under `traceparent`, under the span at hand where that is empty or no trace context, or of a new trace.

    Use it as a context manager, or keep it and `end` it. `start_ns`: Unix nanoseconds, for what began before one knew.
    """
    parent = parsed(traceparent) or _current.get()
    if _recorder is not None:
        return _recorder.start(name, parent, attributes, kind, start_ns)
    return Span(parent or new_traceparent(sampled=False))


def record_span(
    name: str, *, traceparent: str, start_ns: int, end_ns: int | None = None, attributes: Attributes | None = None
) -> str:
    """A span of something that is over (a run's share of a group tick); its traceparent, for what it set off."""
    if _recorder is None:
        return parsed(traceparent) or new_traceparent(sampled=False)
    span = _recorder.start(name, parsed(traceparent), attributes, "internal", start_ns)
    span.end(end_ns or time.time_ns())
    return span.traceparent


def current_traceparent() -> str:
    """The trace context of the span at hand; empty outside of any."""
    return _current.get()


def parsed(traceparent: str) -> str:
    """`traceparent` in the form of version 00; empty if it is no trace context (then it is ignored, as W3C says)."""
    match = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if match is None or (traceparent.startswith("00") and len(traceparent) != 55):
        return ""
    return f"00-{match[1]}-{match[2]}-{match[3]}"


def new_traceparent(*, sampled: bool) -> str:
    """The context of a new trace."""
    ids = os.urandom(24).hex()
    return f"00-{ids[:32]}-{ids[32:]}-{'01' if sampled else '00'}"


def recording() -> bool:
    """Whether spans go anywhere: what is dear to compute for attributes can be left out otherwise."""
    return _recorder is not None


def configure(settings: Settings, *, services: Sequence[str] = (), exporter: "SpanExporter | None" = None) -> None:
    """Record spans if an OTLP endpoint is configured, or to the given exporter (at once, for tests). `services`: who runs in this process."""
    global _recorder
    if exporter is not None or settings.otlp_endpoint:
        _recorder = _Recorder(settings, services, exporter)


def shut_down() -> None:
    """Send what is buffered, within the exporter's own time limit, and record no more."""
    global _recorder
    recorder, _recorder = _recorder, None
    if recorder is not None:
        recorder.provider.shutdown()


class _Recorder:
    """The OpenTelemetry side. Imported on demand: it is 20 MB that a process without an endpoint does not need."""

    def __init__(self, settings: Settings, services: Sequence[str], exporter: "SpanExporter | None") -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

        self._trace = trace
        # A process of one service is told apart by its name; one of many says which in an attribute.
        name = f"ductor-{services[0]}" if len(services) == 1 else "ductor"
        resource = Resource.create(
            {
                "service.name": name,
                "ductor.services": list(services),
                "deployment.environment.name": settings.environment,
            }
        )
        sampler = ParentBased(TraceIdRatioBased(settings.trace_sample_ratio))
        self.provider = TracerProvider(resource=resource, sampler=sampler, shutdown_on_exit=False)
        if exporter is not None:
            self.provider.add_span_processor(SimpleSpanProcessor(exporter))
        else:
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

            endpoint = settings.otlp_endpoint
            self.provider.add_span_processor(
                BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=not endpoint.startswith("https:")))
            )
        self._tracer = self.provider.get_tracer("ductor")

    def start(self, name: str, parent: str, attributes: Attributes | None, kind: Kind, start_ns: int | None) -> Span:
        trace = self._trace
        context = None
        if parent:
            flags = trace.TraceFlags(int(parent[53:55], 16))
            remote = trace.SpanContext(int(parent[3:35], 16), int(parent[36:52], 16), is_remote=True, trace_flags=flags)
            context = trace.set_span_in_context(trace.NonRecordingSpan(remote))
        span = self._tracer.start_span(
            name,
            context=context,
            kind=trace.SpanKind[kind.upper()],
            attributes=dict(attributes or {}),
            start_time=start_ns,
        )
        own = span.get_span_context()
        return Span(f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}", span)
