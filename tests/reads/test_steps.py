"""ListRunSteps, GetRunStep, ListRunEvents: nodes in graph order and attempts oldest first, with their payloads, by pages that fit a reply."""

import json
from typing import Any

import asyncpg
import msgspec
from google.protobuf import json_format

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.model.specs import RetryPolicy
from tests.coordinator.conftest import Ticker
from tests.support.books import TENANT, Books, chain
from tests.support.edges import Catalogue, Edges, as_tenant, refusal, wide

JSON = common_pb2.PAYLOAD_FORMAT_JSON
META = as_tenant(TENANT)


async def _steps(edges: Edges, run_id: str, **fields: Any) -> reads.ListRunStepsResponse:
    answer = await edges.reads.ListRunSteps(
        reads.ListRunStepsRequest(run_id=run_id, **fields), metadata=META, timeout=60
    )
    assert answer.ByteSize() < 3.1 * (1 << 20)
    return answer


async def _step(edges: Edges, run_id: str, ref: str, **fields: Any) -> run_pb2.StepState:
    request = reads.GetRunStepRequest(run_id=run_id, step_id=ref, **fields)
    answer = await edges.reads.GetRunStep(request, metadata=META, timeout=60)
    assert answer.ByteSize() < 3.1 * (1 << 20)
    return answer.data


async def _events(edges: Edges, run_id: str, **fields: Any) -> reads.ListRunEventsResponse:
    answer = await edges.reads.ListRunEvents(
        reads.ListRunEventsRequest(run_id=run_id, **fields), metadata=META, timeout=60
    )
    assert answer.ByteSize() < 3.1 * (1 << 20)
    return answer


