"""KB-02: liveness never asks the database, readiness does; a loop that no longer turns is dead."""

import asyncio

import pytest

from ductord.rpc.config import Settings
from ductord.rpc.host import Scope, Service, hosting
from tests.faults.load import probed, until
from tests.support.api import Api, chain
from tests.support.stack import Member, Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]

LIVENESS_MS = 3_000
WITH_DATABASE = ("edges", "coordinator0", "coordinator1", "dispatch0", "dispatch1")


async def test_kb_02_postgres_is_away(stack: Stack, api: Api) -> None:
    """KB-02: without Postgres every process lives and says that it is not ready; with it again all are ready, nobody was restarted, and runs run.
    Who is told to stop meanwhile stops (KB-01), and who is started meanwhile waits for the database.
    """
    definition_id = await api.publish(chain("probed", 1))
    before = {name: member.pid for name, member in stack.members.items()}
    await asyncio.to_thread(stack.postgres.stop)
    try:
        for name in WITH_DATABASE:
            await until(lambda member=stack[name]: _readiness(member, 503))  # type: ignore[misc]
        living = await asyncio.gather(*(probed(member, "/livez") for member in stack.members.values()))
        assert living == [(200, "ok\n")] * len(stack.members)
        names = await asyncio.gather(*(probed(stack[name], "/readyz") for name in WITH_DATABASE))
        assert [text for _, text in names] == [
            "definition.database\ntrigger.database\nrun_control.database\nsignals.database\nreads.database\nadmin.database\n",
            *["coordinator.database\n"] * 2,
            *["dispatch.database\n"] * 2,
        ]
        for name in ("coordinator1", "dispatch1"):
            assert await asyncio.to_thread(stack[name].terminate, 40) == 0, "it is killed when it takes longer"
            stack[name].start()
    finally:
        await asyncio.to_thread(stack.postgres.start)
    for member in stack.members.values():
        await until(lambda member=member: _readiness(member, 200))  # type: ignore[misc]
    after = {name: member.pid for name, member in stack.members.items()}
    assert {name for name in after if after[name] != before[name]} == {"coordinator1", "dispatch1"}
    await api.start_many(definition_id, 10)
    await api.until_ended()


async def _readiness(member: Member, status: int) -> bool:
    return (await probed(member, "/readyz"))[0] == status


async def test_kb_02_a_blocked_loop_is_dead() -> None:
    """KB-02: a turn that never comes back fails /livez after `DUCTOR_LIVENESS_MS`, by name; the loop beside it does not."""

    async def start(scope: Scope) -> None:
        scope.loop("blocked", asyncio.Event().wait, interval_ms=50)  # a turn that never ends
        scope.loop("turning", _turn, interval_ms=50)

    async def _turn() -> None:
        return None

    settings = Settings(grpc_address="127.0.0.1:0", http_address="127.0.0.1:0", liveness_ms=LIVENESS_MS, drain_ms=100)
    clock = asyncio.get_running_loop().time
    begin = clock()
    async with hosting([Service(name="trial", start=start)], settings) as host:
        assert host.http_address is not None
        port = host.http_address.port
        assert await probed(port, "/livez") == (200, "ok\n")
        await until(lambda: _dead(port))
        assert clock() - begin > LIVENESS_MS / 1000
        assert (await probed(port, "/readyz"))[0] == 503


async def _dead(port: int) -> bool:
    return await probed(port, "/livez") == (503, "trial.blocked\n")
