"""OB-01 over real processes: one trace from the caller through gateway, trigger and ticks to the actions, also through a crash; logs with the same ids;
run ids on spans and in logs, never in metric labels.

The spans come by OTLP to a collector in the test, which speaks the real protocol.
"""

import asyncio
import json
import secrets
import urllib.request
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.stack.collector import Collector, Span, collecting
from tests.support.api import Api, actions
from tests.support.stack import Stack, running_stack

TENANT = "traced"
Fields = dict[str, object]

ROOT = "b7ad6b7169203331"
"""The caller's own span."""
TRIGGER = "ductor.workflow.v1.WorkflowTriggerService/TriggerWorkflow"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """Where all processes send their spans."""
    with collecting() as running:
        yield running


@pytest.fixture(scope="module")
def stack(collector: Collector) -> Iterator[Stack]:
    """Each service in a process of its own, everything logged as JSON."""
    with running_stack(
        gateway=True,
        http=True,
        durable=False,
        DUCTOR_OTLP_ENDPOINT=f"http://{collector.address}",
        OTEL_BSP_SCHEDULE_DELAY="100",
        DUCTOR_LOG_FORMAT="json",
        DUCTOR_LOG_LEVEL="debug",
        DUCTOR_LEASE_MS="5000",
        DUCTOR_HEARTBEAT_MS="400",
        DUCTOR_SWEEP_MS="500",
    ) as running:
        yield running


@pytest.fixture
async def api(stack: Stack) -> AsyncIterator[Api]:
    """A caller over gRPC."""
    async with Api(stack["edges"].target, TENANT) as caller:
        yield caller


async def test_a_run_is_one_trace_from_the_callers_span_to_every_attempt(
    stack: Stack, collector: Collector, api: Api
) -> None:
    """OB-01: the trace context travels through the rows, so each attempt hangs under the tick that queued it, and that under the trigger."""
    trace_id = secrets.token_hex(16)
    run_id = await asyncio.to_thread(_start, stack, await api.publish(_flaky("traced-flaky")), trace_id)
    await api.until_ended()
    spans = await asyncio.to_thread(collector.await_trace, trace_id, lambda found: len(found) >= 9)
    by_id = {span.span_id: span for span in spans}

    def parent(span: Span) -> Span:
        return by_id[span.parent_id]

    [gateway] = [span for span in spans if span.parent_id == ROOT]
    assert gateway.name == "gateway WorkflowTriggerService/TriggerWorkflow"
    [trigger] = [span for span in spans if span.name == TRIGGER]
    assert parent(trigger) is gateway
    ticks = [span for span in spans if span.name == "tick"]
    assert len(ticks) == 4, "the start, and one for each of three reports"
    assert all(parent(tick) is trigger for tick in ticks)
    found = _actions(spans)
    assert [(s.attributes["ductor.step_ref"], s.attributes["ductor.attempt"], s.failed) for s in found] == [
        ("first", 1, False), ("flaky", 1, True), ("flaky", 2, False),
    ]  # fmt: skip
    assert len({span.parent_id for span in found}) == 3, "each attempt under the tick that queued it"
    assert all(parent(span).name == "tick" for span in found)
    assert {span.attributes["ductor.run_id"] for span in ticks + found} == {run_id}
    assert {span.attributes["ductor.tenant_id"] for span in [trigger, *ticks, *found]} == {TENANT}
    assert len(spans) == len(ticks) + len(found) + 2, "polls and reports are not of this trace"
    assert not any("secret" in str(span) for span in spans), "ids, never payloads"

    ids: Fields = {"tenant_id": TENANT, "run_id": run_id, "trace_id": trace_id}
    assert _told(stack, "edges", run_id) == [ids | {"message": "started a run"}]
    flaky: Fields = ids | {"step_ref": "flaky"}
    assert _told(stack, "coordinator0", run_id) == [
        flaky | {"attempt": 1, "message": "an attempt failed", "reason": "UNAVAILABLE"},
        ids | {"message": "a run ended: completed"},
    ]
    attempts: list[Fields] = [ids | {"step_ref": "first", "attempt": 1}, flaky | {"attempt": 1}, flaky | {"attempt": 2}]
    leased: list[Fields] = [a | {"message": "a task was leased"} for a in attempts]
    assert _told(stack, "dispatch0", run_id) == leased
    ended: list[Fields] = [a | {"message": "an action ended: success"} for a in attempts]
    ended[1] |= {"message": "an action ended: failure", "reason": "UNAVAILABLE"}
    assert _told(stack, "worker0", run_id) == ended