async def test_steps_in_graph_order_with_outputs(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """Order and titles are the version's; times, outputs and the node's status are the run's; a filter and pages of any size."""
    steps = tuple(msgspec.structs.replace(step, title=f"Step {i}") for i, step in enumerate(chain(5).steps))
    definition_id = await catalogue.published(msgspec.structs.replace(chain(5), steps=steps))
    started = await edges.start(definition_id)
    for number in range(3):
        await ticker.drain()
        await books.report(output=json.dumps({"n": number}))
    await ticker.drain()
    everything = (await _steps(edges, started.run_id)).data
    assert [(s.step_ref, s.title) for s in everything] == [(f"s{i}", f"Step {i}") for i in range(5)]
    assert [run_pb2.NodeStatus.Name(s.status).removeprefix("NODE_STATUS_") for s in everything] == [
        "SUCCEEDED", "SUCCEEDED", "SUCCEEDED", "RUNNING", "PENDING",
    ]  # fmt: skip
    assert [json_format.MessageToDict(s.output)["n"] for s in everything[:3]] == [0, 1, 2]
    assert all(s.HasField("start_time") and s.HasField("end_time") for s in everything[:3])
    assert not everything[3].HasField("start_time"), "no worker has taken it yet"
    assert not any(s.HasField("output") or s.HasField("retry_time") for s in everything[3:])
    for size in (1, 2, 4, 5, 6):
        found: list[run_pb2.StepState] = []
        token = ""
        while True:
            page = await _steps(edges, started.run_id, page_size=size, page_token=token)
            found += page.data
            token = page.next_page_token
            if not token:
                break
        assert found == list(everything)
    done = await _steps(edges, started.run_id, status=run_pb2.NODE_STATUS_SUCCEEDED, page_size=2)
    rest = await _steps(
        edges, started.run_id, status=run_pb2.NODE_STATUS_SUCCEEDED, page_size=2, page_token=done.next_page_token
    )
    assert [s.step_ref for s in (*done.data, *rest.data)] == ["s0", "s1", "s2"]
    assert not rest.next_page_token
    texts = (await _steps(edges, started.run_id, payload_format=JSON)).data
    assert [s.output_json for s in texts[:3]] == ['{"n": 0}', '{"n": 1}', '{"n": 2}']


async def test_pl06_pages_of_large_outputs(edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker) -> None:
    """PL-06: eight outputs of 1 MiB: no reply over the limit, no output missing, in both lists; one million numbers come as text."""
    definition_id = await catalogue.published(wide(8))
    started = await edges.start(definition_id)
    big = "[" + ",".join("1" * ((1 << 19) - 1)) + "]"
    await ticker.drain()
    await books.report(output=big)
    await ticker.drain()
    found: list[Any] = []
    token = ""
    while True:
        steps = await _steps(edges, started.run_id, page_token=token)
        assert 1 <= len(steps.data) <= 3
        found += steps.data
        if not (token := steps.next_page_token):
            break
    assert [s.step_ref for s in found] == [f"s{i}" for i in range(8)]
    assert all(s.output_json == big and not s.output_truncated for s in found)
    found = []
    while True:
        events = await _events(edges, started.run_id, page_token=token, payload_format=JSON)
        assert 1 <= len(events.data) <= 3
        found += events.data
        if not (token := events.next_page_token):
            break
    assert sorted(a.step_ref for a in found) == [f"s{i}" for i in range(8)]
    assert all(a.output_json == big and not a.output_truncated for a in found)
    step = await _step(edges, started.run_id, "s3")
    assert step.output_json == big


async def test_a_step_with_its_attempts(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """GetRunStep: rendered input, attempts newest first without outputs, and when a back-off will let the next one go."""
    retry = RetryPolicy(max_attempts=3, backoff_ms=3_600_000)
    definition_id = await catalogue.published(chain(2, retry=retry))
    started = await edges.start(definition_id)
    await ticker.drain()
    await owner.execute("update eec_workflow_step_attempt set input = '{\"to\": \"x\"}', worker_id = 'w1'")
    await books.report(outcome="failed", code="UNAVAILABLE")
    await ticker.drain()
    held = await _step(edges, started.run_id, "s0")
    assert (held.status, held.attempt) == (run_pb2.NODE_STATUS_RUNNING, 2)
    assert held.HasField("retry_time")
    assert json_format.MessageToDict(held.input) == {"to": "x"}
    assert [(a.attempt, a.status, a.outcome) for a in held.attempts] == [
        (2, run_pb2.ATTEMPT_STATUS_OPEN, run_pb2.ATTEMPT_OUTCOME_UNSPECIFIED),
        (1, run_pb2.ATTEMPT_STATUS_FAILED, run_pb2.ATTEMPT_OUTCOME_FAILED),
    ]
    assert (held.attempts[1].worker_id, held.attempts[1].error.code) == ("w1", "UNAVAILABLE")
    assert held.HasField("start_time"), "the first attempt was taken"
    await owner.execute("update eec_workflow_step_attempt set due_time = now() where status = 'open'")
    await books.report(output='{"id":9007199254740993}')
    await ticker.drain()
    done = await _step(edges, started.run_id, "s0")
    assert done.status == run_pb2.NODE_STATUS_SUCCEEDED
    assert not done.HasField("retry_time")
    assert done.output_json == '{"id":9007199254740993}'
    assert [a.attempt for a in done.attempts] == [2, 1]
    assert not any(a.HasField("output") or a.HasField("output_json") for a in done.attempts)
    untouched = await _step(edges, started.run_id, "s1")
    assert untouched.attempt == 1
    answer = await refusal(_step(edges, started.run_id, "nobody"))
    assert (answer.code, answer.reason) == ("NOT_FOUND", "STEP_NOT_FOUND")


async def test_a_step_of_a_run_that_nobody_has_taken_up(edges: Edges, catalogue: Catalogue) -> None:
    """Pending, without input, output or attempts."""
    definition_id = await catalogue.published()
    started = await edges.start(definition_id)
    step = await _step(edges, started.run_id, "s0")
    assert (step.status, step.attempt, len(step.attempts)) == (run_pb2.NODE_STATUS_PENDING, 0, 0)
    assert not step.HasField("input")
    assert [s.step_ref for s in (await _steps(edges, started.run_id)).data] == ["s0"]
    assert not (await _events(edges, started.run_id)).data


async def test_a_hundred_attempts_at_most(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """GetRunStep shows the latest 100; ListRunEvents pages through all of them, oldest first, equal times included."""
    definition_id = await catalogue.published()
    started = await edges.start(definition_id)
    await ticker.drain()
    await owner.execute(
        "insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, attempt, tier, queue, action, input, idempotency_key, due_time,"
        " create_time, status, outcome, report_time, error_code, error_message)"
        " select tenant_id, run_id, step_ref, n, tier, queue, action, input, idempotency_key, due_time, create_time + (n / 10) * interval '1 s',"
        " 'failed', 'failed', now(), 'INTERNAL', repeat('e', 4000) from eec_workflow_step_attempt, generate_series(2, 250) n"
    )
    assert [a.attempt for a in (await _step(edges, started.run_id, "s0")).attempts] == list(range(250, 150, -1))
    for size in (1, 50, 1000):
        found: list[int] = []
        token = ""
        while True:
            page = await _events(edges, started.run_id, page_size=size, page_token=token)
            found += [a.attempt for a in page.data]
            if not (token := page.next_page_token):
                break
        assert found == list(range(1, 251))


async def test_attempts_tell_what_became_of_them(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """ListRunEvents: times, worker, queue, outcome and verdict, outputs, a report that came too late; of one step where asked."""
    definition_id = await catalogue.published(chain(2))
    started = await edges.start(definition_id)
    await ticker.drain()
    await books.report(output='{"n":1}')
    await ticker.drain()
    await owner.execute(
        "update eec_workflow_step_attempt set worker_id = 'w', stale_outcome = 'failed', stale_time = now(), stale_error_code = 'X',"
        " stale_error_message = 'late'"
        " where step_ref = 's0'"
    )
    first, second = (await _events(edges, started.run_id)).data
    assert (first.step_ref, first.attempt, first.kind) == ("s0", 1, run_pb2.TASK_KIND_STEP)
    assert (first.status, first.outcome) == (run_pb2.ATTEMPT_STATUS_SUCCEEDED, run_pb2.ATTEMPT_OUTCOME_SUCCEEDED)
    assert (first.worker_id, first.queue) == ("w", "default")
    assert first.idempotency_key
    assert json_format.MessageToDict(first.output) == {"n": 1}
    assert (first.stale_report.outcome, first.stale_report.error.message) == (run_pb2.ATTEMPT_OUTCOME_FAILED, "late")
    assert all(first.HasField(field) for field in ("queue_time", "start_time", "end_time"))
    assert not first.HasField("item_index")
    assert (second.step_ref, second.status) == ("s1", run_pb2.ATTEMPT_STATUS_OPEN)
    assert not second.HasField("stale_report")
    assert not second.HasField("error")
    only = await _events(edges, started.run_id, step_ref="s1")
    assert [a.step_ref for a in only.data] == ["s1"]
    assert (await refusal(_events(edges, started.run_id, step_ref="s2"))).reason == "STEP_NOT_FOUND"
    token = (await _events(edges, started.run_id, page_size=1)).next_page_token
    assert (
        await refusal(_events(edges, started.run_id, step_ref="s0", page_token=token))
    ).reason == "PAGE_TOKEN_INVALID"
