"""ListRuns: every filter, alone and together; pages that neither lose nor double; tokens that go on nowhere else."""

import datetime
from typing import Any

import asyncpg
import msgspec
import pytest

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.rpc.answers import timestamp
from tests.coordinator.conftest import Ticker
from tests.support.books import TENANT, Books, chain
from tests.support.edges import Catalogue, Edges, as_tenant, refusal

Item = triggers.BatchTriggerItem
Label = common_pb2.CorrelationLabel


async def _list(edges: Edges, *, tenant: str = TENANT, **filters: Any) -> reads.ListRunsResponse:
    return await edges.reads.ListRuns(reads.ListRunsRequest(**filters), metadata=as_tenant(tenant), timeout=60)


async def _ids(edges: Edges, **filters: Any) -> list[str]:
    return [run.run_id for run in (await _list(edges, **filters)).data]


async def _pages(edges: Edges, size: int, **filters: Any) -> list[str]:
    ids: list[str] = []
    token = ""
    while True:
        page = await _list(edges, page_size=size, page_token=token, **filters)
        assert len(page.data) <= size
        ids += [run.run_id for run in page.data]
        token = page.next_page_token
        if not token:
            return ids


async def _newest_first(owner: asyncpg.Connection, condition: str = "true") -> list[str]:
    rows = await owner.fetch(f"select s.run_id::text from eec_workflow_run_start s left join eec_workflow_run r using (tenant_id, run_id)"
                             f" where {condition} order by s.create_time desc, s.run_id desc")  # fmt: skip
    return [row[0] for row in rows]


async def test_a_summary(edges: Edges, catalogue: Catalogue, ticker: Ticker) -> None:
    """Everything that a list says of a run."""
    definition_id = await catalogue.published()
    started = await edges.start(
        definition_id,
        subject_type="lead",
        subject_id="lead-1",
        correlation_labels=[Label(key="order", id="1"), Label(key="a", id="2")],
        tier=common_pb2.TIER_BULK,
    )
    answer = await _list(edges)
    (run,) = answer.data
    version_id = next(iter(catalogue.manifests))
    assert (run.run_id, run.status) == (started.run_id, run_pb2.RUN_STATUS_PENDING)
    assert (run.workflow_type, run.definition_id, run.version, run.version_id) == (
        "chain",
        definition_id,
        1,
        version_id,
    )
    assert (run.subject_type, run.subject_id, run.tier) == ("lead", "lead-1", common_pb2.TIER_BULK)
    assert (run.root_run_id, run.journey_id, run.parent_run_id, run.nesting_depth) == (run.run_id, run.run_id, "", 0)
    assert [(label.key, label.id) for label in run.correlation_labels] == [("a", "2"), ("order", "1")]
    assert run.HasField("create_time")
    assert not run.HasField("start_time")
    assert answer.metadata.request_id
    assert answer.metadata.HasField("fetched_at")
    await ticker.drain()
    (run,) = (await _list(edges)).data
    assert (run.status, run.current_step) == (run_pb2.RUN_STATUS_RUNNING, "s0")
    assert run.HasField("start_time")
    assert not run.HasField("end_time")


