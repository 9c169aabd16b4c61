"""GetRun: a run from its birth to its end, its payloads exact, its reply bounded; and TN-01 for every RPC that names a run."""

import json
from collections.abc import Callable
from typing import Any

import asyncpg
import msgspec
from google.protobuf import json_format

from ductor.workflow.v1 import common_pb2, definition_pb2, run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.db.ids import new_id
from ductord.model.specs import Template
from tests.coordinator.conftest import Ticker
from tests.support.books import TENANT, Books, chain
from tests.support.edges import Catalogue, Edges, as_tenant, refusal, wide, with_checkpoints

JSON = common_pb2.PAYLOAD_FORMAT_JSON


async def _get(edges: Edges, run_id: str, *, tenant: str = TENANT, payload_format: Any = 0) -> run_pb2.RunDetail:
    request = reads.GetRunRequest(run_id=run_id, payload_format=payload_format)
    answer = await edges.reads.GetRun(request, metadata=as_tenant(tenant), timeout=60)
    assert answer.ByteSize() < 3.1 * (1 << 20)
    return answer.data


async def _finished(ticker: Ticker, books: Books, **report: Any) -> None:
    while await _step(ticker, books, **report):
        pass


async def _step(ticker: Ticker, books: Books, **report: Any) -> int:
    await ticker.drain()
    return await books.report(**report)


async def test_a_run_that_nobody_has_taken_up(edges: Edges, catalogue: Catalogue) -> None:
    """No run row yet is `pending`: all nodes, all checkpoints, the input and the key are there."""
    definition_id = await catalogue.published(with_checkpoints(chain(2), "a", "b"))
    started = await edges.start(definition_id, input_json='{"n": 1}', idempotency_key="k")
    run = await _get(edges, started.run_id)
    assert run.summary.status == run_pb2.RUN_STATUS_PENDING
    assert json_format.MessageToDict(run.input) == {"n": 1}
    assert run.idempotency_key == "k"
    assert [(n.step_ref, n.step_type, n.status, n.attempt) for n in run.nodes] == [
        (ref, definition_pb2.STEP_TYPE_ACTION, run_pb2.NODE_STATUS_PENDING, 0) for ref in ("s0", "s1")
    ]
    assert [(c.name, c.status, list(c.step_refs)) for c in run.checkpoints] == [
        ("a", run_pb2.CHECKPOINT_STATUS_PENDING, ["s0"]),
        ("b", run_pb2.CHECKPOINT_STATUS_PENDING, ["s1"]),
    ]
    assert run.transition_count == 0
    for field in ("result", "error", "quarantine"):
        assert not run.HasField(field)


