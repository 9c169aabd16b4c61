"""ExportRun: the recording of a run, page by page; what comes out replays without a difference (acceptance: replay check)."""

import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from msgspec.structs import replace

from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.db.ids import new_id
from ductord.db.pool import open_pool
from ductord.engine.replay import replay
from ductord.model import recording as recordings
from ductord.model.enums import OperationStatus, Outcome, SignalVerb, Verb
from ductord.model.inbox import Signal
from ductord.model.recording import Recording
from ductord.model.specs import RetryPolicy, Template
from ductord.reads.service import SERVICE as READS
from ductord.trigger.service import SERVICE as TRIGGER
from tests.conftest import Database
from tests.coordinator.conftest import Ticker
from tests.coordinator.waiters import Publisher, say, waiting
from tests.support.books import TENANT, Books, chain
from tests.support.edges import Catalogue, Edges, as_tenant, refusal, serving, wide

META = as_tenant(TENANT)


async def _text(edges: Edges, run_id: str, *, most: int = 3 << 20) -> str:
    text, token = "", ""
    while True:
        request = reads.ExportRunRequest(run_id=run_id, page_token=token)
        page = await edges.reads.ExportRun(request, metadata=META, timeout=60)
        assert 1 <= len(page.lines.encode()) <= most
        text += page.lines
        if not (token := page.next_page_token):
            return text


async def _recorded(edges: Edges, run_id: str, **limits: Any) -> Recording:
    return recordings.decode(await _text(edges, run_id, **limits))


@pytest.fixture
async def small_pages(database: Database) -> AsyncIterator[Edges]:
    """Services whose replies hold a thousand bytes of payloads."""
    async with serving(database, [TRIGGER, READS], reply_max_bytes=65_536) as running:
        yield running


