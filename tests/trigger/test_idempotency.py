"""T1: the same key, the same run, whoever asks, however often and at the same moment; and batches, where each item stands alone."""

import asyncio

import asyncpg
import msgspec
import pytest
from google.protobuf import json_format, struct_pb2

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from ductord.db.pool import open_pool
from ductord.rpc.bounds import Limits
from ductord.starting.versions import Versions
from ductord.trigger.asked import read
from ductord.trigger.birth import Birth, Started, bear
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.support.books import TENANT, Books, chain
from tests.support.edges import Catalogue, Edges, refusal

Item = triggers.BatchTriggerItem
Label = common_pb2.CorrelationLabel


async def _count(owner: asyncpg.Connection) -> tuple[int, int]:
    """(start rows, wake-ups)."""
    starts, wakeups = await owner.fetchrow(
        "select (select count(*) from eec_workflow_run_start), (select count(*) from eec_workflow_wakeup)"
    )
    return starts, wakeups


async def test_il01_twenty_at_once(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """IL-01: 20 parallel calls with one key: one run, one start, no error, and exactly one of them is not a duplicate."""
    definition_id = await catalogue.published()
    answers = await asyncio.gather(
        *(edges.start(definition_id, idempotency_key="k", input_json='{"a": 1}') for _ in range(20))
    )
    assert len({a.run_id for a in answers}) == 1
    assert sorted(a.duplicate for a in answers) == [False] + [True] * 19
    assert await _count(owner) == (1, 1)


async def test_il01_batches_at_once_in_opposite_orders(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """Batches with the same keys in different orders wait for each other in one direction: nobody deadlocks, every key has one run."""
    definition_id = await catalogue.published()
    keys = [f"k{i}" for i in range(100)]
    items = [Item(idempotency_key=key) for key in keys]
    answers = await asyncio.gather(*(edges.batch(definition_id, items if i % 2 else items[::-1]) for i in range(6)))
    runs = [[r.run_id for r in (results if i % 2 else results[::-1])] for i, results in enumerate(answers)]
    assert all(batch == runs[0] for batch in runs)
    assert sum(not r.duplicate for results in answers for r in results) == 100
    assert await _count(owner) == (100, 100)


async def test_il03_another_request_under_the_same_key(edges: Edges, catalogue: Catalogue) -> None:
    """IL-03: another input, subject or label set is refused with the first run's id; order, spelling and door make no difference."""
    definition_id = await catalogue.published()
    first = await edges.start(
        definition_id,
        idempotency_key="k",
        input_json='{"a": 1, "b": [2.0, "x"]}',
        subject_id="s",
        correlation_labels=[Label(key="x", id="1"), Label(key="y", id="2")],
    )
    same = struct_pb2.Value()
    json_format.ParseDict({"b": [2, "x"], "a": 1.0}, same)
    labels = [Label(key="y", id="2"), Label(key="x", id="1")]
    again = await edges.start(
        definition_id,
        idempotency_key="k",
        input=same,
        subject_id="s",
        correlation_labels=labels,
        tier=common_pb2.TIER_BULK,
    )
    assert (again.run_id, again.duplicate) == (first.run_id, True)
    for other in (
        {"input_json": '{"a": 2}', "subject_id": "s", "correlation_labels": labels},
        {"input": same, "subject_id": "t", "correlation_labels": labels},
        {"input": same, "subject_id": "s", "subject_type": "lead", "correlation_labels": labels},
        {"input": same, "subject_id": "s", "correlation_labels": labels[:1]},
        {"input": same, "subject_id": "s"},
    ):
        answer = await refusal(edges.start(definition_id, idempotency_key="k", **other))
        assert (answer.code, answer.reason) == ("ALREADY_EXISTS", "IDEMPOTENCY_MISMATCH")
        assert answer.metadata == {"run_id": first.run_id}


async def test_il03_the_key_outlives_what_the_definition_becomes(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """IL-03, T1, D3: the key is looked up before anything is judged: after a publish, an archiving, a new schema, and after the run ended."""
    definition_id = await catalogue.define("orders")
    version_id = await catalogue.publish(definition_id, chain(1))
    first = await edges.start(definition_id, idempotency_key="k")
    await catalogue.publish(
        definition_id, msgspec.structs.replace(chain(1), manual_start=False, input_schema={"required": ["never"]})
    )
    again = await edges.start(definition_id, idempotency_key="k")
    assert (again.run_id, again.status, again.duplicate) == (first.run_id, run_pb2.RUN_STATUS_PENDING, True)
    await ticker.drain()
    assert (await edges.start(definition_id, idempotency_key="k")).status == run_pb2.RUN_STATUS_RUNNING
    await books.report()
    await ticker.drain()
    await catalogue.archive(version_id)
    again = await edges.start(definition_id, idempotency_key="k")
    assert (again.run_id, again.status, again.duplicate) == (first.run_id, run_pb2.RUN_STATUS_COMPLETED, True)
    assert (await refusal(edges.start(definition_id, idempotency_key="new"))).reason == "MANUAL_TRIGGER_NOT_ALLOWED"


async def test_il03_a_client_tries_again_across_a_publish(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """IL-03, T1: who names the definition gets the one run that there is, of the version current when it began, also while versions are published;
    who names versions by their own ids has a run of each, and of no other."""
    definition_id = await catalogue.define("orders")
    versions = [await catalogue.publish(definition_id, chain(1))]
    tries = [asyncio.create_task(edges.start(definition_id, idempotency_key="k")) for _ in range(10)]
    for _ in range(3):
        versions.append(await catalogue.publish(definition_id, chain(1)))
        tries += [asyncio.create_task(edges.start(definition_id, idempotency_key="k")) for _ in range(10)]
    answers = await asyncio.gather(*tries)
    assert len({answer.run_id for answer in answers}) == 1
    assert sorted(answer.duplicate for answer in answers) == [False] + [True] * 39
    later = await edges.start(definition_id, idempotency_key="k")
    assert (later.run_id, later.duplicate) == (answers[0].run_id, True)
    by_version = [await edges.start(version, idempotency_key="k") for version in versions]
    assert len({run.run_id for run in by_version} | {later.run_id}) == len(versions) + 1
    assert [(await edges.start(version, idempotency_key="k")).run_id for version in versions] == [
        run.run_id for run in by_version
    ]
    rows = await owner.fetch("select run_id::text, version_id::text from eec_workflow_run_start")
    born = {row["run_id"]: row["version_id"] for row in rows}
    assert [born[run.run_id] for run in by_version] == versions
    assert born[later.run_id] in versions


async def test_t1_the_key_belongs_to_the_tenant_and_the_id_as_given(edges: Edges, catalogue: Catalogue) -> None:
    """T1: another definition, another tenant, the version's own id: each has its own keys."""
    definition_id = await catalogue.define("orders")
    version_id = await catalogue.publish(definition_id, chain(1))
    other = await catalogue.published(slug="other")
    foreign = await catalogue.published(slug="orders", tenant="tenant-b")
    runs = [
        await edges.start(definition_id, idempotency_key="k"),
        await edges.start(version_id, idempotency_key="k"),
        await edges.start(other, idempotency_key="k"),
        await edges.start(foreign, idempotency_key="k", tenant="tenant-b"),
    ]
    assert len({run.run_id for run in runs}) == 4
    assert (await edges.start(definition_id.upper(), idempotency_key="k")).run_id == runs[0].run_id
    # TN-01: with another tenant's id and key one learns nothing of its run.
    assert (
        await refusal(edges.start(definition_id, idempotency_key="k", tenant="tenant-b"))
    ).reason == "DEFINITION_NOT_FOUND"


async def test_a_batch_answers_item_by_item(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """One result or error per item, in order; duplicates inside the batch get the same run (T1), and a bad item touches no other."""
    definition_id = await catalogue.published(
        msgspec.structs.replace(chain(1), input_schema={"properties": {"n": {"type": "integer"}}})
    )
    before = await edges.start(definition_id, idempotency_key="before")
    results = await edges.batch(
        definition_id,
        [
            Item(),
            Item(idempotency_key="k", input_json='{"n": 1}'),
            Item(idempotency_key="k", input_json='{"n": 1}'),
            Item(idempotency_key="k", input_json='{"n": 2}'),
            Item(idempotency_key="before"),
            Item(input_json="{"),
            Item(input_json='{"n": "x"}'),
            Item(subject_id="a\0b"),
            Item(idempotency_key="late", input_json='{"n": "x"}'),
            Item(idempotency_key="late", input_json='{"n": 1}'),
            Item(correlation_labels=[Label(key="a", id="1")], tier=common_pb2.TIER_BULK),
            Item(external_deployment_id="w" * 129),
        ],
    )
    assert [r.error.reason for r in results] == [
        "", "", "", "IDEMPOTENCY_MISMATCH", "", "PAYLOAD_INVALID", "INPUT_SCHEMA_MISMATCH", "FIELD_INVALID", "INPUT_SCHEMA_MISMATCH", "", "",
        "FIELD_INVALID",
    ]  # fmt: skip
    assert [bool(r.run_id) for r in results] == [not r.error.reason for r in results]
    assert [r.duplicate for r in results[:3]] == [False, False, True]
    assert results[1].run_id == results[2].run_id == results[3].error.metadata["run_id"]
    assert (results[4].run_id, results[4].duplicate) == (before.run_id, True)
    assert results[3].error.code == "ALREADY_EXISTS"
    assert results[7].error.metadata["field"] == "subject_id"
    assert results[0].status == run_pb2.RUN_STATUS_PENDING
    assert await _count(owner) == (5, 5)
    assert (
        await owner.fetchval("select tier from eec_workflow_run_start where run_id = $1", results[10].run_id) == "bulk"
    )


async def test_a_batch_of_a_definition_that_may_not_be_started(edges: Edges, catalogue: Catalogue) -> None:
    """The definition's refusal is every new item's; a key that was used before still finds its run."""
    definition_id = await catalogue.define("orders")
    version_id = await catalogue.publish(definition_id, chain(1))
    first = await edges.start(definition_id, idempotency_key="k")
    await catalogue.archive(version_id)
    results = await edges.batch(definition_id, [Item(), Item(idempotency_key="k"), Item(idempotency_key="l")])
    assert [r.error.reason for r in results] == ["DEFINITION_ARCHIVED", "", "DEFINITION_ARCHIVED"]
    assert results[1].run_id == first.run_id


@pytest.mark.parametrize(("count", "reason"), [(0, "FIELD_REQUIRED"), (501, "BATCH_TOO_LARGE")])
async def test_the_size_of_a_batch(edges: Edges, catalogue: Catalogue, count: int, reason: str) -> None:
    """1 to 500 items."""
    definition_id = await catalogue.published()
    answer = await refusal(edges.batch(definition_id, [Item()] * count))
    assert (answer.code, answer.reason, answer.metadata["field"]) == ("INVALID_ARGUMENT", reason, "items")


async def test_a_full_batch(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """500 items, 500 runs, in order."""
    definition_id = await catalogue.published()
    results = await edges.batch(definition_id, [Item(input_json=str(i)) for i in range(500)])
    stored = {
        r["run_id"]: int(r["input"])
        for r in await owner.fetch("select run_id::text, input::text from eec_workflow_run_start")
    }
    assert [stored[r.run_id] for r in results] == list(range(500))
    assert await _count(owner) == (500, 500)


async def test_a_transaction_is_repeated_whose_commit_went_unheard(
    database: Database, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """Run ids are made before the transaction: the second try finds what the first one wrote and takes it for its own, with a key or without."""
    given_id = await catalogue.published()
    limits = Limits(payload_bytes=1 << 20, key_bytes=256)
    asked = [read(Item(idempotency_key=key), limits) for key in ("", "k", "k")]
    birth = Birth(tenant_id=TENANT, given_id=given_id, traceparent="")
    pool = await open_pool(database.dsn("trigger"), "trigger")
    try:
        first, _ = await bear(pool, Versions(), birth, asked)
        second, _ = await bear(pool, Versions(), birth, asked)
    finally:
        await pool.close()
    assert first == second
    assert [isinstance(o, Started) and o.duplicate for o in first] == [False, False, True]
    assert await _count(owner) == (2, 2)
