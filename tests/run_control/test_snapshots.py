"""GetRunSnapshot: everything about where a run stands, at any time of its life, in a reply that clients take."""

import json
from typing import Any

import asyncpg
import msgspec
import pytest
from google.protobuf import json_format

from ductor.workflow.v1 import control_pb2, run_pb2
from ductord.engine.evolve import fold
from ductord.model.enums import CompensationStatus, EdgeType, NodeStatus, Verb
from ductord.model.fault import Fault, OutputRef
from ductord.model.manifest import Edge
from ductord.model.run import Node, Saga
from ductord.model.specs import RetryPolicy
from tests.coordinator.conftest import Ticker
from tests.run_control.operator import Operator
from tests.run_control.standing import AT, SUCCESSOR, Stands, begun
from tests.support.books import Books, chain
from tests.support.edges import with_checkpoints

LIMIT = 3.1 * (1 << 20)


async def _snapshot(operator: Operator, run_id: str, **fields: Any) -> control_pb2.RunSnapshot:
    answer = await operator.call("GetRunSnapshot", run_id=run_id, **fields)
    assert answer.ByteSize() < LIMIT
    data: control_pb2.RunSnapshot = answer.data
    return data


async def test_a_run_that_nobody_has_taken_up(operator: Operator, books: Books) -> None:
    run_id = await books.start(await books.publish(with_checkpoints(chain(2), "c")))
    await operator.ask(Verb.CANCEL, run_id, request_id="c")
    shown = await _snapshot(operator, run_id)
    assert shown.summary.status == run_pb2.RUN_STATUS_PENDING
    assert (shown.transition_count, shown.history_length, shown.truncated) == (0, 0, False)
    assert [(n.step_ref, n.status, n.attempt) for n in shown.nodes] == [
        ("s0", run_pb2.NODE_STATUS_PENDING, 0),
        ("s1", run_pb2.NODE_STATUS_PENDING, 0),
    ]
    assert [(e.source_ref, e.target_ref, e.type, e.state) for e in shown.edges] == [
        ("s0", "s1", "success", control_pb2.EDGE_STATE_OPEN)
    ]
    assert [(c.name, c.status, list(c.step_refs)) for c in shown.checkpoints] == [
        ("c", run_pb2.CHECKPOINT_STATUS_PENDING, ["s0"])
    ]
    assert [o.request_id for o in shown.pending_operations] == ["c"]
    assert not shown.HasField("stop")


async def test_a_run_at_work(operator: Operator, books: Books, ticker: Ticker) -> None:
    """Nodes with their counters and policies, edges, timers, the attempts without a verdict; the policies are those in force."""
    manifest = chain(2, retry=RetryPolicy(max_attempts=3, backoff_ms=60_000), timeout_ms=500, total_timeout_ms=900_000)
    run_id = await books.start(await books.publish(manifest))
    await ticker.drain()
    await books.report(run_id, outcome="failed", code="UNAVAILABLE")
    await ticker.drain()
    shown = await _snapshot(operator, run_id)
    first = shown.nodes[0]
    assert (first.status, first.attempt, first.failures, first.error.code) == (
        run_pb2.NODE_STATUS_RUNNING,
        2,
        1,
        "UNAVAILABLE",
    )
    assert first.HasField("retry_time")
    assert (first.retry_policy.retry_max_attempts, first.retry_policy.retry_backoff_ms) == (3, 60_000)
    assert (first.timeouts.timeout_ms, first.timeouts.HasField("queue_timeout_ms")) == (500, False)
    assert (shown.transition_count, shown.summary.current_step) == (2, "s0")
    assert [(t.kind, t.step_ref) for t in shown.timers] == [("total_timeout", "s0")]
    assert [(a.step_ref, a.attempt, a.status) for a in shown.open_attempts] == [("s0", 2, run_pb2.ATTEMPT_STATUS_OPEN)]


async def test_why_it_is_being_stopped(operator: Operator, stands: Stands) -> None:
    stop = (await _snapshot(operator, await stands.run("continuing"))).stop
    assert (stop.cause, stop.continued_to_run_id) == (run_pb2.RUN_STATUS_TERMINATED, SUCCESSOR)
    assert stop.HasField("deadline")
    stop = (await _snapshot(operator, await stands.run("stopping"))).stop
    assert (stop.cause, stop.error.code, stop.step_ref) == (run_pb2.RUN_STATUS_FAILED, "NOT_FOUND", "s0")
    ended = await _snapshot(operator, await stands.run("continued"))
    assert (ended.summary.close_reason, ended.summary.continued_to_run_id) == ("continued_as_new", SUCCESSOR)
    aside = await stands.run()
    await stands.quarantine(aside)
    assert (await _snapshot(operator, aside)).quarantine.error == "it raised"


