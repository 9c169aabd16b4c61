"""One durable Postgres, one wire in front of it and one stack of processes for all tests of this folder.

Every process reaches the database through the wire. `dispatch0` grants leases that outlast every fault made here, so that a lost attempt is a defect;
`dispatch1` grants short ones for the tests in which attempts are to be lost. After each test the wire passes everything again, and every process is there; with
`untouched` it is the same process as before.
"""

import asyncio
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest

from ductord.db.embedded import EmbeddedPostgres
from ductord.db.migrate import migrate
from tests.faults.wire import Wire, wired
from tests.support.api import Api
from tests.support.recorder import Recorder, recording
from tests.support.stack import Stack

FAST = {
    "DUCTOR_SWEEP_MS": "1000",
    "DUCTOR_POLL_MS": "500",
    "DUCTOR_DRAIN_MS": "3000",
    "DUCTOR_LEASE_MS": "60000",
    "DUCTOR_HTTP_ALLOW_PRIVATE": "1",
}
SHORT = {"DUCTOR_LEASE_MS": "5000", "DUCTOR_HEARTBEAT_MS": "500"}
"""Long enough that a box which stands still for some seconds costs nobody a lease."""


@pytest.fixture(scope="package")
def server() -> Iterator[EmbeddedPostgres]:
    """A migrated server with fsync on."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-faults-"))
    folder.chmod(0o711)
    server = EmbeddedPostgres(folder / "pg")
    try:
        server.start()
        asyncio.run(migrate(server.dsn("ductor")))
        yield server
    finally:
        server.stop(immediate=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="package")
def wire(server: EmbeddedPostgres) -> Iterator[Wire]:
    """What every process goes through to the database."""
    with wired(server) as wire:
        yield wire


@pytest.fixture(scope="package")
def running(server: EmbeddedPostgres, wire: Wire) -> Iterator[Stack]:
    """edges, two coordinators, two dispatchers, and a worker of the first."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-stack-"))
    stack = Stack(server, folder, {**FAST, "DUCTOR_DATABASE_URL": wire.dsn()})
    try:
        stack.add("edges", ["definition", "trigger", "run_control", "signals", "reads", "admin"], http=True)
        stack.add("coordinator0", ["coordinator"], http=True)
        stack.add("coordinator1", ["coordinator"], http=True)
        dispatch = stack.add("dispatch0", ["dispatch"], http=True)
        stack.add("dispatch1", ["dispatch"], http=True, **SHORT)
        stack.add("worker0", ["worker"], http=True, DUCTOR_DISPATCH_TARGET=dispatch.target)
        stack.wait_ready()
        yield stack
    finally:
        stack.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def stack(running: Stack, wire: Wire) -> Iterator[Stack]:
    """The stack. Afterwards the wire passes everything again, and every process is there."""
    yield running
    wire.calm()
    assert all(member.alive for member in running.members.values())


@pytest.fixture
def untouched(stack: Stack) -> Iterator[None]:
    """The processes of the stack are the same before and after: nobody restarted anything, nothing died."""
    before = {name: member.pid for name, member in stack.members.items()}
    yield
    assert {name: member.pid for name, member in stack.members.items()} == before


@pytest.fixture
async def api(stack: Stack, request: pytest.FixtureRequest) -> AsyncIterator[Api]:
    """A caller of a tenant of the test's own."""
    async with Api(stack["edges"].target, re.sub(r"\W", "_", request.node.name)[:64]) as caller:
        yield caller


@pytest.fixture
async def owner(stack: Stack) -> AsyncIterator[asyncpg.Connection]:
    """The database's owner, not through the wire."""
    connection = await asyncpg.connect(stack.postgres.dsn("ductor"), server_settings={"application_name": "owner"})
    yield connection
    await connection.close()


@pytest.fixture
async def recorder() -> AsyncIterator[Recorder]:
    """The outside, which counts every effect by its key."""
    async with recording(Recorder()) as outside:
        yield outside
