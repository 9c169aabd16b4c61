"""PG-01 for signals and external events: whatever becomes of the connection at COMMIT, word is recorded once or not at all, and its caller hears the truth."""

import asyncio

import asyncpg
import grpc
import pytest

from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1 import workflow_signal_service_pb2_grpc as rpc
from ductord.model.starting import event_run_id
from tests.faults.load import answered
from tests.faults.wire import Wire
from tests.support.api import Api
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300), pytest.mark.usefixtures("untouched")]

RUNS, EVENTS = 20, 6
STEPS = [
    {"ref": "people", "type": "approval", "approval": {"required": 3}},
    {
        "ref": "world",
        "type": "event_set",
        "event_set": {
            "correlation_key": "TRIGGER.payload.key",
            "requirements": [{"name": "any", "event_name": "told"}],
            "completion_policy": "count",
            "count": EVENTS,
        },
    },
]


async def test_pg_01_word_of_unknown_outcome(stack: Stack, api: Api, owner: asyncpg.Connection, wire: Wire) -> None:
    """PG-01, E1, E3: of 180 signals and events many lose their commit or its answer. An event whose commit was lost on the way back is no duplicate of itself:
    what was counted as matched is what the sets have received, and each is complete with just its events."""
    definition = await api.publish({"family_slug": "told", "title": "told", "steps": STEPS, "edges": []})
    runs = [(await api.start_many(definition, 1, input_json=f'{{"key": "k{i}"}}'))[0] for i in range(RUNS)]
    waiting = "select count(*) from eec_workflow_wait where run_id = any($1::uuid[]) and close_time is null"
    async with asyncio.timeout(60):
        while await owner.fetchval(waiting, runs) < RUNS:  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.05)
    async with grpc.aio.insecure_channel(stack["edges"].target) as channel:
        stub = rpc.WorkflowSignalServiceStub(channel)

        async def approve(run_id: str) -> None:
            for number in range(3):
                for _ in range(2):
                    said = signals.ApproveStepRequest(
                        run_id=run_id, step_ref="people", request_id=f"r{number}", approver_id=f"p{number}"
                    )
                    await answered(stub.ApproveStep, said, api)

        async def publish(i: int) -> int:
            matched = 0
            for number in range(EVENTS):
                event = signals.PublishEventRequest(
                    event_name="told", correlation_key=f"k{i}", event_id=f"{i}-{number}", payload_json=str(number)
                )
                answer, tries = await answered(stub.PublishEvent, event, api)
                if tries > 1 and answer.duplicate:  # the service had given up, and its last commit had come through
                    answer.matched = 1
                else:
                    assert not answer.duplicate
                matched += answer.matched
                again, _ = await answered(stub.PublishEvent, event, api)
                assert (again.matched, again.duplicate) == (0, True)
            return matched

        wire.cuts.clear()
        wire.cut = {"ductor-signals": 0.15, "ductor-coordinator": 0.1}
        counts, _ = await asyncio.gather(
            asyncio.gather(*(publish(i) for i in range(RUNS))), asyncio.gather(*(approve(run_id) for run_id in runs))
        )
        wire.calm()
    assert all(wire.cuts["ductor-signals", lost] > 0 for lost in ("answer", "request")), wire.cuts
    assert counts == [EVENTS] * RUNS
    await api.until_ended()
    rows = await owner.fetch(
        "select run_id::text, count(*) as received, count(applied_time) as applied from eec_workflow_receipt where run_id = any($1::uuid[]) group by 1",
        runs,
    )
    assert {row["run_id"]: (row["received"], row["applied"]) for row in rows} == dict.fromkeys(runs, (EVENTS, EVENTS))
    rows = await owner.fetch(
        "select run_id::text, array_agg(status order by request_id) as became from eec_workflow_signal where run_id = any($1::uuid[]) group by 1",
        runs,
    )
    assert {row["run_id"]: row["became"] for row in rows} == dict.fromkeys(runs, ["applied"] * 3)


async def test_pg_01_events_of_unknown_outcome_that_start_runs(
    stack: Stack, api: Api, owner: asyncpg.Connection, wire: Wire
) -> None:
    """PG-01, T3: of 120 events many lose their commit or its answer. Each starts one run and its caller hears of just that one, unless the service had given up
    and the call was made again as a whole; and every run ends."""
    step = {"ref": "s", "type": "action", "action": "noop:noop", "run_if": "false"}
    trigger = {"id": "on", "type": "event", "patterns": ["born"]}
    definition = await api.publish({"family_slug": "born", "title": "born", "steps": [step], "triggers": [trigger]})
    async with grpc.aio.insecure_channel(stack["edges"].target) as channel:
        stub = rpc.WorkflowSignalServiceStub(channel)

        async def publish(number: int) -> str:
            expected = event_run_id(definition, "on", "born", f"e{number}")
            event = signals.PublishEventRequest(event_name="born", event_id=f"e{number}", payload_json=str(number))
            answer, tries = await answered(stub.PublishEvent, event, api)
            assert (list(answer.started_run_ids), answer.duplicate) in ([([expected], False), ([], True)][:tries])
            again, _ = await answered(stub.PublishEvent, event, api)
            assert (list(again.started_run_ids), again.duplicate) == ([], True)
            return expected

        wire.cuts.clear()
        wire.cut = {"ductor-signals": 0.25}
        expected = await asyncio.gather(*(publish(number) for number in range(120)))
        wire.calm()
    assert all(wire.cuts["ductor-signals", lost] > 0 for lost in ("answer", "request")), wire.cuts
    await api.until_ended()
    rows = await owner.fetch(
        "select run_id::text, input::text from eec_workflow_run_start where family_slug = 'born' order by input::text::int"
    )
    assert [tuple(row) for row in rows] == [(run_id, str(number)) for number, run_id in enumerate(expected)]
