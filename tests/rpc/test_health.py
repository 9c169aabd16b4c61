"""Alive means that the loops turn, ready that it can serve: on a real Postgres that goes away and comes back (KB-02)."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from ductor.workflow.v1 import workflow_trigger_service_pb2 as trigger_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2_grpc as trigger_grpc
from ductord.db.embedded import EmbeddedPostgres
from ductord.db.outage import answers, patient, refusal_of
from ductord.db.pool import open_pool
from ductord.rpc.channels import open_channel, outgoing
from ductord.rpc.config import Settings
from ductord.rpc.health import Health
from ductord.rpc.host import Host, Scope, Service, hosting
from tests.rpc.echo import loopback
from tests.rpc.echo import refusal_of as refusal_of_call
from tests.rpc.test_host import get

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
RPC = "ductor.workflow.v1.WorkflowTriggerService"


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedPostgres]:
    """A server that a test may stop."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-test-"))
    os.chmod(folder, 0o711)
    server = EmbeddedPostgres(folder, settings={"fsync": "off"})
    server.start()
    try:
        yield server
    finally:
        server.stop(immediate=True)
        shutil.rmtree(folder, ignore_errors=True)


class Asks(trigger_grpc.WorkflowTriggerServiceServicer):
    """Answers with what the database says."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool

    async def TriggerWorkflow(self, request: Any, context: Any) -> trigger_pb2.TriggerWorkflowResponse:  # noqa: N802
        return trigger_pb2.TriggerWorkflowResponse(run_id=str(await self._pool.fetchval("select 7")))


class Subject:
    """A service with a pool and a loop that asks it, as all of ours are."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.turned = asyncio.Event()
        self.block: asyncio.Event | None = None
        self.service = Service(name="trigger", start=self.start)

    async def start(self, scope: Scope) -> None:
        pool = await patient(
            lambda: open_pool(self.dsn, "trigger", set_role=False), scope.settings.database_start_wait_ms
        )
        scope.at_stop(pool.close)
        scope.translate(refusal_of)
        scope.ready_when("database", lambda: answers(pool))
        scope.rpcs(trigger_grpc.add_WorkflowTriggerServiceServicer_to_server, Asks(pool))  # type: ignore[abstract]

        async def turn() -> None:
            if self.block is not None:
                await self.block.wait()
            await pool.fetchval("select 1")
            self.turned.set()

        scope.loop("work", turn, interval_ms=20)


@pytest.fixture
async def subject(server: EmbeddedPostgres) -> Subject:
    return Subject(server.dsn("postgres"))


@pytest.fixture
async def host(subject: Subject) -> AsyncIterator[Host]:
    """The subject, running; a loop is dead after 2 s."""
    async with hosting([subject.service], loopback(liveness_ms=2_000)) as host:
        yield host
        if subject.block:
            subject.block.set()


async def status(host: Host, name: str = RPC) -> int:
    """What a probe of Kubernetes gets."""
    async with grpc.aio.insecure_channel(host.grpc_address.reachable) as channel:
        return int(
            (await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(service=name))).status
        )


async def until(wanted: dict[str, int], host: Host) -> None:
    """Wait until the two probes answer so."""
    async with asyncio.timeout(60):
        while {path: (await get(host.http_address, path)).status_code for path in wanted} != wanted:  # noqa: ASYNC110  # a probe polls
            await asyncio.sleep(0.02)


async def test_kb_02_a_database_that_goes_away_makes_it_unready_and_not_dead(
    server: EmbeddedPostgres, subject: Subject, host: Host
) -> None:
    assert await status(host) == SERVING
    server.stop(immediate=True)
    try:
        await until({"/livez": 200, "/readyz": 503}, host)
        assert await status(host) == NOT_SERVING
        async with open_channel(host.grpc_address.reachable, loopback()) as channel:
            stub = trigger_grpc.WorkflowTriggerServiceStub(channel)
            refusal = await refusal_of_call(
                lambda: stub.TriggerWorkflow(trigger_pb2.TriggerWorkflowRequest(), metadata=outgoing(tenant_id="a"))
            )
            assert (refusal.code, refusal.reason) == ("UNAVAILABLE", "DATABASE_UNAVAILABLE")
            assert refusal.retry_after_ms
        clock = asyncio.get_running_loop().time
        last = begin = clock()
        while last < begin + 2.5:  # longer than a loop may be silent
            livez = (await get(host.http_address, "/livez")).status_code
            await asyncio.sleep(0.03)
            before, last = last, clock()
            assert livez == 200 or last - before > 0.5, (
                "what stands still for long is not alive: this process and its probes are one"
            )
    finally:
        server.start()
    subject.turned.clear()
    await until({"/livez": 200, "/readyz": 200}, host)
    async with asyncio.timeout(60):
        await subject.turned.wait()


async def test_kb_02_a_loop_that_does_not_turn_is_dead_and_unready(subject: Subject, host: Host) -> None:
    subject.block = asyncio.Event()
    await until({"/livez": 503, "/readyz": 503}, host)
    assert (await get(host.http_address, "/livez")).text == "trigger.work\n"
    assert await status(host) == NOT_SERVING
    subject.block.set()
    subject.block = None
    await until({"/livez": 200, "/readyz": 200}, host)


async def test_health_is_told_per_service_and_for_all(host: Host) -> None:
    for name in ("", "live", "trigger", RPC):
        assert await status(host, name) == SERVING
    with pytest.raises(grpc.aio.AioRpcError) as unknown:
        await status(host, "ductor.workflow.v1.WorkflowSignalService")
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
    async with grpc.aio.insecure_channel(host.grpc_address.reachable) as channel:
        listed = await health_pb2_grpc.HealthStub(channel).List(health_pb2.HealthListRequest())
    assert set(listed.statuses) == {"", "live", "trigger", RPC}


async def test_a_watch_tells_changes(subject: Subject, host: Host) -> None:
    async with grpc.aio.insecure_channel(host.grpc_address.reachable) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        watch = stub.Watch(health_pb2.HealthCheckRequest(service=RPC))
        assert (await watch.read()).status == SERVING
        subject.block = asyncio.Event()
        async with asyncio.timeout(60):
            assert (await watch.read()).status == NOT_SERVING
        watch.cancel()
        unknown = stub.Watch(health_pb2.HealthCheckRequest(service="x"))
        assert (await unknown.read()).status == UNKNOWN
        unknown.cancel()


async def test_probes_ask_the_database_at_most_once_a_second() -> None:
    health = Health()
    health.open = True
    service = health.add("trigger")
    asked = 0

    async def check() -> None:
        nonlocal asked
        asked += 1

    service.ready_when("database", check)
    await asyncio.gather(*(health.problems() for _ in range(20)))
    assert asked == 1


async def test_a_starting_service_waits_for_its_database_and_not_for_a_wrong_name(server: EmbeddedPostgres) -> None:
    attempts: list[BaseException] = []
    server.stop(immediate=True)
    settings = Settings()

    def coming(error: BaseException) -> None:
        attempts.append(error)
        if len(attempts) == 2:
            server.start()

    pool = await patient(lambda: open_pool(server.dsn("postgres"), "trigger"), settings.database_start_wait_ms, coming)
    await pool.close()
    assert len(attempts) >= 2
    with pytest.raises(Exception, match="does not exist"):
        await patient(lambda: open_pool(server.dsn("nowhere"), "trigger"), 60_000)
