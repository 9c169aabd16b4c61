"""GetRunTimeline: every event of every transition, once, in order, across pages of any size."""

import json
from typing import Any

import asyncpg
from google.protobuf import json_format

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from tests.coordinator.conftest import Ticker
from tests.support.books import TENANT, Books, chain
from tests.support.edges import Catalogue, Edges, as_tenant, wide, with_checkpoints

META = as_tenant(TENANT)


async def _timeline(edges: Edges, run_id: str, **fields: Any) -> reads.GetRunTimelineResponse:
    request = reads.GetRunTimelineRequest(run_id=run_id, **fields)
    answer = await edges.reads.GetRunTimeline(request, metadata=META, timeout=60)
    assert answer.ByteSize() < 3.1 * (1 << 20)
    return answer


async def _everything(edges: Edges, run_id: str, size: int, **fields: Any) -> list[run_pb2.TimelineEntry]:
    found: list[run_pb2.TimelineEntry] = []
    token = ""
    while True:
        page = await _timeline(edges, run_id, page_size=size, page_token=token, **fields)
        assert len(page.data) <= size
        found += page.data
        if not (token := page.next_page_token):
            return found


async def _stored(owner: asyncpg.Connection, run_id: str) -> list[tuple[int, int, str]]:
    rows = await owner.fetch(
        "select seq, events::text from eec_workflow_transition where run_id = $1 order by seq", run_id
    )
    return [(row["seq"], index, event["type"]) for row in rows for index, event in enumerate(json.loads(row["events"]))]


async def test_the_story_of_a_run(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """From `run_started` to `run_ended`: types, steps, attempts, and edges by the names of their ends."""
    definition_id = await catalogue.published(with_checkpoints(chain(2), "first"))
    started = await edges.start(definition_id)
    assert not (await _timeline(edges, started.run_id)).data, "a run that nobody has taken up has no history"
    for _ in range(3):
        await ticker.drain()
        await books.report(output='{"secret":1}')
    entries = await _everything(edges, started.run_id, 1000)
    assert [(e.seq, e.event_index, e.type) for e in entries] == await _stored(owner, started.run_id)
    assert entries[0].type == "run_started"
    assert entries[-1].type == "run_ended"
    created = next(e for e in entries if e.type == "attempt_created")
    assert (created.step_ref, created.attempt) == ("s0", 1)
    assert not entries[0].HasField("attempt")
    edge = next(e for e in entries if e.type == "edges_resolved")
    assert json_format.MessageToDict(edge.detail)["edges"] == [
        {"source_ref": "s0", "target_ref": "s1", "type": "success", "state": "taken"}
    ]
    ended = next(e for e in entries if e.type == "attempt_ended")
    assert json_format.MessageToDict(ended.detail)["output"]["attempt"] == 1
    assert not any("secret" in str(e.detail) for e in entries), "events refer to payloads"
    assert json_format.MessageToDict(entries[-1].detail)["status"] == "completed"
    assert {e.run_id for e in entries} == {started.run_id}
    times = [e.event_time.ToMicroseconds() for e in entries]
    assert times == sorted(times)
    texts = await _everything(edges, started.run_id, 1000, payload_format=common_pb2.PAYLOAD_FORMAT_JSON)
    assert json.loads(texts[-1].detail_json)["status"] == "completed"
    assert await _everything(edges, started.run_id, 1000, unified=True) == entries


async def test_pages_cut_through_transitions(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """A transition of many events is continued on the next page; nothing is lost or doubled."""
    definition_id = await catalogue.published(wide(40))
    started = await edges.start(definition_id)
    await ticker.drain()
    await books.report()
    await ticker.drain()
    stored = await _stored(owner, started.run_id)
    assert len(stored) > 100
    for size in (1, 7, len(stored) - 1, len(stored), len(stored) + 1, 1000):
        if size == 1:
            assert len((await _timeline(edges, started.run_id, page_size=1)).data) == 1
            continue
        found = await _everything(edges, started.run_id, size)
        assert [(e.seq, e.event_index, e.type) for e in found] == stored


async def test_a_long_history(edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection) -> None:
    """PL-06: thousands of transitions with long error texts: no page over the limit, none empty, all there."""
    definition_id = await catalogue.published()
    started = await edges.start(definition_id)
    await ticker.drain()
    event = {"type": "node_ended", "step_ref": "s0", "status": "failed", "fault": {"code": "X", "message": "m" * 4000}}
    await owner.execute(
        "insert into eec_workflow_transition (tenant_id, run_id, seq, at, events)"
        " select tenant_id, run_id, n, now(), $1::json from eec_workflow_transition t, generate_series(2, 1500) n where t.seq = 1",
        json.dumps([event]),
    )
    found = await _everything(edges, started.run_id, 1000)
    assert [e.seq for e in found if e.type == "node_ended"] == list(range(2, 1501))
