"""Runs with children, as they are operated: what a snapshot shows of fan-outs, the attempts of one child, and which children a reset meets (F1, F5, C5)."""

import pytest
from msgspec import structs

from ductor.workflow.v1 import run_pb2
from ductord.engine.limits import LIMITS
from tests.coordinator.conftest import Ticker
from tests.coordinator.parents import begun, child_of, over
from tests.run_control.operator import Operator
from tests.support.books import Books
from tests.support.edges import refusal


async def test_a_snapshot_shows_where_a_fan_out_stands(operator: Operator, books: Books, ticker: Ticker) -> None:
    """F1: in counters, as the node has them."""
    run_id = await begun(books, ticker, over("inline", '"max_concurrency": 2'), width=5)
    await books.report(run_id)
    await ticker.drain()
    snapshot = (await operator.call("GetRunSnapshot", run_id=run_id)).data
    [node] = snapshot.nodes
    fan = node.fan
    assert fan.mode == run_pb2.FAN_MODE_INLINE
    assert (fan.expected, fan.begun, fan.open, fan.succeeded, fan.failed) == (5, 4, 2, 2, 0)
    assert [a.item_index for a in snapshot.open_attempts] == [2, 3]


async def test_pl_06_a_thousand_outputs_of_10_kb(operator: Operator, books: Books, ticker: Ticker) -> None:
    """PL-06, F2, L7: together they are more than may be gathered. The gather fails with the size and is not tried again; the children
    have what they came to, and the run is read as any other."""
    ticker.limits = structs.replace(LIMITS, max_inline_children=1_000)
    gather = 'step g type=gather gather={"scatter_ref": "s"}'
    run_id = await begun(books, ticker, over("inline"), gather, "s -success-> g", width=1_000)
    output = f'"{"x" * 9_998}"'
    while await books.status(run_id) == "running":
        await books.report(run_id, output=output)
        await ticker.drain()
    snapshot = (await operator.call("GetRunSnapshot", run_id=run_id)).data
    scatter, gathered = snapshot.nodes
    assert (scatter.status, scatter.fan.succeeded) == (run_pb2.NODE_STATUS_SUCCEEDED, 1_000)
    assert (gathered.status, gathered.error.code) == (run_pb2.NODE_STATUS_FAILED, "payload_too_large")
    assert "10,000,000 bytes" in gathered.error.message
    assert await books.owner.fetchval("select count(*) from eec_workflow_step_attempt where step_ref = 'g'") == 0


async def test_attempts_of_one_child(operator: Operator, books: Books, ticker: Ticker) -> None:
    """Of a step and an index; an index alone says nothing."""
    run_id = await begun(books, ticker, over("inline", settings="retry_max_attempts=2"), width=3)
    await books.report(run_id, outcome="failed", output=None, code="UNAVAILABLE")
    await ticker.drain()
    every = (await operator.call("ListRunAttempts", run_id=run_id, step_ref="s")).data
    assert sorted((a.item_index, a.attempt) for a in every) == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1), (2, 2)]
    one = (await operator.call("ListRunAttempts", run_id=run_id, step_ref="s", item_index=1)).data
    assert [(a.item_index, a.attempt) for a in one] == [(1, 1), (1, 2)]
    assert (await refusal(operator.call("ListRunAttempts", run_id=run_id, item_index=1))).reason == "FIELD_REQUIRED"


@pytest.mark.parametrize("ends", [True, False], ids=["finished", "open"])
async def test_rr_01_a_reset_takes_a_child_over(operator: Operator, books: Books, ticker: Ticker, ends: bool) -> None:
    """RR-01: a child that is open, or has completed while its parent had ended, is what the new run waits for; the preview says so and writes nothing."""
    run_id = await begun(books, ticker, over("one", '"parent_close_policy": "abandon"'))
    child = child_of(run_id)
    await ticker.drain()
    await operator.call("TerminateRun", run_id=run_id)
    await ticker.drain()
    if ends:
        await books.report(child)
        await ticker.drain()
    status = run_pb2.RUN_STATUS_COMPLETED if ends else run_pb2.RUN_STATUS_RUNNING
    [target] = (await operator.call("ListResetTargets", run_id=run_id)).data
    preview = (await operator.call("PreviewReset", source_run_id=run_id, transition_seq=target.transition_seq)).data
    assert [(c.step_ref, c.item_index, c.run_id, c.status) for c in preview.attached_children] == [
        ("s", 0, child, status)
    ]
    assert (list(preview.detached_children), preview.detached_children_count) == ([], 0)
    answer = await operator.call("ResetRun", source_run_id=run_id, transition_seq=target.transition_seq)
    assert answer.preview == preview
    await ticker.drain()
    if not ends:
        await books.report(child)
        await ticker.drain()
    assert await books.status(answer.new_run_id) == "completed"
    born = await books.owner.fetchval("select count(*) from eec_workflow_run_start where parent_run_id is not null")
    assert born == 1, "no other child was born"


async def test_children_of_an_open_source_stay_its_own(operator: Operator, books: Books, ticker: Ticker) -> None:
    """C5: the new run starts one of its own."""
    run_id = await begun(books, ticker, over("one"))
    await ticker.drain()
    preview = (await operator.call("PreviewReset", source_run_id=run_id, transition_seq=1)).data
    assert list(preview.attached_children) == []
    [kept] = preview.detached_children
    assert (kept.step_ref, kept.run_id, kept.status) == ("s", child_of(run_id), run_pb2.RUN_STATUS_RUNNING)
    answer = await operator.call("ResetRun", source_run_id=run_id, transition_seq=1)
    await ticker.drain()
    assert await books.status(child_of(answer.new_run_id, attempt=2)) == "running"
