"""What reads show of the children of every story about fan-outs, against what the run has counted of them (rulings F1 to F5, C2 to C6)."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.reads.service import SERVICE as READS
from tests.conftest import Cluster, Database
from tests.scenarios.test_scenarios import STORIES
from tests.support.books import TENANT
from tests.support.edges import Edges, as_tenant, serving
from tests.support.postgres_world import Logins, PostgresWorld, logged_in, opened
from tests.support.story import play, read

pytestmark = pytest.mark.asyncio(loop_scope="module")

META = as_tenant(TENANT)
FANNING = [
    path
    for path in STORIES
    if any(f"type={kind}" in path.read_text() for kind in ("scatter", "for_each", "subworkflow"))
]


@pytest.fixture(scope="module")
def shared_database(postgres: Cluster) -> Iterator[Database]:
    """One database for all stories, emptied before each."""
    with postgres.database() as database:
        yield database


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def logins(shared_database: Database) -> AsyncIterator[Logins]:
    """Everybody's connections to it."""
    async with logged_in(shared_database) as logins:
        yield logins


@pytest_asyncio.fixture(loop_scope="module")
async def world(logins: Logins) -> PostgresWorld:
    """An empty world of rows."""
    return await opened(logins)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(shared_database: Database) -> AsyncIterator[Edges]:
    """The reads of that database."""
    async with serving(shared_database, [READS], notify=False) as edges:
        yield edges


async def _children(reader: Edges, run_id: str, ref: str) -> list[run_pb2.StepState]:
    request = reads.ListRunStepsRequest(run_id=run_id, step_ref=ref, page_size=1_000)
    return list((await reader.reads.ListRunSteps(request, metadata=META, timeout=60)).data)


@pytest.mark.parametrize("path", FANNING, ids=lambda path: path.stem)
async def test_children_are_as_they_were_counted(path: Path, world: PostgresWorld, reader: Edges) -> None:
    await play(read(path), world)
    runs = (await reader.reads.ListRuns(reads.ListRunsRequest(page_size=1_000), metadata=META, timeout=60)).data
    for run in runs:
        request = reads.ListRunStepsRequest(run_id=run.run_id, page_size=1_000)
        nodes = (await reader.reads.ListRunSteps(request, metadata=META, timeout=60)).data
        for node in nodes:
            over = node.status not in (run_pb2.NODE_STATUS_RUNNING, run_pb2.NODE_STATUS_WAITING)
            if not node.HasField("fan") or (
                over and node.fan.open
            ):  # children that were let go are shown as they are, and not counted any more
                continue
            fan = node.fan
            children = await _children(reader, run.run_id, node.step_ref)
            word = run_pb2.NodeStatus.Name
            counts = Counter(word(child.status) for child in children)
            counted = {
                "NODE_STATUS_PENDING": fan.expected - fan.begun, "NODE_STATUS_RUNNING": fan.open, "NODE_STATUS_SUCCEEDED": fan.succeeded,
                "NODE_STATUS_FAILED": fan.failed, "NODE_STATUS_CANCELLED": fan.cancelled,
            }  # fmt: skip
            assert dict(counts) == {key: count for key, count in counted.items() if count}, (node.step_ref, fan)