async def test_nodes_as_an_operator_left_them(operator: Operator, stands: Stands) -> None:
    nodes = (
        Node(status=NodeStatus.RUNNING, attempt=4, losses=2, paused=True, cancelling=True),
        Node(status=NodeStatus.SUCCEEDED, end_time=AT, attempt=1, output=OutputRef(attempt=1, size=17, hash="h")),
    )
    first, second = (await _snapshot(operator, await stands.run(nodes=nodes))).nodes
    assert (first.losses, first.paused, first.cancelling) == (2, True, True)
    assert (second.output_attempt, second.output_size, second.HasField("end_time")) == (1, 17, True)


async def test_the_ledger(operator: Operator, stands: Stands, owner: asyncpg.Connection) -> None:
    """C7: the entries in the order in which they are worked off, with where the unwinding stands."""
    run_id = await stands.run("failed", saga=Saga(status=CompensationStatus.RUNNING))
    await owner.executemany(
        "insert into eec_workflow_compensation (tenant_id, run_id, position, family_slug, step_ref, kind, block, number, action, status, create_time,"
        " update_time) values ('t', $1, $2, 'chain', $3, 'compensation', 'on_failure', 0, 'a:b', $4, now(), now())",
        [(run_id, 1, "s0", "owed"), (run_id, 0, "s1", "running")],
    )
    shown = await _snapshot(operator, run_id)
    assert [(e.position, e.step_ref, e.status) for e in shown.compensation] == [
        (0, "s1", run_pb2.COMPENSATION_ENTRY_STATUS_RUNNING),
        (1, "s0", run_pb2.COMPENSATION_ENTRY_STATUS_OWED),
    ]


async def test_the_context_is_exact(operator: Operator, stands: Stands) -> None:
    """L5: the twin where a Struct would round, or where it is asked for."""
    run_id = await stands.run()
    await stands.context(run_id, {"n": 1})
    shown = await _snapshot(operator, run_id)
    assert json_format.MessageToDict(shown.run_context) == {"n": 1}
    shown = await _snapshot(operator, run_id, payload_format="PAYLOAD_FORMAT_JSON")
    assert json.loads(shown.run_context_json) == {"n": 1}
    await stands.context(run_id, {"n": 9007199254740993})
    assert json.loads((await _snapshot(operator, run_id)).run_context_json) == {"n": 9007199254740993}


async def test_pl06_it_fits_a_reply(
    operator: Operator, stands: Stands, books: Books, owner: asyncpg.Connection
) -> None:
    """PL-06: 500 nodes that failed at length, 5,000 edges, 100 controls with long reasons, 2,000 open attempts, a context of 2 MiB: what is too much is left
    out and said to be, and no node is missing."""
    steps = chain(500).steps
    edges = tuple(Edge(source=i % 250, target=250 + i % 249, type=EdgeType.SUCCESS) for i in range(5_000))
    manifest = msgspec.structs.replace(chain(500), steps=steps, edges=edges)
    run_id = await books.start(await books.publish(manifest), wake=False)
    run = fold(manifest, run_id, [(AT, begun(manifest))])
    failed = Node(status=NodeStatus.FAILED, attempt=1, end_time=AT, fault=Fault(code="X", message="é" * 4_000))
    await stands.write(manifest, msgspec.structs.replace(run, nodes=(failed,) * 500))
    await owner.execute(
        "insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, body_hash, reason, actor)"
        " select 't', $1, n::text, 'pause', '', repeat('r', 4096), 'x' from generate_series(1, 100) n",
        run_id,
    )
    await owner.execute(
        "insert into eec_workflow_step_attempt (tenant_id, run_id, step_ref, attempt, tier, queue, action, input, idempotency_key, due_time, create_time,"
        " outcome, report_time, error_code, error_message)"
        " select 't', $1, 's0', n, 'standard', 'default', 'a:b', '{}', 'k', now(), now(), 'failed', now(), 'X', repeat('e', 4000)"
        " from generate_series(1, 2000) n",
        run_id,
    )
    await stands.context(run_id, {"a": "c" * (2 << 20)})
    shown = await _snapshot(operator, run_id)
    assert len(shown.nodes) == 500
    assert shown.truncated
    assert shown.run_context_truncated
    assert shown.nodes[0].error.message.startswith("é" * 200)
    assert len(shown.pending_operations) == 100
    assert 0 < len(shown.open_attempts) < 1_000
    await owner.execute("delete from eec_workflow_step_attempt")
    await owner.execute("delete from eec_workflow_intent")
    await stands.context(run_id, {"a": "c" * (1 << 20)})
    shown = await _snapshot(operator, run_id)
    assert len(shown.edges) == 5_000
    assert not shown.run_context_truncated


@pytest.mark.parametrize("count", [99, 101])
async def test_a_hundred_pending_operations(
    count: int, operator: Operator, stands: Stands, owner: asyncpg.Connection
) -> None:
    run_id = await stands.run()
    await owner.execute(
        "insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, body_hash, actor)"
        " select 't', $1, n::text, 'pause', '', 'x' from generate_series(1, $2::int) n",
        run_id,
        count,
    )
    shown = await _snapshot(operator, run_id)
    assert (len(shown.pending_operations), shown.truncated) == (min(count, 100), count > 100)
