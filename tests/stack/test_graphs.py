"""The real graphs on real processes: every task of 31 scientific workflows once, and never before its parents."""

import asyncpg
import pytest

from tests.graphs import Graph, workflow_graphs
from tests.stack.order import assert_once_in_order
from tests.support.api import Api

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]


async def test_all_real_graphs_run_to_their_end(api: Api, owner: asyncpg.Connection) -> None:
    """Acceptance: convert, publish, run with noop:noop; each step exactly one attempt, none before its parents, run `completed`."""
    graphs: list[Graph] = list(workflow_graphs())
    assert len(graphs) == 31
    runs = {}
    for graph in graphs:
        definition_id = await api.publish(graph.definition())
        (runs[graph.name],) = await api.start_many(definition_id, 1)
    await api.until_ended(120)
    statuses = await owner.fetch(
        "select run_id::text, status from eec_workflow_run where run_id = any($1::uuid[])", list(runs.values())
    )
    assert {row["status"] for row in statuses} == {"completed"}
    assert len(statuses) == 31
    for graph in graphs:
        await assert_once_in_order(owner, runs[graph.name], graph.parents())
