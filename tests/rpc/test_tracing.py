"""Trace context always travels; spans are recorded where somebody wants them."""

from collections.abc import Iterator

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from ductord.rpc import tracing
from ductord.rpc.tracing import current_traceparent, new_traceparent, parsed, record_span, start_span
from tests.rpc.echo import Echo, loopback

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """Spans are recorded here while a test runs."""
    exporter = InMemorySpanExporter()
    tracing.configure(loopback(), exporter=exporter)
    yield exporter
    tracing.shut_down()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (PARENT, PARENT),
        (PARENT.replace("00-", "cc-", 1) + "-more", PARENT),
        (PARENT + "-more", ""),
        (PARENT.replace("00-", "ff-", 1), ""),
        (PARENT.upper(), ""),
        ("00-" + "0" * 32 + "-b7ad6b7169203331-01", ""),
        ("00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01", ""),
        ("", ""),
        ("\0", ""),
        (PARENT + "\n", ""),
    ],
)
def test_w3c_trace_context_is_read_as_w3c_says(text: str, kept: str) -> None:
    assert parsed(text) == kept


def test_without_an_endpoint_the_context_is_passed_on() -> None:
    assert not tracing.recording()
    with start_span("a", traceparent=PARENT) as span:
        assert span.traceparent == current_traceparent() == PARENT
        with start_span("b") as inner:
            assert inner.trace_id == span.trace_id
    assert current_traceparent() == ""
    with start_span("root", traceparent="garbage") as root:
        assert parsed(root.traceparent) == root.traceparent
        assert root.traceparent.endswith("-00"), "nothing is recorded here"
    assert record_span("tick", traceparent=PARENT, start_ns=1) == PARENT


def test_spans_form_one_tree_from_trigger_through_tick_to_action(exporter: InMemorySpanExporter) -> None:
    with start_span("trigger", traceparent=PARENT, kind="server", attributes={"ductor.tenant_id": "acme"}) as trigger:
        stored = trigger.traceparent
    ticked = record_span("tick", traceparent=stored, start_ns=10_000, end_ns=20_000, attributes={"ductor.run_id": "r"})
    with pytest.raises(ValueError, match="boom"), start_span("action", traceparent=ticked):
        raise ValueError("boom")
    spans = {span.name: span for span in exporter.get_finished_spans()}
    assert {format(span.context.trace_id, "032x") for span in spans.values() if span.context} == {PARENT[3:35]}
    for child, parent in (("tick", "trigger"), ("action", "tick")):
        assert spans[child].parent.span_id == spans[parent].context.span_id  # type: ignore[union-attr]
    assert (spans["tick"].start_time, spans["tick"].end_time) == (10_000, 20_000)
    assert spans["action"].status.status_code == StatusCode.ERROR
    assert spans["action"].status.description == "ValueError", "a type, no text: it may hold a payload"


async def test_every_rpc_is_a_span_under_the_callers(exporter: InMemorySpanExporter, echo: Echo) -> None:
    await echo.call()
    await echo.refusal("missing")
    await echo.refusal("boom")
    spans = [
        span for span in exporter.get_finished_spans() if span.name.endswith("WorkflowTriggerService/TriggerWorkflow")
    ]
    assert [span.status.status_code for span in spans] == [StatusCode.UNSET, StatusCode.UNSET, StatusCode.ERROR]
    assert spans[1].attributes["ductor.reason"] == "DEFINITION_NOT_FOUND"  # type: ignore[index]
    assert format(spans[0].context.trace_id, "032x") == echo.trigger.callers[0].trace_id


def test_new_contexts_differ() -> None:
    assert len({new_traceparent(sampled=True) for _ in range(100)}) == 100
