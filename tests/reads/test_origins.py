"""What started a run and in which environment, wherever a run is shown: lists by every statement, GetRun, WatchRun, the snapshot, the export; and journeys."""

from datetime import UTC, datetime
from typing import Any

import asyncpg
import pytest
from google.protobuf.message import Message
from msgspec.structs import replace

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_run_control_service_pb2 as controls
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.db.ids import new_id
from ductord.engine.replay import replay
from ductord.model.recording import decode
from ductord.model.starting import EventOrigin, Origin, event_run_id, fired_run_id, schedule_id
from ductord.reads.service import SERVICE as READS
from ductord.run_control.service import SERVICE as CONTROLS
from ductord.starting.births import Start, bear
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.parents import family
from tests.support.books import TENANT, Books
from tests.support.edges import Catalogue, Edges, as_tenant, refusal, serving

META = as_tenant(TENANT)
AT = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
HUGE = {"text": "x" * 100_000}


@pytest.fixture
async def edges(database: Database) -> Any:
    """The doors through which a run is seen, in an environment."""
    async with serving(database, [TRIGGER, READS, CONTROLS], environment="production") as running:
        yield running


async def _born(
    database: Database, definition_id: str, version_id: str, origin: Origin, run_id: str, variables: str = "{}"
) -> str:
    start = Start(
        run_id=run_id, definition_id=definition_id, version_id=version_id, version=1, family_slug="chain", input_json="{}", tier="standard",
        origin=origin, variables_json=variables,
    )  # fmt: skip
    db = await asyncpg.connect(database.dsn("coordinator"))
    first = await bear(db, TENANT, [start], environment="staging", traceparent="", actor="schedule:nightly")
    again = await bear(db, TENANT, [start], environment="other", traceparent="", actor="someone")
    await db.close()
    assert (first, again) == (frozenset({run_id}), frozenset()), "born once, though asked for twice"
    return run_id


async def _everywhere(edges: Edges, run_id: str) -> list[run_pb2.RunSummary]:
    """The summary of a run, from every door that shows one."""
    found = (await edges.reads.GetRun(reads.GetRunRequest(run_id=run_id), metadata=META, timeout=60)).data.summary
    lists: list[dict[str, Any]] = [
        {}, {"status": found.status}, {"active_only": True}, {"workflow_type": "chain"}, {"journey_id": found.journey_id},
    ]  # fmt: skip
    lists += [{"parent_run_id": found.parent_run_id}, {"root_run_id": found.root_run_id}] if found.parent_run_id else []
    lists += [{"label": [f"{label.key}:{label.id}"]} for label in found.correlation_labels]
    shown = [found]
    for filters in lists:
        page = await edges.reads.ListRuns(reads.ListRunsRequest(**filters), metadata=META, timeout=60)
        shown += [run for run in page.data if run.run_id == run_id]
    assert len(shown) == len(lists) + 1
    watch = edges.reads.WatchRun(reads.WatchRunRequest(run_id=run_id), metadata=META, timeout=60)
    async for message in watch:
        shown.append(message.summary)
        break
    watch.cancel()
    asked = controls.GetRunSnapshotRequest(run_id=run_id)
    return [*shown, (await edges.controls.GetRunSnapshot(asked, metadata=META, timeout=60)).data.summary]


def _differ(shown: list[run_pb2.RunSummary]) -> list[Message]:
    origins = [(run.origin, run.environment) for run in shown]
    return [origin for origin in origins if origin != origins[0]]  # type: ignore[misc]


