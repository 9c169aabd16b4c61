"""What became of a control: GetOperation, and WaitOperation with its hints, its polling, its limits and its polite end."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from ductor.workflow.v1 import control_pb2
from ductord.db.ids import new_id
from ductord.model.enums import Verb
from ductord.run_control.service import SERVICE
from tests.conftest import Database
from tests.run_control.operator import Operator
from tests.run_control.standing import Stands
from tests.support.edges import Edges, refusal, serving

PENDING, APPLIED, REJECTED = (
    control_pb2.OPERATION_STATUS_PENDING,
    control_pb2.OPERATION_STATUS_APPLIED,
    control_pb2.OPERATION_STATUS_REJECTED,
)


async def _until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # that is what it is for
            await asyncio.sleep(0.005)


def _waiting(edges: Edges, count: int = 1) -> Callable[[], bool]:
    return lambda: f"ductor_operation_waits {count}.0\n".encode() in edges.host.metrics.exposition()


async def test_an_operation_from_its_acceptance_to_its_outcome(operator: Operator, stands: Stands) -> None:
    """C1: pending with who, why and when; applied with the facts of the outcome; rejected with the reason why."""
    run_id = await stands.run()
    await operator.ask(Verb.PAUSE_NODE, run_id, request_id="a", reason="hot")
    operation = await operator.operation(run_id, "a")
    assert (operation.run_id, operation.request_id, operation.step_ref) == (run_id, "a", "s0")
    assert (operation.verb, operation.status) == (control_pb2.CONTROL_VERB_PAUSE_NODE, PENDING)
    assert (operation.reason, operation.actor) == ("hot", "anonymous")
    assert operation.HasField("create_time")
    assert not operation.HasField("settle_time")
    await stands.settle(run_id, "a", "rejected", "NODE_FINISHED", node_status="succeeded")
    operation = await operator.operation(run_id, "a")
    assert (operation.status, operation.outcome_code, operation.outcome_message) == (
        REJECTED,
        "NODE_FINISHED",
        "NODE_FINISHED",
    )
    assert dict(operation.result) == {"node_status": "succeeded"}
    assert operation.HasField("settle_time")


@pytest.mark.parametrize("rpc", ["GetOperation", "WaitOperation"])
async def test_operations_that_there_are_not(rpc: str, operator: Operator, stands: Stands) -> None:
    """An unknown name of a known run is one thing, an unknown or foreign run another (TN-01)."""
    run_id, foreign = await stands.run(), await stands.run(tenant="other")
    other = Operator(operator.edges, "other")
    await other.ask(Verb.PAUSE, foreign, request_id="a")
    refused = await refusal(operator.call(rpc, run_id=run_id, request_id="a"))
    assert (refused.code, refused.reason) == ("NOT_FOUND", "OPERATION_NOT_FOUND")
    for text in (foreign, new_id(), "none"):
        assert (await refusal(operator.call(rpc, run_id=text, request_id="a"))).reason == "RUN_NOT_FOUND"
    assert (await refusal(operator.call(rpc, run_id=run_id))).metadata["field"] == "request_id"


@pytest.mark.parametrize("seconds", [-1, 301])
async def test_a_wait_is_bounded(seconds: int, operator: Operator, stands: Stands) -> None:
    run_id = await stands.run()
    await operator.ask(Verb.PAUSE, run_id, request_id="a")
    call = operator.call("WaitOperation", run_id=run_id, request_id="a", timeout_seconds=seconds)
    refused = await refusal(call)
    assert (refused.reason, refused.metadata["field"]) == ("FIELD_INVALID", "timeout_seconds")


async def test_a_settled_operation_answers_at_once(operator: Operator, stands: Stands) -> None:
    run_id = await stands.run()
    await operator.ask(Verb.PAUSE, run_id, request_id="a")
    await stands.settle(run_id, "a")
    answer = await operator.call("WaitOperation", run_id=run_id, request_id="a", timeout_seconds=300)
    assert answer.data.status == APPLIED


@pytest.mark.parametrize("notify", [True, False])
async def test_waits_end_with_the_outcome(notify: bool, database: Database, stands: Stands) -> None:
    """A hundred calls of two tenants wait on a pool of two, which serves others meanwhile; by a hint, and without one by polling."""
    async with serving(database, [SERVICE], pool_max_size=2, notify=notify) as edges:
        waiting = []
        runs = []
        for tenant in ("t", "other"):
            operator, run_id = Operator(edges, tenant), await stands.run(tenant=tenant)
            runs.append(run_id)
            for name in ("a", "b"):
                await operator.ask(Verb.PAUSE, run_id, request_id=name)
            for number in range(50):
                call = operator.call("WaitOperation", 60, run_id=run_id, request_id="ab"[number % 2])
                waiting.append(asyncio.create_task(call))
        await _until(_waiting(edges, 100))
        assert (await Operator(edges, "other").operation(runs[1], "a")).status == PENDING
        for run_id in runs:
            await stands.settle(run_id, "a")
            await stands.settle(run_id, "b", "rejected", "RUN_TERMINAL")
        answers = [call.data for call in await asyncio.gather(*waiting)]
        assert [a.status for a in answers] == [APPLIED if a.request_id == "a" else REJECTED for a in answers]
        await _until(_waiting(edges, 0))


async def test_time_is_up(operator: Operator, stands: Stands) -> None:
    """Out of time is no error: the operation is still pending. Nought seconds do not wait at all."""
    run_id = await stands.run()
    await operator.ask(Verb.PAUSE, run_id, request_id="a")
    for seconds in (0, 1):
        begin = time.monotonic()
        answer = await operator.call("WaitOperation", run_id=run_id, request_id="a", timeout_seconds=seconds)
        assert answer.data.status == PENDING
        assert seconds <= time.monotonic() - begin < seconds + 60


async def test_a_caller_in_a_hurry_hears_of_its_operation(operator: Operator, stands: Stands) -> None:
    """The caller's own deadline is shorter than the wait: it is answered before that passes."""
    run_id = await stands.run()
    await operator.ask(Verb.PAUSE, run_id, request_id="a")
    answer = await operator.call("WaitOperation", 4, run_id=run_id, request_id="a", timeout_seconds=300)
    assert answer.data.status == PENDING


async def test_a_caller_who_goes_away_leaves_nothing(edges: Edges, operator: Operator, stands: Stands) -> None:
    run_id = await stands.run()
    await operator.ask(Verb.PAUSE, run_id, request_id="a")
    call = asyncio.create_task(operator.call("WaitOperation", run_id=run_id, request_id="a"))
    await _until(_waiting(edges))
    call.cancel()
    await _until(_waiting(edges, 0))


async def test_a_stop_ends_waits_politely(database: Database, stands: Stands) -> None:
    """KB-01: SIGTERM while calls wait: each is answered that its operation is pending so far, none is cut off."""
    run_id = await stands.run()
    async with serving(database, [SERVICE]) as edges:
        operator = Operator(edges)
        await operator.ask(Verb.PAUSE, run_id, request_id="a")
        calls = [
            asyncio.create_task(operator.call("WaitOperation", 60, run_id=run_id, request_id="a", timeout_seconds=300))
            for _ in range(5)
        ]
        await _until(_waiting(edges, 5))
        leaving = asyncio.create_task(edges.host._stop())
        answers = await asyncio.gather(*calls)
        await leaving
    assert {answer.data.status for answer in answers} == {PENDING}