async def test_status_filters(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """Every status, pending included, `active_only` and `has_errors`, each by another statement, and their sums."""
    definition_id = await catalogue.published()
    completed = [(await edges.start(definition_id)).run_id for _ in range(2)]
    await ticker.drain()
    await books.report()
    await ticker.drain()
    failed = [(await edges.start(definition_id)).run_id]
    await ticker.drain()
    await books.report(outcome="failed", code="NOT_FOUND")
    await ticker.drain()
    running = [(await edges.start(definition_id)).run_id for _ in range(2)]
    await ticker.drain()
    await owner.execute("update eec_workflow_run set status = 'paused' where run_id = $1", running[1])
    paused = [running.pop()]
    pending = [(await edges.start(definition_id)).run_id for _ in range(3)]
    by_status = {
        run_pb2.RUN_STATUS_COMPLETED: completed, run_pb2.RUN_STATUS_FAILED: failed, run_pb2.RUN_STATUS_RUNNING: running,
        run_pb2.RUN_STATUS_PAUSED: paused, run_pb2.RUN_STATUS_PENDING: pending, run_pb2.RUN_STATUS_TERMINATED: [],
    }  # fmt: skip
    for status, runs in by_status.items():
        assert set(await _ids(edges, status=status)) == set(runs)
        open_ones = set() if status in (run_pb2.RUN_STATUS_COMPLETED, run_pb2.RUN_STATUS_FAILED) else set(runs)
        assert set(await _ids(edges, status=status, active_only=True)) == open_ones
    assert await _ids(edges) == await _newest_first(owner)
    assert await _ids(edges, active_only=True) == await _newest_first(owner, "r.end_time is null")
    assert await _pages(edges, 2, active_only=True) == await _newest_first(owner, "r.end_time is null")
    assert await _ids(edges, has_errors=True) == failed
    assert await _ids(edges, has_errors=False) == await _newest_first(owner, "r.has_errors is not true")
    assert await _ids(edges, has_errors=True, active_only=True) == []
    assert set(await _ids(edges, has_errors=False, active_only=True)) == {*running, *paused, *pending}
    assert await _ids(edges, has_errors=True, status=run_pb2.RUN_STATUS_PENDING) == []


async def test_filters_by_what_a_run_is(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """Family, subject, time; all that are given must match."""
    orders = await catalogue.published(msgspec.structs.replace(chain(1), family_slug="orders"), slug="orders")
    leads = await catalogue.published(msgspec.structs.replace(chain(1), family_slug="leads"), slug="leads")
    await edges.batch(orders, [Item(subject_type="lead", subject_id=f"l{i % 2}") for i in range(4)])
    await edges.batch(
        leads, [Item(subject_type="lead", subject_id="l0"), Item(subject_type="deal", subject_id="l0"), Item()]
    )
    assert await _ids(edges, workflow_type="orders") == await _newest_first(owner, "family_slug = 'orders'")
    assert await _ids(edges, subject_type="lead") == await _newest_first(owner, "subject_type = 'lead'")
    assert await _ids(edges, subject_id="l0") == await _newest_first(owner, "subject_id = 'l0'")
    assert len(await _ids(edges, workflow_type="orders", subject_type="lead", subject_id="l0")) == 2
    assert await _ids(edges, workflow_type="nobody's") == []
    first = await owner.fetchval("select min(create_time) from eec_workflow_run_start")
    last = await owner.fetchval("select max(create_time) from eec_workflow_run_start")
    assert await _ids(edges, created_after=timestamp(first)) == await _newest_first(owner, "family_slug = 'leads'")
    assert await _ids(edges, created_before=timestamp(last)) == await _newest_first(owner, "family_slug = 'orders'")
    assert await _ids(edges, created_after=timestamp(first), created_before=timestamp(last)) == []
    tomorrow = timestamp(last + datetime.timedelta(days=1))
    assert len(await _ids(edges, created_before=tomorrow, active_only=True)) == 7


async def test_labels(edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection) -> None:
    """T5: `key:id`, repeated: a run must carry them all; ids may hold colons; with status and family."""
    definition_id = await catalogue.published()
    both = [Label(key="order", id="o:1"), Label(key="ticket", id="t")]
    results = await edges.batch(
        definition_id,
        [Item(correlation_labels=both), Item(correlation_labels=both[:1]), Item(correlation_labels=both[1:]), Item()],
    )
    runs = [r.run_id for r in results]
    assert set(await _ids(edges, label=["order:o:1"])) == set(runs[:2])
    assert await _ids(edges, label=["order:o:1", "ticket:t"]) == runs[:1]
    assert await _ids(edges, label=["ticket:t", "order:o:1"]) == runs[:1]
    assert await _ids(edges, label=["order:o"]) == []
    assert await _ids(edges, label=["order:o:1"], workflow_type="other") == []
    assert set(await _ids(edges, label=["order:o:1"], status=run_pb2.RUN_STATUS_PENDING)) == set(runs[:2])
    assert await _ids(edges, label=["order:o:1"], status=run_pb2.RUN_STATUS_RUNNING) == []
    await ticker.drain()
    assert set(await _ids(edges, label=["order:o:1"], status=run_pb2.RUN_STATUS_RUNNING)) == set(runs[:2])
    assert set(await _ids(edges, label=["order:o:1"], active_only=True)) == set(runs[:2])
    for bad in ("order", ":x", "order:", ""):
        answer = await refusal(_list(edges, label=["a:b", bad]))
        assert (answer.code, answer.reason, answer.metadata["field"]) == (
            "INVALID_ARGUMENT",
            "FIELD_INVALID",
            "label[1]",
        )
    assert (await refusal(_list(edges, label=["a:b"] * 9))).reason == "BATCH_TOO_LARGE"


async def test_pages_over_equal_times(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """Keyset paging: a batch is born at one instant, and every page size lists every run once, in one order."""
    definition_id = await catalogue.published()
    for _ in range(2):
        await edges.batch(
            definition_id, [Item(correlation_labels=[Label(key="k", id="1")], subject_id="s") for _ in range(20)]
        )
    assert await owner.fetchval("select count(distinct create_time) from eec_workflow_run_start") == 2
    everything = await _newest_first(owner)
    for filters in (
        {},
        {"label": ["k:1"]},
        {"subject_id": "s"},
        {"status": run_pb2.RUN_STATUS_PENDING},
        {"active_only": True},
    ):
        for size in (1, 7, 40, 41, 1000):
            assert await _pages(edges, size, **filters) == everything
    assert len((await _list(edges)).data) == 40
    await ticker.tick(13)
    assert await _pages(edges, 3, active_only=True) == everything


async def test_page_tokens_belong_to_their_list(edges: Edges, catalogue: Catalogue) -> None:
    """TN-01: a token is refused with another filter, by another tenant, and when damaged; page sizes have bounds."""
    definition_id = await catalogue.published()
    await edges.batch(definition_id, [Item()] * 3)
    token = (await _list(edges, page_size=1, workflow_type="chain")).next_page_token
    assert (await _list(edges, page_size=2, workflow_type="chain", page_token=token)).data
    for call in (
        _list(edges, page_token=token),
        _list(edges, workflow_type="other", page_token=token),
        _list(edges, workflow_type="chain", page_token=token, tenant="other"),
        _list(edges, workflow_type="chain", page_token=token[:-2]),
        _list(edges, workflow_type="chain", page_token="x"),
    ):
        answer = await refusal(call)
        assert (answer.code, answer.reason) == ("INVALID_ARGUMENT", "PAGE_TOKEN_INVALID")
    for size in (-1, 1001):
        assert (await refusal(_list(edges, page_size=size))).metadata["field"] == "page_size"


async def test_tn01_lists_hold_ones_own_runs(edges: Edges, catalogue: Catalogue) -> None:
    """TN-01: whatever the filter, another tenant's runs are not there."""
    definition_id = await catalogue.published()
    label = [Label(key="k", id="1")]
    run = await edges.start(definition_id, subject_type="lead", subject_id="s", correlation_labels=label)
    for filters in (
        {}, {"workflow_type": "chain"}, {"subject_type": "lead"}, {"subject_id": "s"}, {"label": ["k:1"]}, {"active_only": True},
        {"status": run_pb2.RUN_STATUS_PENDING}, {"has_errors": False},
    ):  # fmt: skip
        assert await _ids(edges, **filters) == [run.run_id]
        assert await _ids(edges, tenant="other", **filters) == []


async def test_what_a_list_may_not_say(edges: Edges) -> None:
    """A status that is none, a time that is none, a NUL: a coded error that names the field."""
    wrong = timestamp(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
    wrong.nanos = -1
    for filters, field in (
        ({"status": 99}, "status"),
        ({"created_after": wrong}, "created_after"),
        ({"workflow_type": "a\0"}, "workflow_type"),
    ):
        answer = await refusal(_list(edges, **filters))
        assert (answer.code, answer.metadata["field"]) == ("INVALID_ARGUMENT", field)


@pytest.mark.parametrize("status", ["cancelled", "timed_out", "terminated", "merged"])
async def test_rare_statuses(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection, status: str) -> None:
    """The statuses that later controls bring are listed as well."""
    definition_id = await catalogue.published()
    run = await edges.start(definition_id)
    await owner.execute(
        "insert into eec_workflow_run (tenant_id, run_id, status, record_version, version_id, format_version, engine_level, start_time, update_time, end_time)"
        " select tenant_id, run_id, $1, 1, version_id, 1, 1, now(), now(), now() from eec_workflow_run_start",
        status,
    )
    number = run_pb2.RunStatus.Value(f"RUN_STATUS_{status.upper()}")
    (found,) = (await _list(edges, status=number)).data
    assert (found.run_id, found.status) == (run.run_id, number)
    assert await _ids(edges, active_only=True) == []
