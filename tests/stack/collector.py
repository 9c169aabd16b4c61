"""An OTLP collector: `TraceService/Export` over gRPC, as every collector serves it. It keeps what the suite's processes send."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan


@dataclass(frozen=True, kw_only=True)
class Span:
    """One span as it arrived, ids in hexadecimal digits."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    failed: bool
    attributes: dict[str, Any] = field(hash=False)


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """The server's side. `address` is where it listens."""

    def __init__(self) -> None:
        self.address = ""
        self._spans: list[Span] = []
        self._arrived = threading.Condition()

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # the protocol's name
        """Keep the spans of a batch."""
        spans = [_read(span) for of in request.resource_spans for scope in of.scope_spans for span in scope.spans]
        with self._arrived:
            self._spans += spans
            self._arrived.notify_all()
        return trace_service_pb2.ExportTraceServiceResponse()

    def trace(self, trace_id: str) -> list[Span]:
        """What has arrived of a trace."""
        with self._arrived:
            return [span for span in self._spans if span.trace_id == trace_id]

    def await_trace(self, trace_id: str, complete: Callable[[list[Span]], bool], seconds: float = 60) -> list[Span]:
        """The spans of a trace as soon as they are `complete`. Raises TimeoutError with what there is."""
        deadline = time.monotonic() + seconds
        with self._arrived:
            while not complete(spans := [span for span in self._spans if span.trace_id == trace_id]):
                if not self._arrived.wait(deadline - time.monotonic()):
                    raise TimeoutError(f"{len(spans)} spans: {sorted(span.name for span in spans)}")
        return spans


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector on a port of its own."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(4))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]  # no stubs
    collector.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(1).wait()


def _read(span: WireSpan) -> Span:
    values = {pair.key: pair.value for pair in span.attributes}
    return Span(
        name=span.name,
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex(),
        failed=span.status.code == span.status.STATUS_CODE_ERROR,
        attributes={key: getattr(value, value.WhichOneof("value") or "") for key, value in values.items()},
    )
