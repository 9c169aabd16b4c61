"""Chaos for waiting: the only coordinator is killed with -9 between what wakes a run and the tick that applies it. Each word is applied just once.

While it is down people decide, events are published and moments pass; nothing of that needs a coordinator, and nothing of it is lost.
"""

import asyncio
import os
from typing import Any

import asyncpg
import grpc
import pytest

from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1 import workflow_signal_service_pb2_grpc as rpc
from tests.chaos.books import assert_whole
from tests.support.api import Api
from tests.support.stack import TENANT, running_stack

LONG = os.environ.get("DUCTOR_CHAOS") == "long"
RUNS = 300 if LONG else 60
KILLS = 12 if LONG else 4

FAST: dict[str, Any] = {"DUCTOR_SWEEP_MS": "2000", "DUCTOR_POLL_MS": "200"}

STEPS = [
    {"ref": "person", "type": "approval"},
    {
        "ref": "event",
        "type": "wait",
        "wait": {"event": {"event_name": "paid", "correlation_key": "TRIGGER.payload.key"}},
    },
    {"ref": "moment", "type": "wait", "wait": {"duration": "8s"}},
]

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300), pytest.mark.xdist_group("stack")]


async def test_killed_between_a_word_and_its_tick_applies_it_once() -> None:
    """Acceptance (E1, E3, TC-10): kill -9 between a signal's insert, an event's receipt, a timer's due time and the tick that applies them."""
    context = running_stack(coordinators=1, workers=0, **FAST)
    stack = await asyncio.to_thread(context.__enter__)
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    try:
        async with (
            Api(stack["edges"].target, TENANT) as api,
            grpc.aio.insecure_channel(stack["edges"].target) as channel,
        ):
            stub = rpc.WorkflowSignalServiceStub(channel)
            definition = await api.publish({"family_slug": "waits", "title": "waits", "steps": STEPS, "edges": []})
            runs = [(await api.start_many(definition, 1, input_json=f'{{"key": "k{i}"}}'))[0] for i in range(RUNS)]
            parked = "select count(*) from eec_workflow_run r, jsonb_each(r.node_states::jsonb) n where n.value ->> 'status' = 'waiting'"
            async with asyncio.timeout(60):
                while await owner.fetchval("select count(*) from eec_workflow_wait") < RUNS:  # noqa: ASYNC110  # rows have no event
                    await asyncio.sleep(0.05)
            coordinator = stack["coordinator0"]
            await asyncio.to_thread(coordinator.kill)
            assert await owner.fetchval(parked) >= 2 * RUNS
            assert await owner.fetchval("select count(*) from eec_workflow_timer") > 0
            for number, run_id in enumerate(runs):
                said = signals.ApproveStepRequest(
                    run_id=run_id, step_ref="person", request_id="yes", payload_json=str(number)
                )
                await stub.ApproveStep(said, metadata=api.metadata, timeout=30)
                event = signals.PublishEventRequest(
                    event_name="paid", correlation_key=f"k{number}", event_id=f"e{number}", payload_json=str(number)
                )
                assert (await stub.PublishEvent(event, metadata=api.metadata, timeout=30)).matched == 1
            due = "select count(*) from eec_workflow_timer where due_time > eec_now()"
            while await owner.fetchval(due):  # noqa: ASYNC110  # time passes
                await asyncio.sleep(0.1)
            for kill in range(KILLS):
                coordinator.start()
                await asyncio.to_thread(coordinator.wait_ready)
                await asyncio.sleep(0.02 * kill)
                await asyncio.to_thread(coordinator.kill)
            coordinator.start()
            await api.until_ended(180)
        statuses = await assert_whole(owner)
        assert statuses == {"completed": RUNS}
        ends = "select count(*) from eec_workflow_transition t, json_array_elements(t.events) e where e ->> 'type' = 'node_ended'"
        assert await owner.fetchval(ends) == 3 * RUNS
        assert await owner.fetchval("select count(*) from eec_workflow_audit where action = 'approve'") == RUNS
        payloads = (
            "select step_ref, count(distinct coalesce(output ->> 'payload', output -> 'event' ->> 'payload')) as payloads, count(*) as n"
            " from eec_workflow_step_attempt group by 1 order by 1"
        )
        rows = await owner.fetch(payloads)
        assert [tuple(row) for row in rows] == [("event", RUNS, RUNS), ("moment", 0, RUNS), ("person", RUNS, RUNS)]
    finally:
        await owner.close()
        await asyncio.to_thread(context.__exit__, None, None, None)
