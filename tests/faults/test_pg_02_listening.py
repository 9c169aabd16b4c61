"""PG-02: NOTIFY is a hint. Its connections are killed, or go silent and stay open; runs complete by polling, and nobody is kept from stopping."""

import asyncio
import os
import signal

import asyncpg
import pytest

from tests.faults.load import assert_each_effect_once, backends, effects, probed, trickle, until
from tests.faults.wire import Wire
from tests.support.api import Api, chain
from tests.support.recorder import Recorder
from tests.support.stack import Member, Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300), pytest.mark.usefixtures("untouched")]

LISTENERS = 7
"""edges (for checkpoints, for operations, and for those who watch runs), two coordinators, two dispatchers."""
_END_LISTENERS = "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'ductor-listen'"
_FRESH = (
    "select count(*) from pg_stat_activity where application_name = 'ductor-listen' and state = 'idle' and query like 'select pg_notify%'"
    " and state_change between clock_timestamp() - interval '5 seconds' and clock_timestamp() - interval '0.3 seconds'"
)
LIVENESS_S = 60
LONG = os.environ.get("DUCTOR_CHAOS") == "long"
SERVICES = [
    f"ductor-{name}"
    for name in (
        "listen",
        "definition",
        "trigger",
        "run_control",
        "signals",
        "reads",
        "admin",
        "coordinator",
        "dispatch",
    )
]


async def test_pg_02_killed_listeners(stack: Stack, api: Api, owner: asyncpg.Connection, recorder: Recorder) -> None:
    """PG-02: every LISTEN backend is terminated again and again during 50 runs, and each is replaced."""
    await until(lambda: _listening(owner, LISTENERS))
    seen = await backends(owner, "ductor-listen")
    definition_id = await api.publish(effects("unheard", recorder))
    started = asyncio.create_task(trickle(api, definition_id, 50, 2))
    while not started.done():
        await owner.execute(_END_LISTENERS)
        await asyncio.wait([started], timeout=0.1)
    await api.until_ended()
    await assert_each_effect_once(stack.postgres.dsn(), api, started.result(), recorder)
    await until(lambda: _listening(owner, LISTENERS))
    assert not seen & await backends(owner, "ductor-listen")


async def _listening(owner: asyncpg.Connection, count: int) -> bool:
    return len(await backends(owner, "ductor-listen")) == count


async def test_pg_02_listeners_in_a_black_hole(stack: Stack, api: Api, owner: asyncpg.Connection, wire: Wire) -> None:
    """PG-02: every listener's socket is open and silent. A run of two steps is there within a few poll intervals, long before anybody notices."""
    definition_id = await api.publish(chain("silent", 2))
    await until(lambda: _listening(owner, LISTENERS))
    await owner.execute(_END_LISTENERS)  # who has just heard itself asks itself again after a while only

    async def fresh() -> bool:
        return bool(await owner.fetchval(_FRESH) == LISTENERS)

    await until(fresh)
    wire.silent = frozenset({"ductor-listen"})
    opened = wire.opened["ductor-listen"]
    await api.start_many(definition_id, 20)
    await api.until_ended()
    # Start, and per step the task and its report: each is found by a poll at the latest, 2.5 s in all; who listens notices a silence after 15 s and more.
    assert wire.opened["ductor-listen"] == opened, "nobody had noticed yet"


@pytest.mark.chaos
@pytest.mark.skipif(not LONG, reason="takes more than a minute: make chaos")
async def test_pg_02_a_black_hole_restarts_nothing(stack: Stack, wire: Wire) -> None:
    """PG-02, KB-02: all sockets of every process are black holes for longer than a loop's turn may hang in one. No probe of liveness fails; then all go on."""
    wire.silent = frozenset(SERVICES)
    clock = asyncio.get_running_loop().time
    end = clock() + LIVENESS_S + 10
    while clock() < end:
        assert {await probed(stack[name], "/livez") for name in stack.members} == {(200, "ok\n")}
        await asyncio.sleep(0.25)
    wire.calm()
    for member in stack.members.values():
        await until(lambda member=member: _readiness(member, 200))  # type: ignore[misc]


@pytest.mark.chaos
@pytest.mark.skipif(not LONG, reason="takes a quarter of a minute: make chaos")
async def test_pg_02_a_stop_does_not_wait_for_a_black_hole(stack: Stack, wire: Wire) -> None:
    """PG-02: a coordinator and a dispatcher all of whose sockets are black holes end within their time, with code 0."""
    for name in ("coordinator", "dispatch"):
        stack.add(f"doomed_{name}", [name], http=True, DUCTOR_DRAIN_MS="1000")
    doomed = [stack.members.pop(f"doomed_{name}") for name in ("coordinator", "dispatch")]
    try:
        await asyncio.gather(*(asyncio.to_thread(member.wait_ready) for member in doomed))
        wire.silent = frozenset(SERVICES)
        for member in doomed:  # their loops are in it by then
            await until(lambda member=member: _readiness(member, 503))  # type: ignore[misc]
        clock = asyncio.get_running_loop().time
        begin = clock()
        codes = await asyncio.gather(*(asyncio.to_thread(_ended, member) for member in doomed))
        assert codes == [0, 0]
        assert clock() - begin < 30
    finally:
        for member in doomed:
            if member.alive:
                member.kill()


async def _readiness(member: Member, status: int) -> bool:
    return (await probed(member, "/readyz"))[0] == status


def _ended(member: Member) -> int:
    member.signal(signal.SIGTERM)
    return member.terminate(40)
