"""Where a run came from and where it went on: successors, reset runs, and GetRun at the end of a chain (rulings C5, C6)."""

from typing import Any

import asyncpg
import pytest

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.db.ids import new_id
from ductord.reads import runs
from tests.coordinator.conftest import Ticker
from tests.support.books import TENANT, Books
from tests.support.edges import Catalogue, Edges, as_tenant, refusal

META = as_tenant(TENANT)


async def _get(edges: Edges, run_id: str, *, tenant: str = TENANT, follow: bool = False) -> run_pb2.RunDetail:
    request = reads.GetRunRequest(run_id=run_id, follow_successors=follow)
    return (await edges.reads.GetRun(request, metadata=as_tenant(tenant), timeout=60)).data


async def _continued(owner: asyncpg.Connection, first: str, generations: int) -> list[str]:
    """The rows that `generations` continuations of the run leave, which is still open and becomes the last; all run ids, in order."""
    chain = [first, *(new_id() for _ in range(generations))]
    await owner.execute(
        "insert into eec_workflow_run_start (tenant_id, run_id, definition_id, version_id, version, family_slug, given_definition_id, root_run_id,"
        " journey_id, continued_from_run_id)"
        " select s.tenant_id, c.next, s.definition_id, s.version_id, s.version, s.family_slug, s.given_definition_id, c.next, s.run_id, c.this"
        " from eec_workflow_run_start s, unnest($2::uuid[], $3::uuid[]) as c(this, next) where s.run_id = $1",
        first, chain[:-1], chain[1:],
    )  # fmt: skip
    await owner.execute(
        "insert into eec_workflow_run (tenant_id, run_id, status, record_version, version_id, format_version, engine_level, start_time, update_time)"
        " select r.tenant_id, c.run_id, r.status, 1, r.version_id, 1, 1, now(), now() from eec_workflow_run r, unnest($2::uuid[]) as c(run_id)"
        " where r.run_id = $1",
        first, chain[1:],
    )  # fmt: skip
    await owner.execute(
        "update eec_workflow_run r set status = 'terminated', end_time = now(), close_reason = 'continued_as_new', continued_to_run_id = c.next"
        " from unnest($1::uuid[], $2::uuid[]) as c(this, next) where r.run_id = c.this",
        chain[:-1], chain[1:],
    )  # fmt: skip
    return chain


async def test_a_chain_of_a_thousand_generations_is_followed_c6(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """C6: from any run of the chain to its last; without being asked to, the run that was named is read."""
    definition_id = await catalogue.published()
    first = (await edges.start(definition_id)).run_id
    await ticker.drain()
    chain = await _continued(owner, first, 1_000)
    for named in (chain[0], chain[500], chain[999], chain[1000]):
        last = await _get(edges, named, follow=True)
        assert last.summary.run_id == chain[1000]
        assert last.summary.status == run_pb2.RUN_STATUS_RUNNING
    source = (await _get(edges, first)).summary
    assert (source.run_id, source.status, source.close_reason) == (
        first,
        run_pb2.RUN_STATUS_TERMINATED,
        "continued_as_new",
    )
    assert (source.continued_from_run_id, source.continued_to_run_id) == ("", chain[1])
    middle = (await _get(edges, chain[7])).summary
    assert (middle.continued_from_run_id, middle.continued_to_run_id) == (chain[6], chain[8])
    assert (middle.journey_id, middle.root_run_id) == (first, chain[7])
    assert (await refusal(_get(edges, first, tenant="other", follow=True))).reason == "RUN_NOT_FOUND"


async def test_a_longer_chain_is_followed_in_stretches(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call goes so far and no further; its answer names the successor to go on from."""
    monkeypatch.setattr(runs, "MAX_GENERATIONS", 10)
    definition_id = await catalogue.published()
    first = (await edges.start(definition_id)).run_id
    await ticker.drain()
    chain = await _continued(owner, first, 25)
    met = [first]
    while following := (await _get(edges, met[-1], follow=True)).summary.continued_to_run_id:
        met.append(following)
    assert met == [chain[0], chain[11], chain[22]]


async def test_a_reset_run_names_its_source(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """C5: the source and the transition after which the new run took over, in GetRun and in lists."""
    definition_id = await catalogue.published()
    source = (await edges.start(definition_id)).run_id
    run_id = (await edges.start(definition_id)).run_id
    await owner.execute(
        "update eec_workflow_run_start set reset_from_run_id = $1, reset_from_seq = 3 where run_id = $2", source, run_id
    )
    summary = (await _get(edges, run_id)).summary
    assert (summary.reset_from_run_id, summary.reset_from_transition_seq) == (source, 3)
    listed = await edges.reads.ListRuns(reads.ListRunsRequest(), metadata=META)
    assert [(r.run_id, r.reset_from_run_id) for r in listed.data] == [(run_id, source), (source, "")]


async def test_runs_by_where_their_compensation_stands(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """C7: `compensation_status` filters every list; a run that nobody has taken up owes nothing."""
    definition_id = await catalogue.published()
    by_status: dict[Any, set[str]] = {}
    for word in ("none", "running", "done", "failed", "manual_repair"):
        started = [(await edges.start(definition_id, subject_type="k", subject_id=word)).run_id for _ in range(2)]
        await ticker.drain()
        await books.report(outcome="failed", code="NOT_FOUND")
        await ticker.drain()
        await owner.execute(
            "update eec_workflow_run set compensation_status = $1 where run_id = any($2)", word, started
        )
        by_status[run_pb2.CompensationStatus.Value(f"COMPENSATION_STATUS_{word.upper()}")] = set(started)
    pending = (await edges.start(definition_id)).run_id
    by_status[run_pb2.COMPENSATION_STATUS_NONE].add(pending)

    async def ids(**filters: Any) -> set[str]:
        found = (await edges.reads.ListRuns(reads.ListRunsRequest(**filters), metadata=META)).data
        return {run.run_id for run in found}

    for status, expected in by_status.items():
        assert await ids(compensation_status=status) == expected
        assert await ids(compensation_status=status, workflow_type="chain") == expected
        assert await ids(compensation_status=status, status=run_pb2.RUN_STATUS_FAILED) == expected - {pending}
        assert await ids(compensation_status=status, active_only=True) == expected & {pending}
        assert await ids(compensation_status=status, status=run_pb2.RUN_STATUS_PENDING) == expected & {pending}
        (shown,) = {(await _get(edges, run_id)).summary.compensation_status for run_id in expected}
        assert shown == status
