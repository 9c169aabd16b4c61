"""OB-01, the worker's part: an action's span continues the trace that the task carries, and what it calls continues the span."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ductord.rpc import tracing
from ductord.rpc.config import Settings
from ductord.worker.context import ActionContext
from tests.support.queue import Queue
from tests.worker.conftest import Working

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    """What was recorded."""
    exporter = InMemorySpanExporter()
    tracing.configure(Settings(), exporter=exporter)
    yield exporter
    tracing.shut_down()


async def test_an_action_is_a_span_of_the_runs_trace(
    working: Working, queue: Queue, spans: InMemorySpanExporter
) -> None:
    """Its parent is the task's context; its attributes are ids, never payloads; a failed action is a failed span."""
    seen: list[str] = []

    async def looks(args: Any, context: ActionContext) -> Any:
        seen.append(context.traceparent)
        assert tracing.current_traceparent() == context.traceparent
        raise ValueError("secret")

    [run] = await queue.put(1, action="t:looks", traceparent=TRACE, args={"password": "secret"})

    async def reported() -> bool:
        return (await queue.row(run))["report_time"] is not None

    async with working({"t:looks": looks}):
        await queue.wait_for(reported)
    [span] = [s for s in spans.get_finished_spans() if s.name == "action t:looks"]
    assert span.context is not None
    assert span.parent is not None
    assert f"{span.context.trace_id:032x}" == TRACE.split("-")[1]
    assert f"{span.parent.span_id:016x}" == TRACE.split("-")[2]
    assert seen == [f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-01"]
    assert dict(span.attributes or {}) == {
        "ductor.tenant_id": "acme", "ductor.run_id": run, "ductor.step_ref": "s", "ductor.attempt": 1,
    }  # fmt: skip
    assert not span.status.is_ok
    assert "secret" not in (span.status.description or "")
