"""The unified timeline: controls among the events, each where it was accepted and where it was settled (ruling C1)."""

import datetime
from typing import Any

import asyncpg
from google.protobuf import json_format

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from tests.coordinator.conftest import Ticker
from tests.support.books import TENANT, Books, chain
from tests.support.edges import Catalogue, Edges, as_tenant

META = as_tenant(TENANT)


async def _everything(edges: Edges, run_id: str, size: int, *, unified: bool = True) -> list[run_pb2.TimelineEntry]:
    found: list[run_pb2.TimelineEntry] = []
    token = ""
    while True:
        request = reads.GetRunTimelineRequest(run_id=run_id, page_size=size, page_token=token, unified=unified)
        page = await edges.reads.GetRunTimeline(request, metadata=META, timeout=60)
        assert 1 <= len(page.data) <= size
        found += page.data
        if not (token := page.next_page_token):
            return found


async def _times(owner: asyncpg.Connection, run_id: str) -> list[datetime.datetime]:
    rows = await owner.fetch("select at from eec_workflow_transition where run_id = $1 order by seq", run_id)
    return [row[0] for row in rows]


async def _ask(
    owner: asyncpg.Connection,
    run_id: str,
    request_id: str,
    verb: str,
    at: datetime.datetime,
    settled: datetime.datetime | None = None,
    **fields: str,
) -> None:
    """An intent, as run control and the coordinator leave it."""
    await owner.execute(
        "insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, body, body_hash, reason, actor, create_time, status, settle_time,"
        " outcome_code, outcome_message, result, step_ref) values ($1, $2, $3, $4, $5::json, 'h', $6, 'ann', $7, $8, $9, $10, $11, $12::jsonb, $13)",
        TENANT, run_id, request_id, verb, fields.get("body", "{}"), fields.get("reason", ""), at,
        fields.get("status", "applied") if settled else "pending", settled, fields.get("code", ""), fields.get("message", ""),
        fields.get("result", "{}"), fields.get("step_ref", ""),
    )  # fmt: skip


async def test_controls_stand_where_they_were_accepted_and_where_they_were_settled(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """Between the transitions of their times; what a tick settled behind what it recorded; a pending one once; payloads are not repeated."""
    definition_id = await catalogue.published(chain(2))
    run_id = (await edges.start(definition_id)).run_id
    for _ in range(3):
        await ticker.drain()
        await books.report()
    first, second, third = await _times(owner, run_id)
    tick = datetime.timedelta(microseconds=1)
    await _ask(owner, run_id, "c1", "pause", first - tick, second, reason="lunch")
    await _ask(
        owner, run_id, "c2", "update_node_retry_policy", second - tick, second + tick,
        status="rejected", code="NODE_FINISHED", message="it has ended", step_ref="s0", body='{"retry":{"max_attempts":3},"fields":["max_attempts"]}',
    )  # fmt: skip
    await _ask(owner, run_id, "c3", "reset", third + tick, body='{"seq":2,"overrides":{"s1":{"card":"secret"},"s0":1},"seed":{"pin":"secret"}}')  # fmt: skip

    plain = await _everything(edges, run_id, 1000, unified=False)
    woven = await _everything(edges, run_id, 1000)
    assert [entry for entry in woven if entry.event_index >= 0] == plain, "the history itself is as it was"
    points = [(entry.seq, entry.type, json_format.MessageToDict(entry.detail)) for entry in woven if entry.event_index < 0]  # fmt: skip
    assert points == [
        (0, "control_accepted", {"verb": "pause", "request_id": "c1", "actor": "ann", "reason": "lunch"}),
        (1, "control_accepted", {"verb": "update_node_retry_policy", "request_id": "c2", "actor": "ann",
                                 "asked": {"retry": {"max_attempts": 3.0}, "fields": ["max_attempts"]}}),
        (2, "control_applied", {"verb": "pause", "request_id": "c1"}),
        (2, "control_rejected", {"verb": "update_node_retry_policy", "request_id": "c2", "code": "NODE_FINISHED", "message": "it has ended"}),
        (3, "control_accepted", {"verb": "reset", "request_id": "c3", "actor": "ann", "asked": {"seq": 2.0}, "overridden": ["s0", "s1"]}),
    ]  # fmt: skip
    assert [entry.step_ref for entry in woven if entry.event_index < 0] == ["", "s0", "", "s0", ""]
    times = [entry.event_time.ToMicroseconds() for entry in woven]
    assert times == sorted(times)
    assert "secret" not in str(woven)
    for size in (1, 2, 3, 5, len(woven) - 1, len(woven)):
        assert await _everything(edges, run_id, size) == woven


async def test_a_clock_that_was_set_back_loses_nothing(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """Transitions keep their order whatever their times say, and every control is shown twice, on pages of any size."""
    definition_id = await catalogue.published(chain(5))
    run_id = (await edges.start(definition_id)).run_id
    for _ in range(6):
        await ticker.drain()
        await books.report()
    times = await _times(owner, run_id)
    await owner.execute("update eec_workflow_transition set at = at - interval '1 hour' where seq % 2 = 0 and run_id = $1", run_id)  # fmt: skip
    for number, at in enumerate(times):
        for copy in range(60):
            await _ask(owner, run_id, f"c{number}-{copy}", "resume", at, at + datetime.timedelta(milliseconds=1))
    woven = await _everything(edges, run_id, 1000)
    assert [entry for entry in woven if entry.event_index >= 0] == await _everything(edges, run_id, 1000, unified=False)
    assert len({(entry.type, str(entry.detail)) for entry in woven if entry.event_index < 0}) == 2 * 60 * len(times)
    for size in (7, 100):
        assert await _everything(edges, run_id, size) == woven


async def test_a_run_that_nobody_has_taken_up_can_have_controls(
    edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection
) -> None:
    """A control of a pending run stands before its first transition."""
    definition_id = await catalogue.published()
    run_id = (await edges.start(definition_id)).run_id
    await _ask(owner, run_id, "early", "cancel", datetime.datetime.now(datetime.UTC))
    (entry,) = await _everything(edges, run_id, 10)
    details: dict[str, Any] = json_format.MessageToDict(entry.detail)
    assert (entry.seq, entry.type, details["request_id"]) == (0, "control_accepted", "early")
