"""Chaos with compensations: kill -9 while sagas unwind. An outside till of charges and refunds balances to zero for every run that was undone (C7, SA-01).

Every charge that a run's steps reported is refunded once if the run failed or was cancelled, and never if it completed. A charge of which nobody knows (its
worker died with it, and the run ended first) is a run for a person: `manual_repair`.
"""

import asyncio
import itertools
import os
import random
import time
from collections import Counter

import asyncpg
import grpc
import orjson
import pytest

from ductor.workflow.v1 import workflow_run_control_service_pb2 as control
from ductor.workflow.v1 import workflow_run_control_service_pb2_grpc as control_grpc
from tests.chaos.books import assert_whole
from tests.chaos.sagas import sagas
from tests.chaos.test_chaos import FAST
from tests.chaos.till import Till
from tests.support.api import Api
from tests.support.recorder import recording
from tests.support.stack import TENANT, Stack, running_stack

LONG = os.environ.get("DUCTOR_CHAOS") == "long"
SAGAS = 1000 if LONG else 200
KILLING_S = 150 if LONG else 24
KILL_EVERY_S = 3 if LONG else 1.5

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(900), pytest.mark.xdist_group("stack")]


async def _again(call: object) -> None:
    """Repeat a call until it was accepted or refused for good."""
    while True:
        try:
            await call()  # type: ignore[operator]
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.FAILED_PRECONDITION:
                return
            await asyncio.sleep(0.2)
        else:
            return


async def _start(api: Api, definitions: list[str]) -> list[str]:
    """Sagas trickle in over the whole time, keyed; their run ids, a quarter per definition."""
    runs: list[str] = []
    for number in range(SAGAS // 4):
        for definition in definitions:

            async def start(definition: str = definition, number: int = number) -> None:
                runs.extend(await api.start_many(definition, 1, key=f"saga-{number}"))

            await _again(start)
        await asyncio.sleep(KILLING_S * 0.8 / (SAGAS / 4))
    return runs


async def _cancel(api: Api, owner: asyncpg.Connection, done: asyncio.Event) -> None:
    """Cancel the runs that are there to be cancelled, each at some moment of its life."""
    stub = control_grpc.WorkflowRunControlServiceStub(api.channel)
    chance = random.Random(3)
    seen: set[str] = set()
    while not done.is_set() or len(seen) < SAGAS // 4:
        for row in await owner.fetch("select run_id::text from eec_workflow_run_start where family_slug = 'cancelled'"):
            if row["run_id"] in seen:
                continue
            seen.add(row["run_id"])
            await asyncio.sleep(chance.random() * 0.3)
            request = control.CancelRunRequest(run_id=row["run_id"], request_id="stop", reason="chaos")
            await _again(lambda request=request: stub.CancelRun(request, metadata=api.metadata, timeout=5))
        await asyncio.sleep(0.1)


async def _kill_in_turn(stack: Stack) -> None:
    begin = time.monotonic()
    restart = KILLING_S / 2
    for name in itertools.cycle(["worker0", "coordinator0", "dispatch0", "worker1", "coordinator1", "edges"]):
        if time.monotonic() - begin > KILLING_S:
            return
        await asyncio.to_thread(stack[name].kill)
        if restart and time.monotonic() - begin > restart:
            restart = 0
            await asyncio.to_thread(lambda: stack.postgres.stop(immediate=True))
            await asyncio.to_thread(stack.postgres.start)
        await asyncio.sleep(0.2)
        stack[name].start()
        await asyncio.sleep(KILL_EVERY_S - 0.2)


async def _until_unwound(owner: asyncpg.Connection, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    sql = (
        "select count(*) from eec_workflow_run_start s left join eec_workflow_run r using (tenant_id, run_id)"
        " where r.end_time is null or r.compensation_status = 'running'"
    )
    while left := await owner.fetchval(sql):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{left} sagas are not through")
        await asyncio.sleep(0.3)


async def test_killed_while_unwinding_the_till_balances() -> None:
    """Acceptance: 200 sagas, kill -9 throughout; every run ends and is unwound, and the outside agrees."""
    async with recording(Till()) as till:
        stack_context = running_stack(coordinators=2, dispatchers=1, workers=2, **FAST)
        stack = await asyncio.to_thread(stack_context.__enter__)
        try:
            owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
            async with Api(stack["edges"].target, TENANT) as api:
                definitions = [await api.publish(tree) for tree in sagas(till.url)]
                started = asyncio.Event()

                async def start() -> None:
                    await _start(api, definitions)
                    started.set()

                canceller = asyncio.create_task(_keep_cancelling(api, stack, started))
                await asyncio.gather(start(), _kill_in_turn(stack))
                await asyncio.to_thread(stack.wait_ready)
                await canceller
                await owner.close()
                owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
                await _until_unwound(owner, 300)
            statuses = await assert_whole(owner)
            assert sum(statuses.values()) == SAGAS
            assert statuses["completed"] >= SAGAS / 4
            assert statuses["failed"] >= SAGAS / 2
            assert statuses["cancelled"] >= 10, statuses
            await _assert_balanced(owner, till)
            await owner.close()
        finally:
            await asyncio.to_thread(stack_context.__exit__, None, None, None)


async def _keep_cancelling(api: Api, stack: Stack, started: asyncio.Event) -> None:
    """Cancel through restarts of the database."""
    while True:
        try:
            owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
        except (OSError, asyncpg.PostgresError):
            await asyncio.sleep(0.3)
            continue
        try:
            await _cancel(api, owner, started)
            return
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            await asyncio.sleep(0.3)
        finally:
            await owner.close(timeout=2) if not owner.is_closed() else None


async def _assert_balanced(owner: asyncpg.Connection, till: Till) -> None:
    """Per run: what was charged and reported was refunded exactly once if the run was undone, and never if it completed."""
    rows = await owner.fetch("select run_id::text, status, compensation_status from eec_workflow_run")
    reported = {
        row["charge"]: row["run_id"]
        for row in await owner.fetch(
            "select run_id::text, coalesce(output, stale_output)::jsonb -> 'body' ->> 'charge' as charge"
            " from eec_workflow_step_attempt where kind = 'step'"
        )
        if row["charge"]
    }
    compensations: Counter[str] = Counter(row["compensation_status"] for row in rows)
    for row in rows:
        run_id = row["run_id"]
        charged = {charge for charge, run in till.charges.items() if run == run_id}
        refunds = {charge: till.refunds[charge] for charge in charged if till.refunds.get(charge)}
        assert all(len(keys) == 1 for keys in refunds.values()), f"{run_id}: a charge was refunded twice"
        told = {charge for charge in charged if reported.get(charge) == run_id}
        if row["status"] == "completed":
            assert not refunds, f"{run_id} completed and was refunded"
            assert row["compensation_status"] == "done"
        elif row["compensation_status"] == "none":
            assert not charged, f"{run_id} was cancelled before it began, and something was charged"
        else:
            assert told <= set(refunds), f"{run_id} {row['status']}: a reported charge was kept"
            if row["compensation_status"] == "done":
                assert set(refunds) == charged, f"{run_id}: done, and a charge is left"
            else:
                assert row["compensation_status"] == "manual_repair", orjson.dumps(dict(row))
        # A final note is one effect per step that was reached, however often its worker died.
        reached = await owner.fetchval(
            "select count(*) from eec_workflow_compensation where run_id = $1::uuid and kind = 'finally'", run_id
        )
        assert len(till.notes[run_id]) == reached
    assert compensations["running"] == compensations["failed"] == 0, compensations
