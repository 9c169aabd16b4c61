"""From the door to the outcome: the coordinator ticks, controls are applied or lose their race, and what was told beforehand is what then happens."""

import asyncio
from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import control_pb2
from ductord.model.enums import NodeStatus, RunStatus, Verb
from tests.coordinator.conftest import Ticker
from tests.run_control.operator import Operator
from tests.support.books import Books, chain

APPLIED, REJECTED = control_pb2.OPERATION_STATUS_APPLIED, control_pb2.OPERATION_STATUS_REJECTED


async def _begun(books: Books, ticker: Ticker, length: int = 2, ended: int = 0) -> str:
    """A chain of steps of which the first `ended` have succeeded."""
    run_id = await books.start(await books.publish(chain(length)))
    await ticker.drain()
    for _ in range(ended):
        await books.report(run_id)
        await ticker.drain()
    return run_id


async def _failed(books: Books, ticker: Ticker) -> str:
    run_id = await _begun(books, ticker, 3, ended=1)
    await books.report(run_id, outcome="failed", code="NOT_FOUND")
    await ticker.drain()
    assert await books.status(run_id) == "failed"
    return run_id


async def test_a_control_that_nobody_judged_yet_waits_for_a_coordinator(
    operator: Operator, books: Books, ticker: Ticker
) -> None:
    """A control is accepted while every coordinator is down, also for a run that none has taken up; whoever waits hears when it is applied."""
    run_id = await books.start(await books.publish(chain(1)))
    await operator.ask(Verb.CANCEL, run_id, request_id="c", reason="no more")
    call = operator.call("WaitOperation", run_id=run_id, request_id="c", timeout_seconds=20)
    waiting = asyncio.create_task(call)
    await ticker.drain()
    answer = await waiting
    assert answer.data.status == APPLIED
    assert await books.status(run_id) == "cancelled"


async def test_pause_and_resume(operator: Operator, books: Books, ticker: Ticker) -> None:
    """C2, through the door: paused until it is resumed, in the order in which it was asked for."""
    run_id = await _begun(books, ticker)
    await operator.ask(Verb.PAUSE, run_id, request_id="p")
    await ticker.drain()
    assert await books.status(run_id) == "paused"
    await operator.ask(Verb.RESUME, run_id, request_id="r")
    await ticker.drain()
    assert await books.status(run_id) == "running"
    assert [(await operator.operation(run_id, name)).status for name in ("p", "r")] == [APPLIED, APPLIED]


async def test_a_control_that_lost_its_race(operator: Operator, books: Books, ticker: Ticker) -> None:
    """Accepted while the run was open; the tick that judged it found the run ended by another: rejected with the reason, and the run stays as it is."""
    run_id = await _begun(books, ticker, 1)
    for verb in (Verb.TERMINATE, Verb.PAUSE, Verb.PAUSE_NODE, Verb.CANCEL):
        await operator.ask(verb, run_id, request_id=verb)
    await ticker.drain()
    assert await books.status(run_id) == "terminated"
    assert (await operator.operation(run_id, Verb.TERMINATE)).status == APPLIED
    for verb in (Verb.PAUSE, Verb.PAUSE_NODE, Verb.CANCEL):
        operation = await operator.operation(run_id, verb)
        assert (operation.status, operation.outcome_code) == (REJECTED, "RUN_TERMINAL")
        assert operation.outcome_message
        assert (await operator.refused(verb, run_id)).reason == operation.outcome_code


async def test_sw05_a_cancel_that_meets_the_completion(operator: Operator, books: Books, ticker: Ticker) -> None:
    """SW-05: the last report and a cancel meet in one tick: one end, one outcome, and both tell the same story. Later the cancel is refused at the door."""
    run_id = await _begun(books, ticker, 1)
    await operator.ask(Verb.CANCEL, run_id, request_id="c")
    await books.report(run_id)
    await ticker.drain()
    operation, status = await operator.operation(run_id, "c"), await books.status(run_id)
    assert (status, operation.status) in (("cancelled", APPLIED), ("completed", REJECTED))
    refused = await operator.refused(Verb.CANCEL, run_id, request_id="d")
    assert (refused.reason, refused.metadata["status"]) == ("RUN_TERMINAL", status)


async def test_redrive_does_what_its_dry_run_said(operator: Operator, books: Books, ticker: Ticker) -> None:
    """C4: a dry run records nothing and says what the redrive then does; repeated afterwards, the call tells the same plan."""
    run_id = await _failed(books, ticker)
    told = await operator.ask(Verb.REDRIVE, run_id, dry_run=True)
    assert told.status == control_pb2.ACCEPT_STATUS_DRY_RUN
    assert await books.owner.fetchval("select count(*) from eec_workflow_intent") == 0
    assert list(told.plan.restarted_step_refs) == ["s1", "s2"]
    assert list(told.plan.kept_step_refs) == ["s0"]
    accepted = await operator.ask(Verb.REDRIVE, run_id, request_id="r")
    pending = await operator.ask(Verb.REDRIVE, run_id, request_id="r")
    await ticker.drain()
    run = await books.settled(run_id)
    assert run.status is RunStatus.RUNNING
    assert [node.status for node in run.nodes] == [NodeStatus.SUCCEEDED, NodeStatus.RUNNING, NodeStatus.PENDING]
    repeated = await operator.ask(Verb.REDRIVE, run_id, request_id="r")
    assert told.plan == accepted.plan == pending.plan == repeated.plan
    assert (await operator.refused(Verb.REDRIVE, run_id, dry_run=True)).reason == "RUN_NOT_TERMINAL"