async def test_by_hand_and_by_a_parent(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """A start by hand says so and has the environment of its door; a child says that a parent started it; before and after a coordinator came by."""
    definition_id = await catalogue.published()
    label = [common_pb2.CorrelationLabel(key="k", id="1")]
    parent = (await edges.start(definition_id, correlation_labels=label)).run_id
    child = (await edges.start(definition_id, correlation_labels=label)).run_id
    await owner.execute(
        "update eec_workflow_run_start set parent_run_id = $1, root_run_id = $1, journey_id = $1 where run_id = $2", parent, child
    )  # fmt: skip
    for _ in range(2):
        for run_id, kind in ((parent, run_pb2.ORIGIN_TYPE_MANUAL), (child, run_pb2.ORIGIN_TYPE_PARENT)):
            shown = await _everywhere(edges, run_id)
            assert not _differ(shown)
            assert (shown[0].origin, shown[0].environment) == (run_pb2.RunOrigin(type=kind), "production")
        await ticker.drain()


async def test_by_a_schedule(edges: Edges, catalogue: Catalogue, database: Database, ticker: Ticker) -> None:
    """Schedule, trigger and nominal time, and no event."""
    definition_id = await catalogue.published()
    version_id = next(iter(catalogue.manifests))
    schedule = schedule_id(definition_id, "nightly")
    origin = Origin(trigger_id="nightly", schedule_id=schedule, nominal_time=AT)
    run_id = await _born(database, definition_id, version_id, origin, fired_run_id(schedule, AT))
    await ticker.drain()
    shown = await _everywhere(edges, run_id)
    assert not _differ(shown)
    found = shown[0].origin
    assert (found.type, found.trigger_id, found.schedule_id) == (run_pb2.ORIGIN_TYPE_SCHEDULE, "nightly", schedule)
    assert (found.nominal_time.ToDatetime(UTC), found.event_name, found.event_id) == (AT, "", "")
    assert shown[0].environment == "staging"


async def test_by_an_event(
    edges: Edges, catalogue: Catalogue, database: Database, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """The event's name and id; what it carried is no part of what lists read, and is in the export with VARS and environment, as it was."""
    definition_id = await catalogue.published()
    version_id = next(iter(catalogue.manifests))
    event = EventOrigin(name="order.created", id="e1", correlation_key="o:1", time=AT, payload=HUGE)
    origin = Origin(trigger_id="orders", event=event)
    born = event_run_id(definition_id, "orders", "order.created", "e1")
    run_id = await _born(database, definition_id, version_id, origin, born, '{"who": "ops"}')
    await ticker.drain()
    shown = await _everywhere(edges, run_id)
    assert not _differ(shown)
    found = shown[0].origin
    assert (found.type, found.trigger_id, found.event_name, found.event_id) == (
        run_pb2.ORIGIN_TYPE_EVENT, "orders", "order.created", "e1"
    )  # fmt: skip
    assert (found.schedule_id, found.HasField("nominal_time")) == ("", False)
    assert await owner.fetchval("select octet_length(origin::text) from eec_workflow_run_start") < 300
    recorded = decode(await _export(edges, run_id)).run.start
    assert (recorded.origin, recorded.variables, recorded.environment) == (origin, {"who": "ops"}, "staging")


async def test_what_started_a_run_decides_again_as_it_did(
    edges: Edges, catalogue: Catalogue, database: Database, books: Books, ticker: Ticker
) -> None:
    """L8, T3: conditions over VARS of an environment and over what the event carried, too large to be kept beside the run; another coordinator, and the export
    under today's engine, decide the same."""
    lines = (
        "step work action=noop:noop run_if=\"VARS.who == 'ops' && TRIGGER.event.payload.n == 7 && TRIGGER.type == 'event'\"",
        "step after action=noop:noop run_if=\"TRIGGER.event.id == 'e1' && size(TRIGGER.event.payload.text) == 100000\"",
        "work -success-> after",
    )
    manifest = replace(family("chain", *lines), variables={"who": "nobody"})
    definition_id = await catalogue.published(manifest)
    version_id = next(iter(catalogue.manifests))
    event = EventOrigin(name="order.created", id="e1", correlation_key="o:1", time=AT, payload={**HUGE, "n": 7})
    born = event_run_id(definition_id, "orders", "order.created", "e1")
    origin = Origin(trigger_id="orders", event=event)
    run_id = await _born(database, definition_id, version_id, origin, born, '{"who": "ops"}')
    await ticker.drain()
    await books.report()
    ticker.cache.forget(run_id)
    await ticker.drain()
    await books.report()
    await ticker.drain()
    found = (await edges.reads.GetRun(reads.GetRunRequest(run_id=run_id), metadata=META, timeout=60)).data
    assert found.summary.status == run_pb2.RUN_STATUS_COMPLETED
    assert [node.status for node in found.nodes] == [run_pb2.NODE_STATUS_SUCCEEDED] * 2
    recording = decode(await _export(edges, run_id))
    assert replay(recording) is None


async def _export(edges: Edges, run_id: str) -> str:
    text, token = "", ""
    while True:
        request = reads.ExportRunRequest(run_id=run_id, page_token=token)
        page = await edges.reads.ExportRun(request, metadata=META, timeout=60)
        text, token = text + page.lines, page.next_page_token
        if not token:
            return text


async def test_a_journey(edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection) -> None:
    """The first run of a chain, its successors, and all below any of them; alone, with every other filter, and page by page; nobody else's."""
    definition_id = await catalogue.published()
    label = [common_pb2.CorrelationLabel(key="k", id="1")]
    first, second, child, grandchild, other = [
        (await edges.start(definition_id, correlation_labels=label, subject_type="s", subject_id="1")).run_id for _ in range(5)
    ]  # fmt: skip
    place = "update eec_workflow_run_start set journey_id = $2, continued_from_run_id = $3, parent_run_id = $4, root_run_id = $5 where run_id = $1"
    await owner.execute(place, second, first, first, None, second)
    await owner.execute(place, child, first, None, second, second)
    await owner.execute(place, grandchild, first, None, child, second)
    await ticker.drain()
    await owner.execute("update eec_workflow_run set status = 'terminated', end_time = now() where run_id = $1", first)
    await owner.execute("update eec_workflow_run set has_errors = true where run_id = $1", child)
    journey = [grandchild, child, second, first]

    async def ids(size: int = 50, **filters: Any) -> list[str]:
        found: list[str] = []
        token = ""
        while True:
            request = reads.ListRunsRequest(journey_id=first, page_size=size, page_token=token, **filters)
            page = await edges.reads.ListRuns(request, metadata=META, timeout=60)
            found, token = found + [run.run_id for run in page.data], page.next_page_token
            if not token:
                return found

    for size in (1, 3, 4, 50):
        assert await ids(size) == journey
    assert await ids(label=["k:1"]) == journey
    assert await ids(label=["k:1", "k:2"]) == []
    assert await ids(active_only=True) == journey[:3]
    assert await ids(status=run_pb2.RUN_STATUS_TERMINATED) == [first]
    assert await ids(status=run_pb2.RUN_STATUS_TERMINATED, active_only=True) == []
    assert await ids(status=run_pb2.RUN_STATUS_PENDING) == []
    assert await ids(has_errors=True) == [child]
    assert await ids(has_errors=False) == [grandchild, second, first]
    assert await ids(workflow_type="chain", subject_type="s", subject_id="1") == journey
    assert await ids(workflow_type="other") == []
    assert await ids(parent_run_id=second) == [child]
    assert await ids(root_run_id=second) == [grandchild, child]
    assert await ids(root_run_id=other) == []
    for wanted, there in ((other, [other]), (second, []), (new_id(), [])):
        page = await edges.reads.ListRuns(reads.ListRunsRequest(journey_id=wanted), metadata=META, timeout=60)
        assert [run.run_id for run in page.data] == there
    foreign = reads.ListRunsRequest(journey_id=first)
    assert not (await edges.reads.ListRuns(foreign, metadata=as_tenant("other"), timeout=60)).data
    answer = await refusal(edges.reads.ListRuns(reads.ListRunsRequest(journey_id="x"), metadata=META, timeout=60))
    assert answer.reason == "RUN_NOT_FOUND"
