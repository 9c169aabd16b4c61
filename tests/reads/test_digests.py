"""Runs that digest, as clients see them: who leads, and where the event of a merged run has gone (ruling E5)."""

import asyncpg

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.coordinator.sweep import watch
from tests.coordinator.conftest import Ticker
from tests.coordinator.waiters import waiting
from tests.support.books import TENANT
from tests.support.edges import Catalogue, Edges, as_tenant

META = as_tenant(TENANT)


async def _run(edges: Edges, run_id: str) -> run_pb2.RunDetail:
    return (await edges.reads.GetRun(reads.GetRunRequest(run_id=run_id), metadata=META, timeout=60)).data


async def test_a_merged_run_names_the_run_that_its_event_went_on_with(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """E5: while they wait both name the leader; afterwards the merged one says what it was merged into, in GetRun, lists and the timeline."""
    manifest = waiting('step d type=digest digest={"digest_key": "1", "window_ms": 5000}')
    definition_id = await catalogue.published(manifest)
    leader = (await edges.start(definition_id)).run_id
    await ticker.drain()
    other = (await edges.start(definition_id)).run_id
    await ticker.drain()
    for run_id in (leader, other):
        (node,) = (await _run(edges, run_id)).nodes
        assert node.waiting.type == run_pb2.WAITING_TYPE_DIGEST
        assert node.waiting.digest_leader_run_id == leader
        assert node.waiting.HasField("due_time") is (run_id == leader)
    await owner.execute("update eec_workflow_timer set due_time = eec_now() - interval '1 second'")
    await watch(ticker.connection)
    await ticker.drain()
    merged = (await _run(edges, other)).summary
    assert (merged.status, merged.merged_into_run_id) == (run_pb2.RUN_STATUS_MERGED, leader)
    assert (await _run(edges, leader)).summary.merged_into_run_id == ""
    listed = await edges.reads.ListRuns(reads.ListRunsRequest(), metadata=META)
    assert {r.run_id: (r.status, r.merged_into_run_id) for r in listed.data} == {
        leader: (run_pb2.RUN_STATUS_COMPLETED, ""),
        other: (run_pb2.RUN_STATUS_MERGED, leader),
    }
    timeline = await edges.reads.GetRunTimeline(reads.GetRunTimelineRequest(run_id=other), metadata=META)
    assert timeline.data[-1].type == "run_ended"
    assert timeline.data[-1].detail["merged_into_run_id"] == leader