async def test_a_run_on_its_way_and_at_its_end(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """Nodes in graph order, checkpoints with their times, the result from the leaf steps' rows by ref."""
    definition_id = await catalogue.published(with_checkpoints(chain(2), "a", "b"))
    started = await edges.start(definition_id)
    await _step(ticker, books, output='{"x":1}')
    await ticker.drain()
    run = await _get(edges, started.run_id)
    assert [n.status for n in run.nodes] == [run_pb2.NODE_STATUS_SUCCEEDED, run_pb2.NODE_STATUS_RUNNING]
    assert [n.attempt for n in run.nodes] == [1, 1]
    assert [c.status for c in run.checkpoints] == [run_pb2.CHECKPOINT_STATUS_REACHED, run_pb2.CHECKPOINT_STATUS_PENDING]
    assert run.checkpoints[0].HasField("reach_time")
    await _finished(ticker, books, output='{"id":9007199254740993}')
    run = await _get(edges, started.run_id)
    assert run.summary.status == run_pb2.RUN_STATUS_COMPLETED
    assert run.summary.HasField("end_time")
    assert not run.summary.has_errors
    # PL-03, L5: a Struct would round it, so the twin is given.
    assert run.result_json == '{"s1":{"id":9007199254740993}}'
    assert not run.HasField("result")
    assert json_format.MessageToDict(run.input) == {}
    assert run.transition_count >= 3


async def test_payload_formats(edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker) -> None:
    """Struct by default, text on request, the same value; `output` expressions give the result itself."""
    definition_id = await catalogue.published(msgspec.structs.replace(chain(1), output=Template(tree={"done": True})))
    started = await edges.start(definition_id, input_json='{"b": 1, "a": [null, 2.5]}')
    await _finished(ticker, books)
    struct = await _get(edges, started.run_id)
    text = await _get(edges, started.run_id, payload_format=JSON)
    assert json_format.MessageToDict(struct.result) == {"done": True}
    assert text.result_json == '{"done":true}'
    assert text.input_json == '{"b":1,"a":[null,2.5]}'
    assert json_format.MessageToDict(struct.input) == json.loads(text.input_json)
    assert not text.HasField("input")
    assert not struct.HasField("input_json")


async def test_a_run_that_failed(edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker) -> None:
    """The error, the step behind it, and why the others did not run."""
    definition_id = await catalogue.published(chain(2))
    started = await edges.start(definition_id)
    await _finished(ticker, books, outcome="failed", code="NOT_FOUND")
    run = await _get(edges, started.run_id)
    assert run.summary.status == run_pb2.RUN_STATUS_FAILED
    assert run.summary.has_errors
    assert (run.error.code, run.error_step_ref) == ("NOT_FOUND", "s0")
    assert run.nodes[0].status == run_pb2.NODE_STATUS_FAILED
    assert run.nodes[1].status == run_pb2.NODE_STATUS_SKIPPED
    assert run.nodes[1].skip_reason != run_pb2.SKIP_REASON_UNSPECIFIED
    assert not run.HasField("result")


async def test_c9_a_quarantined_run_says_why(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """C9: the error is visible in GetRun, with when it is tried again; also before the run ever had a state."""
    definition_id = await catalogue.published()
    started = await edges.start(definition_id)
    await owner.execute(
        "insert into eec_workflow_quarantine (tenant_id, run_id, error, ticks, since, retry_time)"
        " select tenant_id, run_id, 'ValueError: boom', 3, create_time, create_time + interval '4 s' from eec_workflow_run_start"
    )
    run = await _get(edges, started.run_id)
    assert (run.quarantine.error, run.quarantine.attempts) == ("ValueError: boom", 3)
    assert run.quarantine.retry_time.seconds - run.quarantine.quarantine_time.seconds == 4


async def test_c9_a_run_that_cannot_be_read_is_seen(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """C9: what was set aside because its state cannot be read still shows the error, beside what its row says."""
    started = await edges.start(await catalogue.published())
    await ticker.drain()
    await owner.execute("update eec_workflow_run set run_state = '{\"saga\": 5}'")
    await owner.execute(
        "insert into eec_workflow_quarantine (tenant_id, run_id, error, ticks, since, retry_time)"
        " select tenant_id, run_id, 'ValidationError', 1, create_time, create_time from eec_workflow_run_start"
    )
    run = await _get(edges, started.run_id)
    assert (run.quarantine.error, run.summary.status) == ("ValidationError", run_pb2.RUN_STATUS_RUNNING)


async def test_pl06_what_does_not_fit_is_left_out_and_flagged(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """PL-06, L7: five leaf outputs of 1 MiB: those that fit beside the input are there, the flag says that some are not, and no RPC fails."""
    definition_id = await catalogue.published(wide(5))
    big = '"' + "x" * ((1 << 20) - 2) + '"'
    started = await edges.start(definition_id, input_json=big)
    await _finished(ticker, books, output=big)
    for payload_format in (0, JSON):
        run = await _get(edges, started.run_id, payload_format=payload_format)
        assert run.result_truncated
        assert not run.input_truncated
        result = json.loads(run.result_json) if run.HasField("result_json") else json_format.MessageToDict(run.result)
        assert list(result) == ["s0"]


async def test_pl06_a_struct_that_outgrows_its_text(edges: Edges, catalogue: Catalogue) -> None:
    """PL-06: half a million small numbers are 1 MiB of text and 5.5 MiB of Struct: the text is given, whatever was asked for."""
    definition_id = await catalogue.published()
    numbers = "[" + ",".join("1" * 500_000) + "]"
    started = await edges.start(definition_id, input_json=numbers)
    assert (await _get(edges, started.run_id)).input_json == numbers


async def test_tn01_every_rpc_that_names_a_run(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """TN-01, N1: a foreign run, a random id and a text that is none: NOT_FOUND with one body, from every RPC of the service."""
    definition_id = await catalogue.published()
    started = await edges.start(definition_id)
    await _finished(ticker, books)
    calls: dict[str, Callable[[str], Any]] = {
        "GetRun": lambda run_id: reads.GetRunRequest(run_id=run_id),
        "ListRunSteps": lambda run_id: reads.ListRunStepsRequest(run_id=run_id),
        "GetRunStep": lambda run_id: reads.GetRunStepRequest(run_id=run_id, step_id="s0"),
        "GetRunTimeline": lambda run_id: reads.GetRunTimelineRequest(run_id=run_id),
        "ListRunEvents": lambda run_id: reads.ListRunEventsRequest(run_id=run_id),
        "GetRunAudit": lambda run_id: reads.GetRunAuditRequest(run_id=run_id),
        "ExportRun": lambda run_id: reads.ExportRunRequest(run_id=run_id),
    }
    named = {m.name for m in reads.DESCRIPTOR.services_by_name["WorkflowService"].methods}
    elsewhere = {
        "ListRuns",
        "ListAudit",
        "ListCompensations",
        "WatchRun",
    }  # over runs, or a stream: their own tests look at tenants
    assert named - elsewhere == calls.keys(), "a new RPC needs its line here"
    for name, request in calls.items():
        rpc = getattr(edges.reads, name)
        assert await rpc(request(started.run_id), metadata=as_tenant(TENANT))
        assert await rpc(request(started.run_id.upper()), metadata=as_tenant(TENANT))
        answers = [
            await refusal(rpc(request(started.run_id), metadata=as_tenant("other"))),
            await refusal(rpc(request(new_id()), metadata=as_tenant(TENANT))),
            await refusal(rpc(request("nonsense"), metadata=as_tenant(TENANT))),
        ]
        assert {(a.code, a.reason, a.message, str(a.metadata)) for a in answers} == {
            ("NOT_FOUND", "RUN_NOT_FOUND", "there is no such run", "{}")
        }
        assert (await refusal(rpc(request(""), metadata=as_tenant(TENANT)))).reason == "FIELD_REQUIRED"
