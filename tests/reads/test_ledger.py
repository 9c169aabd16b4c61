"""The compensation ledger: one run's in GetRun, every run's in ListCompensations (ruling C7)."""

from typing import Any

import asyncpg

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.db.ids import new_id
from tests.coordinator.conftest import Ticker
from tests.support.books import TENANT
from tests.support.edges import Catalogue, Edges, as_tenant, refusal

META = as_tenant(TENANT)
WORDS = ("owed", "running", "done", "failed", "ignored", "manual_repair")


async def _list(edges: Edges, *, tenant: str = TENANT, **filters: Any) -> reads.ListCompensationsResponse:
    request = reads.ListCompensationsRequest(**filters)
    answer = await edges.reads.ListCompensations(request, metadata=as_tenant(tenant), timeout=60)
    assert answer.ByteSize() < 3.1 * (1 << 20)
    return answer


async def _everything(edges: Edges, size: int, **filters: Any) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    token = ""
    while True:
        page = await _list(edges, page_size=size, page_token=token, **filters)
        assert 1 <= len(page.data) <= size
        found += [(entry.run_id, entry.position) for entry in page.data]
        if not (token := page.next_page_token):
            return found


async def _owe(owner: asyncpg.Connection, run_id: str, count: int, *, family: str = "chain", message: str = "") -> None:
    """A ledger of `count` entries, one status after the other; changed at the same instant three by three."""
    await owner.execute(
        "insert into eec_workflow_compensation (tenant_id, run_id, position, family_slug, step_ref, kind, block, number, action, status, attempt,"
        " source_attempt, source_run_id, error_code, error_message, create_time, update_time)"
        " select s.tenant_id, s.run_id, n, $3, 's' || n, 'compensation', 'on_failure', 0, 'core:echo', ($5::text[])[n % 6 + 1], n, 1,"
        " case when n = 0 then $6::uuid end, case when n % 6 = 3 then 'X' else '' end, $4, s.create_time, s.create_time + (n / 3) * interval '1 s'"
        " from eec_workflow_run_start s, generate_series(0, $2 - 1) n where s.run_id = $1",
        run_id, count, family, message, list(WORDS), new_id(),
    )  # fmt: skip
    await owner.execute("update eec_workflow_run set compensation_status = 'running' where run_id = $1", run_id)


async def _newest_first(owner: asyncpg.Connection, condition: str = "true") -> list[tuple[str, int]]:
    rows = await owner.fetch(
        f"select run_id::text, position from eec_workflow_compensation where {condition} order by update_time desc, run_id desc, position desc"
    )
    return [(row[0], row[1]) for row in rows]


async def test_pages_over_entries_that_changed_together(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """Keyset paging over every filter: each entry once, the one that changed last first, whatever the size of a page."""
    definition_id = await catalogue.published()
    runs = [(await edges.start(definition_id)).run_id for _ in range(3)]
    await ticker.drain()
    for number, run_id in enumerate(runs):
        await _owe(owner, run_id, 20, family="orders" if number else "leads")
    asked: tuple[tuple[dict[str, Any], str], ...] = (
        ({}, "true"),
        ({"run_id": runs[1]}, f"run_id = '{runs[1]}'"),
        ({"workflow_type": "orders"}, "family_slug = 'orders'"),
        ({"workflow_type": "leads", "status": run_pb2.COMPENSATION_ENTRY_STATUS_OWED}, "family_slug = 'leads' and status = 'owed'"),
        ({"run_id": runs[0], "workflow_type": "leads"}, f"run_id = '{runs[0]}'"),
        *(
            ({"status": run_pb2.CompensationEntryStatus.Value(f"COMPENSATION_ENTRY_STATUS_{word.upper()}")}, f"status = '{word}'")
            for word in WORDS
        ),
    )  # fmt: skip
    for filters, condition in asked:
        expected = await _newest_first(owner, condition)
        assert expected
        for size in (1, 7, len(expected), 1000):
            assert await _everything(edges, size, **filters) == expected
    assert not (await _list(edges, run_id=runs[0], workflow_type="orders")).data
    assert not (await _list(edges, tenant="other")).data
    assert (await refusal(_list(edges, tenant="other", run_id=runs[0]))).reason == "RUN_NOT_FOUND"
    assert (await refusal(_list(edges, run_id="nonsense"))).reason == "RUN_NOT_FOUND"
    token = (await _list(edges, page_size=1)).next_page_token
    assert (await refusal(_list(edges, workflow_type="orders", page_token=token))).reason == "PAGE_TOKEN_INVALID"


async def test_a_run_shows_its_ledger_in_the_order_of_its_work(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """What the action undoes, what became of it and why; the same entries as in the list."""
    definition_id = await catalogue.published()
    run_id = (await edges.start(definition_id)).run_id
    await ticker.drain()
    request = reads.GetRunRequest(run_id=run_id)
    assert not (await edges.reads.GetRun(request, metadata=META)).data.compensation
    await _owe(owner, run_id, 6, message="the bank says no")
    run = (await edges.reads.GetRun(request, metadata=META)).data
    assert run.summary.compensation_status == run_pb2.COMPENSATION_STATUS_RUNNING
    assert not run.compensation_truncated
    assert [entry.position for entry in run.compensation] == list(range(6))
    first, failed = run.compensation[0], run.compensation[3]
    assert (first.step_ref, first.action, first.status) == (
        "s0",
        "core:echo",
        run_pb2.COMPENSATION_ENTRY_STATUS_OWED,
    )
    assert (first.block, first.number, first.source_attempt) == (run_pb2.COMPENSATION_BLOCK_ON_FAILURE, 0, 1)
    assert first.source_run_id
    assert not first.HasField("error")
    assert not first.HasField("item_index")
    assert (failed.error.code, failed.error.message, failed.attempt) == ("X", "the bank says no", 3)
    assert failed.source_run_id == ""
    listed = (await _list(edges, run_id=run_id)).data
    assert sorted(listed, key=lambda entry: entry.position) == list(run.compensation)


async def test_pl06_a_ledger_of_long_errors(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """PL-06: GetRun leaves the end out and says so; ListCompensations has all of it, in replies under the limit."""
    definition_id = await catalogue.published()
    run_id = (await edges.start(definition_id)).run_id
    await ticker.drain()
    await _owe(owner, run_id, 6_000, message="m" * 4_000)
    answer = await edges.reads.GetRun(reads.GetRunRequest(run_id=run_id), metadata=META)
    assert answer.ByteSize() < 3.1 * (1 << 20)
    run = answer.data
    assert run.compensation_truncated
    assert [entry.position for entry in run.compensation] == list(range(len(run.compensation)))
    assert len(await _everything(edges, 1000, run_id=run_id)) == 6_000
