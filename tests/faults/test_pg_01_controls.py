"""PG-01 for controls: whatever becomes of the connection at COMMIT, a control is recorded once or not at all, and its caller is told the truth."""

import asyncio

import asyncpg
import grpc
import pytest

from ductor.workflow.v1 import control_pb2
from ductor.workflow.v1 import workflow_run_control_service_pb2 as controls
from ductor.workflow.v1 import workflow_run_control_service_pb2_grpc as rpc
from tests.faults.load import answered
from tests.faults.wire import Wire
from tests.support.api import Api, chain
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300), pytest.mark.usefixtures("untouched")]

RUNS, ROUNDS = 10, 8
_STATUSES = "select status from eec_workflow_run where run_id = any($1::uuid[])"


async def test_pg_01_controls_of_unknown_outcome(stack: Stack, api: Api, owner: asyncpg.Connection, wire: Wire) -> None:
    """PG-01, RR-03: of 160 controls many lose their commit or its answer; every accepted one is one intent that is applied, repeated calls add none."""
    held = chain("held", 1)
    held["steps"][0]["queue"] = "nobody"
    runs = await api.start_many(await api.publish(held), RUNS)
    async with grpc.aio.insecure_channel(stack["edges"].target) as channel:
        stub = rpc.WorkflowRunControlServiceStub(channel)

        async def ask(run_id: str, number: int) -> str:
            name = str(number)
            for _ in range(2):
                if number % 2 == 0:
                    pause = controls.PauseRunRequest(run_id=run_id, request_id=name)
                    await answered(stub.PauseRun, pause, api)
                else:
                    resume = controls.ResumeRunRequest(run_id=run_id, request_id=name)
                    await answered(stub.ResumeRun, resume, api)
            asked = controls.WaitOperationRequest(run_id=run_id, request_id=name, timeout_seconds=60)
            answer, _ = await answered(stub.WaitOperation, asked, api)
            assert answer.data.status == control_pb2.OPERATION_STATUS_APPLIED, answer.data
            return str(answer.data.request_id)

        async def operate(run_id: str) -> None:
            for number in range(ROUNDS):
                await ask(run_id, number)

        wire.cuts.clear()
        wire.cut = {"ductor-run_control": 0.15, "ductor-coordinator": 0.1}
        await asyncio.gather(*(operate(run_id) for run_id in runs))
        wire.calm()
        statuses = {row["status"] for row in await owner.fetch(_STATUSES, runs)}
        for run_id in runs:  # the stack is shared: nothing may be left over
            await answered(stub.TerminateRun, controls.TerminateRunRequest(run_id=run_id), api)
        await api.until_ended()
    assert all(wire.cuts["ductor-run_control", lost] > 0 for lost in ("answer", "request")), wire.cuts
    rows = await owner.fetch(
        "select run_id::text, array_agg(request_id order by create_time) as names from eec_workflow_intent where run_id = any($1::uuid[])"
        " and verb <> 'terminate' group by 1",
        runs,
    )
    assert {row["run_id"]: row["names"] for row in rows} == {run_id: [str(n) for n in range(ROUNDS)] for run_id in runs}
    assert statuses == {"running"}
    told = await owner.fetchval(
        "select count(*) from eec_workflow_audit where target = any(select 'run:' || r from unnest($1::text[]) r) and action in ('pause', 'resume')",
        runs,
    )
    assert told == RUNS * ROUNDS