async def test_a_recording_has_every_fact_and_replays(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """The run's birth, history and attempts with their outputs and errors, exact to the digit; and today's engine decides it again."""
    retry = RetryPolicy(max_attempts=2)
    definition_id = await catalogue.published(chain(3, retry=retry))
    run_id = (await edges.start(definition_id, input_json='{"id":9007199254740993}', subject_type="k", subject_id="1")).run_id  # fmt: skip
    await ticker.drain()
    await books.report(outcome="failed", code="UNAVAILABLE")
    for _ in range(4):
        await ticker.drain()
        await books.report(output='{"n":9007199254740993,\n"x":1.5}')
    recording = await _recorded(edges, run_id)
    start = recording.run.start
    assert (start.run_id, start.tenant_id, start.family_slug) == (run_id, TENANT, "chain")
    assert (start.subject_type, start.payload) == ("k", {"id": 9007199254740993})
    assert recording.run.manifest == next(iter(catalogue.manifests.values()))
    stored = await owner.fetch("select seq, at from eec_workflow_transition where run_id = $1 order by seq", run_id)
    assert [(line.seq, line.at) for line in recording.transitions] == [tuple(row) for row in stored]
    assert [(a.step_ref, a.attempt, a.outcome) for a in recording.attempts] == [
        ("s0", 1, Outcome.FAILED), ("s0", 2, Outcome.SUCCEEDED), ("s1", 1, Outcome.SUCCEEDED), ("s2", 1, Outcome.SUCCEEDED),
    ]  # fmt: skip
    first, second = recording.attempts[:2]
    assert first.fault is not None
    assert (first.fault.code, first.reference) == ("UNAVAILABLE", None)
    assert (second.output, second.reference) == ({"n": 9007199254740993, "x": 1.5}, second.reference)
    assert second.reference is not None
    assert replay(recording) is None


async def test_late_successes_controls_and_outputs_of_other_runs(
    edges: Edges, catalogue: Catalogue, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """C5, C6, C7: what else decisions are taken from."""
    definition_id = await catalogue.published()
    run_id = (await edges.start(definition_id)).run_id
    source = (await edges.start(definition_id)).run_id
    await ticker.drain()
    late = '{"charge":7}'
    await owner.execute(
        "update eec_workflow_step_attempt set outcome = 'lost', report_time = now(), stale_outcome = 'succeeded', stale_time = now(), stale_output = $1::json",
        late,
    )
    inverses = [{"step_ref": "s0", "attempt": 1, "logical": 1, "run_id": source}, {"step_ref": "s0", "attempt": 1, "logical": 1}]  # fmt: skip
    await owner.execute("update eec_workflow_run_start set inverses = $1::jsonb where run_id = $2", json.dumps(inverses), run_id)  # fmt: skip
    await owner.execute(
        "insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, body, body_hash, reason, actor, status, settle_time, create_time)"
        " values ($1, $2, 'z', 'cancel', '{\"skip_finally\":true}', 'h', 'why', 'ann', 'applied', now(), now()),"
        " ($1, $2, 'a', 'pause', '{}', 'h', '', 'ann', 'pending', null, now() + interval '1 second')",
        TENANT, run_id,
    )  # fmt: skip
    recording = await _recorded(edges, run_id)
    (attempt,) = recording.attempts
    assert (attempt.outcome, attempt.output, attempt.reference) == (Outcome.LOST, None, None)
    assert (attempt.late_output, attempt.late_time is not None) == ({"charge": 7}, True)
    assert attempt.late_reference is not None
    assert (attempt.late_reference.attempt, attempt.late_reference.size) == (1, len(late))
    (other,) = recording.sources
    assert (other.run_id, other.step_ref, other.attempt, other.output) == (source, "s0", 1, {"charge": 7})
    cancel, pause = recording.controls  # as they were accepted, whatever their names (C1)
    assert (cancel.control.verb, cancel.control.body.skip_finally, cancel.control.reason) == (Verb.CANCEL, True, "why")
    assert (cancel.status, pause.status) == (OperationStatus.APPLIED, OperationStatus.PENDING)
    assert (cancel.settle_time is not None, pause.settle_time) == (True, None)


async def test_what_was_said_to_steps_that_wait_replays(
    database: Database,
    edges: Edges,
    small_pages: Edges,
    catalogue: Catalogue,
    books: Books,
    ticker: Ticker,
    owner: asyncpg.Connection,
) -> None:
    """E1, E3, E6: signals and received events with their payloads, in the order in which they came, and in which transition they were dealt with."""
    lines = (
        'step ap type=approval approval={"required": 2}',
        'step case type=human_loop human_loop={"case_type": "fraud"}',
        'step paid type=wait wait={"event": {"event_name": "paid"}}',
        "ap -approved-> case",
        "case -success-> paid",
    )
    run_id = (await edges.start(await catalogue.published(waiting(*lines)))).run_id
    await say(books, run_id, SignalVerb.RESOLVE_INTERACTION, "case", {"n": 9007199254740993}, request_id="z-first")
    await ticker.drain()
    for name in ("one", "two"):
        at = await owner.fetchval("select eec_now()")
        signal = Signal(request_id=name, verb=SignalVerb.APPROVE, step_ref="ap", create_time=at, approver_id=name)
        await books.signal(run_id, signal, {"by": name})
        await ticker.drain()
    await say(books, run_id, SignalVerb.APPROVE, "ap", request_id="a-late")
    await ticker.drain()
    pool = await open_pool(database.dsn("signals"), "signals", max_size=2)
    assert (await Publisher(pool).publish("paid", payload={"sum": 3})).matched == 1
    await pool.close()
    await ticker.drain()
    assert await books.status(run_id) == "completed"
    recording = await _recorded(edges, run_id)
    said = [(line.signal.request_id, line.signal.verb, line.payload, line.seq) for line in recording.signals]
    assert said == [
        ("z-first", SignalVerb.RESOLVE_INTERACTION, {"n": 9007199254740993}, 3),
        ("one", SignalVerb.APPROVE, {"by": "one"}, 2),
        ("two", SignalVerb.APPROVE, {"by": "two"}, 3),
        ("a-late", SignalVerb.APPROVE, None, 0),
    ]
    (received,) = recording.receipts
    assert (received.receipt.step_ref, received.receipt.event_id, received.payload, received.seq) == ("paid", "e1", {"sum": 3}, 4)  # fmt: skip
    assert replay(recording) is None
    assert replay(await _recorded(small_pages, run_id, most=65_536)) is None


async def test_pl06_pages_of_large_outputs(edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker) -> None:
    """PL-06: eight outputs of 1 MiB in replies of at most 3 MiB, every line once."""
    definition_id = await catalogue.published(wide(8))
    run_id = (await edges.start(definition_id)).run_id
    big = '"' + "é" * ((1 << 19) - 1) + '"'
    await ticker.drain()
    await books.report(output=big)
    await ticker.drain()
    recording = await _recorded(edges, run_id)
    assert [a.step_ref for a in recording.attempts] == [f"s{i}" for i in range(8)]
    assert all(a.output == big[1:-1] for a in recording.attempts)
    assert replay(recording) is None


async def test_a_line_larger_than_a_page_goes_on_in_the_next(
    small_pages: Edges, edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """L7: the pages' texts, one after the other, are the same document whatever the size of a page."""
    definition_id = await catalogue.published(chain(3))
    run_id = (await edges.start(definition_id, input_json=json.dumps({"text": "ü" * 100_000}))).run_id
    for _ in range(4):
        await ticker.drain()
        await books.report(output=json.dumps("\N{SNOWMAN}" * 50_000, ensure_ascii=False))
    whole = await _text(edges, run_id)
    again = await _text(small_pages, run_id, most=65_536)
    limits = [json.loads(text.split("\n", 1)[0])["limits"] for text in (whole, again)]
    assert limits[0] == limits[1]
    assert again == whole
    assert replay(recordings.decode(again)) is None


async def test_a_run_that_nobody_has_taken_up(edges: Edges, catalogue: Catalogue) -> None:
    """One line about the run; and a token is of this list."""
    definition_id = await catalogue.published(chain(1, title="x"))
    run_id = (await edges.start(definition_id)).run_id
    recording = await _recorded(edges, run_id)
    assert (recording.transitions, recording.attempts) == ((), ())
    assert replay(recording) is None
    request = reads.ExportRunRequest(run_id=run_id, page_token="x")
    assert (await refusal(edges.reads.ExportRun(request, metadata=META))).reason == "PAGE_TOKEN_INVALID"
    assert (await refusal(edges.reads.ExportRun(reads.ExportRunRequest(run_id=new_id()), metadata=META))).reason == "RUN_NOT_FOUND"  # fmt: skip


async def test_what_expressions_read_comes_along(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """L3: a run whose steps read its input, its variables and each other's outputs replays from its recording alone."""
    manifest = chain(2)
    reading = Template(tree={"a": "${{ TRIGGER.payload.n }}"}, static=False, names=("TRIGGER",))
    steps = tuple(
        replace(step, action=replace(step.action, args=reading)) for step in manifest.steps if step.action
    )  # fmt: skip
    definition_id = await catalogue.published(replace(manifest, steps=steps))
    run_id = (await edges.start(definition_id, input_json='{"n":1}')).run_id
    for _ in range(3):
        await ticker.drain()
        await books.report()
    recording = await _recorded(edges, run_id)
    assert replay(recording) is None
    start = replace(recording.run.start, payload={})
    difference = replay(replace(recording, run=replace(recording.run, start=start)))
    assert difference is not None, "without the input it would have gone otherwise"
    assert difference.seq == 1
