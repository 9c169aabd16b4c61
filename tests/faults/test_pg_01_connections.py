"""PG-01: backends are terminated, the server turns read-only, stops and starts again while runs go. All finish, each effect once, nobody restarts anything."""

import asyncio
import os
import random

import asyncpg
import pytest

from tests.faults.load import assert_each_effect_once, backends, effects, metric, probed, trickle, until
from tests.support.api import Api
from tests.support.recorder import Recorder
from tests.support.stack import Member, Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300), pytest.mark.usefixtures("untouched")]

LONG = os.environ.get("DUCTOR_CHAOS") == "long"
RUNS = 200
READ_ONLY_S = 15 if LONG else 4
WRITERS = ("edges", "coordinator0", "coordinator1", "dispatch0", "dispatch1")


async def _refused(member: Member) -> bool:
    alive, ready = await asyncio.gather(probed(member, "/livez"), probed(member, "/readyz"))
    assert alive[0] == 200, alive
    return ready[0] == 503


async def _terminate_in_a_loop(owner: asyncpg.Connection, seconds: float) -> int:
    """Terminate backends one by one, those first that are inside of a transaction, for so long and until twenty of those were hit; how many there were."""
    hit = 0
    async with asyncio.timeout(seconds + 60):
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end or hit <= 20:
            rows = await owner.fetch(
                "select pid, coalesce(state <> 'idle', false) as busy, pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name in ('ductor-coordinator', 'ductor-dispatch', 'ductor-trigger')"
                " order by 2 desc, random() limit 1"
            )
            hit += sum(row["busy"] for row in rows)
            await asyncio.sleep(random.uniform(0.01, 0.06))
    return hit


async def test_pg_01_terminated_backends(stack: Stack, api: Api, owner: asyncpg.Connection, recorder: Recorder) -> None:
    """PG-01: pg_terminate_backend on coordinator, dispatch and trigger in a loop while 200 runs go."""
    definition_id = await api.publish(effects("killed", recorder))
    run_ids, hit = await asyncio.gather(trickle(api, definition_id, RUNS, 5), _terminate_in_a_loop(owner, 5))
    await api.until_ended()
    assert hit > 20, "the loop hit transactions"
    await assert_each_effect_once(stack.postgres.dsn(), api, run_ids, recorder)
    assert await metric(stack, "ductor_lost_wakeups_total") == 0


@pytest.mark.chaos
async def test_pg_01_a_server_that_turned_read_only(
    stack: Stack, api: Api, owner: asyncpg.Connection, recorder: Recorder
) -> None:
    """PG-01: SQLSTATE 25006 for a while, as after a fail-over. No writer keeps a connection that cannot write; none calls itself ready meanwhile."""
    definition_id = await api.publish(effects("readonly", recorder))
    started = asyncio.create_task(trickle(api, definition_id, 100, 8))
    await until(lambda: api.active())
    before = await backends(owner, "ductor-coordinator") | await backends(owner, "ductor-dispatch")
    await owner.execute("alter system set default_transaction_read_only = on")
    await owner.execute("select pg_reload_conf()")
    try:
        for name in WRITERS:
            await until(lambda name=name: _refused(stack[name]))  # type: ignore[misc]
        await asyncio.wait([started], timeout=READ_ONLY_S)
        assert not started.done(), "nothing is accepted by a server that takes no writes"
    finally:
        await owner.execute("alter system reset default_transaction_read_only")
        await owner.execute("select pg_reload_conf()")
    run_ids = await started
    await api.until_ended()
    after = await backends(owner, "ductor-coordinator") | await backends(owner, "ductor-dispatch")
    assert not before & after
    await assert_each_effect_once(stack.postgres.dsn(), api, run_ids, recorder)


@pytest.mark.parametrize("immediate", [False, True], ids=["fast", "immediate"])
async def test_pg_01_a_restart_of_the_server(stack: Stack, api: Api, recorder: Recorder, immediate: bool) -> None:
    """PG-01: Postgres is stopped, politely or as by a crash, and started again during the runs."""
    definition_id = await api.publish(effects("restarted", recorder))
    started = asyncio.create_task(trickle(api, definition_id, RUNS // 2, 2))
    await until(lambda: api.active())
    await asyncio.to_thread(lambda: stack.postgres.stop(immediate=immediate))
    await asyncio.to_thread(stack.postgres.start)
    run_ids = await started
    await api.until_ended()
    await assert_each_effect_once(stack.postgres.dsn(), api, run_ids, recorder)
