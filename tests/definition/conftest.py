"""What the tests of the definition service share: the real service on loopback over a real database, called through generated stubs.

One service per test module, a tenant of its own per test: tests cannot see each other, which is itself what row-level security promises.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import grpc
import pytest
import pytest_asyncio

from ductord.db.ids import new_id
from ductord.definition.service import SERVICE
from tests.conftest import Cluster, Database
from tests.definition.client import Definitions
from tests.support.edges import serving


@pytest.fixture(scope="module")
def module_database(postgres: Cluster) -> Iterator[Database]:
    """A database that the tests of a module share."""
    with postgres.database() as database:
        yield database


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def channel(module_database: Database) -> AsyncIterator[grpc.aio.Channel]:
    """The service of one test module."""
    async with serving(module_database, [SERVICE]) as running:
        yield running.channel


@pytest.fixture
def definitions(channel: grpc.aio.Channel) -> Definitions:
    """The service, as a tenant calls it that nobody has seen before."""
    return Definitions(channel, f"t-{new_id()}")


class Rows:
    """The rows of one tenant, seen from outside of the service."""

    def __init__(self, owner: asyncpg.Connection, tenant: str) -> None:
        self.owner = owner
        self.tenant = tenant

    async def of(self, table: str, columns: str = "t::text", order: str = "1") -> list[Any]:
        """Rows of a table in order, single columns bare."""
        found = await self.owner.fetch(
            f"select {columns} from {table} t where tenant_id = $1 order by {order}", self.tenant
        )
        return [row[0] if len(row) == 1 else tuple(row) for row in found]

    async def versions(self, columns: str) -> list[Any]:
        """The versions by number."""
        return await self.of("eec_workflow_version", columns, "definition_id, version")

    async def audit(self, columns: str) -> list[Any]:
        """The audit trail by time."""
        return await self.of("eec_workflow_audit", columns, "at, audit_id")

    async def everything(self) -> list[Any]:
        """All that the service may write."""
        tables = (
            "eec_workflow_definition",
            "eec_workflow_draft",
            "eec_workflow_version",
            "eec_workflow_audit",
            "eec_workflow_schedule",
            "eec_workflow_event_trigger",
            "eec_workflow_env_override",
        )
        return [row for table in tables for row in await self.of(table)]


@pytest_asyncio.fixture(loop_scope="module")
async def rows(module_database: Database, definitions: Definitions) -> AsyncIterator[Rows]:
    """What stands in the database for this test's tenant."""
    owner = await asyncpg.connect(module_database.owner)
    yield Rows(owner, definitions.tenant)
    await owner.close()


@pytest_asyncio.fixture(loop_scope="module")
async def nothing_written(rows: Rows, definitions: Definitions) -> AsyncIterator[str]:
    """The id of a draft of revision 2 with one version beside it; whatever the test does, no row changes."""
    definition_id = (await definitions.create()).data.id
    await definitions.publish(definition_id)
    before = await rows.everything()
    assert len(before) == 4
    yield definition_id
    assert await rows.everything() == before