async def test_a_killed_worker_does_not_break_the_trace(stack: Stack, collector: Collector, api: Api) -> None:
    """A4, OB-01: the attempt that was lost has no span, as its process is gone; the next one is of the same trace, and the log tells of the loss."""
    trace_id = secrets.token_hex(16)
    tree = {"family_slug": "traced-lost", "steps": actions(["nap"], "core:sleep", args={"ms": 3_000})}
    run_id = await asyncio.to_thread(_start, stack, await api.publish(tree), trace_id)
    await _at_work(stack)
    stack["worker0"].kill()
    stack["worker0"].start()
    await api.until_ended()
    spans = await asyncio.to_thread(collector.await_trace, trace_id, lambda found: len(found) >= 6)
    [action] = _actions(spans)
    assert (action.attributes["ductor.attempt"], action.failed) == (2, False)
    assert [span.name for span in spans if span.span_id == action.parent_id] == ["tick"]
    ids: Fields = {"tenant_id": TENANT, "run_id": run_id, "trace_id": trace_id}
    assert _told(stack, "coordinator0", run_id) == [
        ids | {"step_ref": "nap", "attempt": 1, "message": "an attempt was lost with its worker"},
        ids | {"message": "a run ended: completed"},
    ]


async def test_runs_tenants_steps_and_traces_are_no_metric_labels(stack: Stack, api: Api) -> None:
    """OB-01: after hundreds of runs a process has as many time series as after a few (give or take a result that nobody had met before)."""
    definition = await api.publish(_flaky("traced-many"))
    runs = await api.start_many(definition, 5)
    await api.until_ended()
    before = {name: await asyncio.to_thread(_metrics, stack, name) for name in stack.members}
    runs += await api.start_many(definition, 200)
    await api.until_ended(120)
    for name, old in before.items():
        text = await asyncio.to_thread(_metrics, stack, name)
        assert len(_series(text) - _series(old)) < 5, name
        assert not any(run_id in text for run_id in runs), name
        assert "flaky" not in text, name


def _flaky(slug: str) -> dict[str, Any]:
    """Two steps, of which the second fails once."""
    steps = [
        *actions(["first"], "core:echo", args={"word": "secret"}),
        *actions(
            ["flaky"], "core:fail", args={"times": 1, "code": "UNAVAILABLE", "message": "secret"}, retry_max_attempts=2
        ),
    ]
    return {
        "family_slug": slug,
        "steps": steps,
        "edges": [{"source_ref": "first", "target_ref": "flaky", "type": "success"}],
    }


def _start(stack: Stack, definition_id: str, trace_id: str) -> str:
    """Start a run over REST, as a caller with a trace of its own does."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{stack['gateway'].http_port}/api/v2/workflow-definitions/{definition_id}:trigger",
        data=b"{}",
        headers={
            "content-type": "application/json",
            "x-tenant-id": TENANT,
            "traceparent": f"00-{trace_id}-{ROOT}-01",
        },
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        body = json.load(answer)
    assert body["metadata"]["trace_id"] == trace_id
    return str(body["run_id"])


def _actions(spans: list[Span]) -> list[Span]:
    found = [span for span in spans if span.name.startswith("action ")]
    return sorted(found, key=lambda span: (span.attributes["ductor.step_ref"], span.attributes["ductor.attempt"]))


def _told(stack: Stack, member: str, run_id: str) -> list[dict[str, Any]]:
    """What a process logged about a run: ids, message and reason of each line, in order."""
    wanted = ("tenant_id", "run_id", "step_ref", "attempt", "trace_id", "message", "reason")
    lines = [json.loads(line) for line in stack[member].log.read_text().splitlines()]
    return [{key: line[key] for key in wanted if key in line} for line in lines if line.get("run_id") == run_id]


async def _at_work(stack: Stack) -> None:
    """Await that the worker is at it: the lease alone may belong to an answer that is still on its way, and is given back when nobody takes it."""
    async with asyncio.timeout(60):
        while "ductor_worker_busy 1.0" not in await asyncio.to_thread(_metrics, stack, "worker0"):  # noqa: ASYNC110  # a gauge has no event
            await asyncio.sleep(0.02)


def _metrics(stack: Stack, member: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{stack[member].http_port}/metrics", timeout=60) as answer:
        return str(answer.read().decode())


def _series(text: str) -> set[str]:
    """Names and labels of all time series."""
    return {line.rpartition(" ")[0] for line in text.splitlines() if line and not line.startswith("#")}
