"""PG-01 for operators of schedules: whatever becomes of the connection at COMMIT, each fires once, is told the truth and leaves one line in the audit trail."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from ductor.workflow.v1 import definition_pb2
from ductor.workflow.v1 import schedule_service_pb2 as schedules
from ductor.workflow.v1.schedule_service_pb2_grpc import ScheduleServiceStub
from ductord.model.starting import schedule_id
from tests.faults.wire import Wire
from tests.support.api import Api, chain
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300), pytest.mark.usefixtures("untouched")]

ALLOW = definition_pb2.OVERLAP_POLICY_ALLOW_ALL
ROUNDS, DAYS = 40, 3


def _stamp(time: datetime) -> Timestamp:
    message = Timestamp()
    message.FromDatetime(time)
    return message


async def test_pg_01_operators_of_unknown_outcome(
    stack: Stack, api: Api, owner: asyncpg.Connection, wire: Wire
) -> None:
    """PG-01, T2: fires by hand and backfills lose many of their commits or the answers to them: no call is told that somebody else was there before."""
    tree: dict[str, Any] = {**chain("nightly", 1), "schedule": {"cron_expression": "0 3 * * *"}}
    definition_id = await api.publish(tree)
    schedule = schedule_id(definition_id, "schedule")
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    async with grpc.aio.insecure_channel(stack["edges"].target) as channel:
        stub = ScheduleServiceStub(channel)

        async def call(rpc: str, **fields: Any) -> Any:
            request = getattr(schedules, f"{rpc}Request")(schedule_id=schedule, **fields)
            return await getattr(stub, rpc)(request, metadata=api.metadata, timeout=60)

        wire.cuts.clear()
        wire.cut = {"ductor-trigger": 0.15}
        run_ids = []
        for number in range(ROUNDS):
            fired = await call("TriggerScheduleNow", request_id=f"q{number}", overlap_policy=ALLOW)
            assert not fired.duplicate
            end = midnight - timedelta(days=DAYS * number + 1)
            span = {"from_time": _stamp(end - timedelta(days=DAYS)), "to_time": _stamp(end)}
            filled = await call("BackfillSchedule", request_id=f"b{number}", **span)
            assert (len(filled.started_run_ids), filled.already_started_count) == (DAYS, 0)
            run_ids += [fired.data.run_id, *filled.started_run_ids]
            turn = "PauseSchedule" if number % 2 == 0 else "ResumeSchedule"
            await call(turn, request_id=f"t{number}")
        wire.calm()
        told = (await call("GetSchedule")).data
        await call("PauseSchedule")
    assert all(wire.cuts["ductor-trigger", lost] > 0 for lost in ("answer", "request")), wire.cuts
    assert len(set(run_ids)) == ROUNDS * (DAYS + 1) == told.started_count
    starts = await owner.fetch(
        "select run_id::text from eec_workflow_run_start where definition_id = $1", definition_id
    )
    assert {row["run_id"] for row in starts} == set(run_ids)
    audited = await owner.fetch(
        "select action, request_id from eec_workflow_audit where target = $1 and request_id ~ '^[qbt][0-9]'",
        f"schedule:{schedule}",
    )
    assert Counter(row["request_id"] for row in audited) == Counter(
        f"{kind}{n}" for kind in "qbt" for n in range(ROUNDS)
    )
    await api.until_ended()