async def test_reset_does_what_its_preview_said(operator: Operator, books: Books, ticker: Ticker) -> None:
    """C5: preview, dry run and acceptance tell the same, to the node; the new run has the id that was answered, and the source is left alone."""
    run_id = await _begun(books, ticker, 4, ended=4)
    asked: dict[str, Any] = {
        "transition_seq": 2,
        "preserve_step_refs": ["s2"],
        "step_input_overrides": [{"step_ref": "s1", "input": {"n": 7}}],
    }
    preview = (await operator.call("PreviewReset", source_run_id=run_id, **asked)).data
    assert list(preview.kept_step_refs) == ["s0"]
    assert list(preview.restarted_step_refs) == ["s1", "s3"]
    assert list(preview.preserved_step_refs) == ["s2"]
    assert list(preview.overridden_step_refs) == ["s1"]
    dry = await operator.ask(Verb.RESET, run_id, request_id="r", dry_run=True, **asked)
    assert (dry.status, dry.preview) == (control_pb2.ACCEPT_STATUS_DRY_RUN, preview)
    assert await books.owner.fetchval("select count(*) from eec_workflow_intent") == 0
    accepted = await operator.ask(Verb.RESET, run_id, request_id="r", **asked)
    assert (accepted.status, accepted.preview) == (control_pb2.ACCEPT_STATUS_ACCEPTED, preview)
    assert accepted.new_run_id == dry.new_run_id
    await ticker.drain()
    operation = await operator.operation(run_id, "r")
    assert (operation.status, operation.outcome_message) == (APPLIED, "")
    assert operation.result["new_run_id"] == accepted.new_run_id
    again = await operator.ask(Verb.RESET, run_id, request_id="r", **asked)
    assert (again.new_run_id, again.preview) == (accepted.new_run_id, preview)
    assert await books.status(run_id) == "completed"
    given = await books.owner.fetchval(
        "select input::text from eec_workflow_step_attempt where run_id = $1 and step_ref = 's1' and status = 'open'",
        accepted.new_run_id,
    )
    assert given == '{"n":7}'
    while await books.report(accepted.new_run_id):
        await ticker.drain()
    assert await books.status(accepted.new_run_id) == "completed"
    ran = await books.owner.fetch(
        "select distinct step_ref from eec_workflow_step_attempt where run_id = $1 and create_time > (select create_time from eec_workflow_run_start"
        " where run_id = $1) order by 1",
        accepted.new_run_id,
    )
    assert {row["step_ref"] for row in ran} >= set(preview.restarted_step_refs)


async def test_continue_as_new(operator: Operator, books: Books, ticker: Ticker) -> None:
    """C6: the successor has the id that was answered; afterwards every other control names it."""
    run_id = await _begun(books, ticker)
    answer = await operator.ask(Verb.CONTINUE_AS_NEW, run_id, request_id="c", seed_run_context={"n": 1})
    await ticker.drain()
    await books.report(run_id)
    await ticker.drain()
    assert await books.status(run_id) == "terminated"
    assert await books.status(answer.new_run_id) == "running"
    assert (await operator.operation(run_id, "c")).result["new_run_id"] == answer.new_run_id
    refused = await operator.refused(Verb.CANCEL, run_id)
    assert refused.metadata["continued_to_run_id"] == answer.new_run_id
    snapshot = (await operator.call("GetRunSnapshot", run_id=answer.new_run_id)).data
    assert snapshot.run_context["n"] == 1
    assert snapshot.summary.continued_from_run_id == run_id


async def test_c9_resume_tries_a_run_that_was_set_aside_at_once(
    operator: Operator, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """C9: the tick raised and the next one is an hour away; a resume has it tried now."""
    run_id = await _begun(books, ticker)
    await owner.execute("update eec_workflow_run set node_states = '{\"s0\": 5}' where run_id = $1", run_id)
    await books.report(run_id)
    ticker.cache.runs.clear()
    await ticker.drain()
    assert await owner.fetchval("select count(*) from eec_workflow_quarantine") == 1
    await owner.execute(
        "update eec_workflow_run r set node_states = $2::jsonb where run_id = $1",
        run_id,
        '{"s0":{"status":"running","attempt":1,"logical":1,"first_time":"2026-01-01T00:00:00Z"}}',
    )
    await operator.ask(Verb.RESUME, run_id, request_id="r")
    await ticker.drain()
    assert await owner.fetchval("select count(*) from eec_workflow_quarantine") == 0
    assert (await operator.operation(run_id, "r")).status == APPLIED


@pytest.mark.parametrize("verb", [Verb.UPDATE_NODE_RETRY_POLICY, Verb.UPDATE_NODE_TIMEOUT])
async def test_a_nodes_policy_as_the_snapshot_shows_it(
    verb: Verb, operator: Operator, books: Books, ticker: Ticker
) -> None:
    """What a lever changed is in force, and is marked; restored, it is the definition's again."""
    run_id = await _begun(books, ticker)
    await operator.ask(verb, run_id, step_ref="s1")
    await ticker.drain()
    node = (await operator.call("GetRunSnapshot", run_id=run_id)).data.nodes[1]
    if verb is Verb.UPDATE_NODE_RETRY_POLICY:
        assert (node.retry_policy.retry_max_attempts, node.retry_policy_changed) == (3, True)
    else:
        assert (node.timeouts.timeout_ms, node.timeouts_changed) == (1000, True)
    rpc = "UpdateNodeRetryPolicy" if verb is Verb.UPDATE_NODE_RETRY_POLICY else "UpdateNodeTimeout"
    await operator.call(rpc, run_id=run_id, step_ref="s1", restore_original=True)
    await ticker.drain()
    node = (await operator.call("GetRunSnapshot", run_id=run_id)).data.nodes[1]
    assert (node.retry_policy_changed, node.timeouts_changed) == (False, False)
    assert node.retry_policy.retry_max_attempts == 1
    assert not node.timeouts.HasField("timeout_ms")
