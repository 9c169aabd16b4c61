"""Chaos: mixed graphs on real processes that are killed with -9 in turn while Postgres is restarted under them. Nothing is lost, nothing is doubled.

Among them scatters of a thousand and trees of runs that are four deep.

The short variant belongs to the gate; `make chaos` (DUCTOR_CHAOS=long) runs longer and meaner. Leases are 3 s here.
"""

import asyncio
import itertools
import json
import os
import time
from typing import Any

import asyncpg
import grpc
import pytest

from tests.chaos import families
from tests.chaos.books import assert_seen, assert_whole
from tests.chaos.graphs import mixed
from tests.chaos.kin import assert_families
from tests.support.api import Api
from tests.support.recorder import Recorder, recording
from tests.support.stack import TENANT, Stack, running_stack

LONG = os.environ.get("DUCTOR_CHAOS") == "long"
KILLING_S = 240 if LONG else 45
RUNS = 2000 if LONG else 300
PER_BATCH = 10
WIDE = 10 if LONG else 2
"""Scatters of a thousand."""
TREES = 40 if LONG else 6
"""Trees of runs, four deep."""
KILL_EVERY_S = 3 if LONG else 1.5
"""A process is back within half a second."""

FAST: dict[str, Any] = {
    "DUCTOR_LEASE_MS": "3000",
    "DUCTOR_HEARTBEAT_MS": "1000",
    "DUCTOR_SWEEP_MS": "2000",
    "DUCTOR_HTTP_ALLOW_PRIVATE": "1",
    "DUCTOR_DRAIN_MS": "3000",
}

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200), pytest.mark.xdist_group("stack")]


async def _start_slowly(api: Api, definitions: list[str], wide: str, tree: str) -> None:
    """Runs trickle in over the whole time, in keyed batches that are repeated until they were accepted."""
    batches = RUNS // PER_BATCH
    for number in range(batches):
        await _start(api, definitions[number % len(definitions)], PER_BATCH, key=f"batch-{number}")
        if number % (batches // WIDE) == 1:
            items = json.dumps({"items": list(range(families.WIDTH))})
            await _start(api, wide, 1, key=f"wide-{number}", input_json=items)
        if number % (batches // TREES) == 0:
            await _start(api, tree, 1, key=f"tree-{number}")
        await asyncio.sleep(KILLING_S * 0.8 / batches)


async def _start(api: Api, definition: str, count: int, **fields: str) -> None:
    while True:
        try:
            await api.start_many(definition, count, **fields)  # type: ignore[arg-type]
        except grpc.RpcError:
            await asyncio.sleep(0.3)
        else:
            return


async def _kill_in_turn(stack: Stack) -> int:
    """kill -9 and restart, one after the other; twice in all Postgres itself is restarted, once as by a crash."""
    begin = time.monotonic()
    restarts = [KILLING_S / 3, KILLING_S * 2 / 3]
    for kills, name in enumerate(itertools.cycle(["coordinator0", "dispatch0", "worker0", "coordinator1", "worker1"])):
        if time.monotonic() - begin > KILLING_S:
            return kills
        await asyncio.to_thread(stack[name].kill)
        if restarts and time.monotonic() - begin > restarts[0]:
            restarts.pop(0)
            await asyncio.to_thread(lambda: stack.postgres.stop(immediate=len(restarts) == 1))
            await asyncio.to_thread(stack.postgres.start)
        await asyncio.sleep(0.2)
        stack[name].start()
        await asyncio.sleep(KILL_EVERY_S - 0.2)
    raise AssertionError("unreachable")


async def _assert_gathered(owner: asyncpg.Connection) -> None:
    """Every scatter of a thousand has gathered its nine hundred successes once each, and named the others (SG-03)."""
    rows = await owner.fetch(
        "select a.output::text from eec_workflow_step_attempt a join eec_workflow_run_start s using (tenant_id, run_id)"
        " where s.family_slug = 'wide' and a.step_ref = 'g'"
    )
    assert len(rows) == WIDE
    for row in rows:
        output = json.loads(row["output"])
        assert output["result_indexes"] == [n for n in range(families.WIDTH) if n % 10]
        assert len(output["result"]) == len(output["result_indexes"])
        assert sorted(output["error"], key=int) == [str(n) for n in range(0, families.WIDTH, 10)]


async def test_killed_in_turn_loses_and_doubles_nothing() -> None:
    """Acceptance: every run ends, histories fold to their rows, the outside and the books agree on every key, no run is stuck when the killing stops."""
    async with recording(Recorder()) as recorder:
        stack_context = running_stack(coordinators=2, dispatchers=1, workers=2, **FAST)
        stack = await asyncio.to_thread(stack_context.__enter__)
        try:
            async with Api(stack["edges"].target, TENANT) as api:
                definitions = [await api.publish(tree) for tree in mixed(recorder.url, seed=7)]
                wide = await api.publish(families.wide(recorder.url))
                *_, tree = [await api.publish(tree) for tree in families.trees(recorder.url)]
                _, kills = await asyncio.gather(_start_slowly(api, definitions, wide, tree), _kill_in_turn(stack))
                assert kills >= KILLING_S / KILL_EVERY_S / 2
                await asyncio.to_thread(stack.wait_ready)
                await api.until_ended(300)
            owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
            try:
                roots = "select count(*) from eec_workflow_run_start where parent_run_id is null"
                assert await owner.fetchval(roots) == RUNS + WIDE + TREES
                children = await owner.fetchval("select count(*) from eec_workflow_run_start") - RUNS - WIDE - TREES
                assert children == TREES * (families.TREE - 1), "every child was born, once"
                statuses = await assert_whole(owner)
                fans = await assert_families(owner)
                await assert_seen(owner, recorder.calls)
                await _assert_gathered(owner)
                lost = await owner.fetchval("select count(*) from eec_workflow_step_attempt where status = 'lost'")
            finally:
                await owner.close()
            assert fans == {"succeeded": WIDE + TREES * (1 + 3 + 3 + 3), "failed": TREES * 3}
            assert statuses["completed"] > RUNS / 2
            assert statuses["failed"] >= RUNS / 6 - 10, "the deliberate failures failed"
            assert set(statuses) == {"completed", "failed"}
            assert lost > 0, "the killing hit attempts"
        finally:
            await asyncio.to_thread(stack_context.__exit__, None, None, None)
