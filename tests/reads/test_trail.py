"""The audit trail from who acts to who reads: run control, the definition service, a coordinator and the reads over one database (ruling C8)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_definition_service_pb2 as definitions
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1.workflow_definition_service_pb2_grpc import WorkflowDefinitionServiceStub
from ductord.coordinator.commit import commit
from ductord.coordinator.decided import Decided
from ductord.coordinator.load import load
from ductord.coordinator.starts import SQL
from ductord.definition.service import SERVICE as DEFINITION
from ductord.engine.decide import decide
from ductord.model.decision import Decision
from ductord.model.enums import CompensationBlock, FailurePolicy, Verb
from ductord.model.manifest import Manifest
from ductord.model.specs import Compensation, InverseSpec, RetryPolicy
from ductord.reads.service import SERVICE as READS
from ductord.run_control.service import SERVICE as RUN_CONTROL
from tests.conftest import Database
from tests.coordinator.conftest import Ticker, other_ticker
from tests.definition.client import message, order
from tests.run_control.operator import Operator
from tests.support.books import TENANT, Books, chain
from tests.support.edges import Edges, as_tenant, serving

__all__ = ["other_ticker"]

META = as_tenant(TENANT)
ONCE = RetryPolicy()


@pytest.fixture
async def edges(database: Database) -> AsyncIterator[Edges]:
    """Everything that acts and everything that reads."""
    async with serving(database, [DEFINITION, READS, RUN_CONTROL]) as running:
        yield running


@pytest.fixture
def operator(edges: Edges) -> Operator:
    """Who operates runs."""
    return Operator(edges)


def _undone(length: int, *actions: str, policy: FailurePolicy = FailurePolicy.MANUAL_REPAIR) -> Manifest:
    """A chain whose first step has these inverses, under both ends."""
    inverses = tuple(InverseSpec(action=action, retry=ONCE) for action in actions)
    manifest = chain(length)
    blocks = Compensation(on_failure=inverses, on_cancel=inverses, failure_policy=policy)
    return replace(manifest, steps=(replace(manifest.steps[0], compensation=blocks), *manifest.steps[1:]))


async def _stubbornly(ticker: Ticker, other: Ticker, books: Books) -> None:
    """Tick until nothing is due, as a bad day would: every decision is committed twice, and then everything is woken and ticked again by both coordinators."""
    while True:
        async with ticker.connection.transaction():
            claimed = await ticker.connection.fetch(SQL["claim_runs"], 100)
            if not claimed:
                break
            batch = await load(ticker.connection, ticker.cache, claimed)
            decided = []
            for loaded in batch.runs:
                assert loaded.compiled is not None
                answer = decide(
                    loaded.compiled.manifest, loaded.compiled.programs, loaded.known.run, loaded.inbox, batch.now
                )
                assert isinstance(answer, Decision)
                decided.append(Decided(loaded=loaded, decision=answer))
            assert await commit(ticker.connection, decided, batch.now, []) == set()
            await commit(ticker.connection, decided, batch.now, [])
        for loaded in batch.runs:
            ticker.cache.forget(loaded.known.start.run_id)
            for _ in range(2):
                await books.wake(loaded.known.start.run_id)
        await other.drain()
        await ticker.drain()


async def _trail(edges: Edges, run_id: str) -> list[run_pb2.AuditEntry]:
    request = reads.GetRunAuditRequest(run_id=run_id, page_size=1000, payload_format=common_pb2.PAYLOAD_FORMAT_JSON)
    return list((await edges.reads.GetRunAudit(request, metadata=META, timeout=60)).data)


def _said(entries: list[run_pb2.AuditEntry]) -> list[tuple[str, str, str, str, str]]:
    return [(e.action, e.actor, e.reason, e.request_id, e.outcome) for e in entries]


async def test_each_control_is_one_line_whatever_became_of_it(
    edges: Edges, operator: Operator, books: Books, ticker: Ticker, other_ticker: Ticker
) -> None:
    """C8: who, why, which request, applied or rejected; exactly one line each, though asked for twice, ticked again and again, and committed twice."""
    run_id = await books.start(await books.publish(chain(2)))
    await _stubbornly(ticker, other_ticker, books)
    asked: list[tuple[Verb, dict[str, Any]]] = [
        (Verb.PAUSE, {}), (Verb.RESUME, {}), (Verb.PAUSE_NODE, {"step_ref": "s1"}), (Verb.RESUME_NODE, {"step_ref": "s1"}),
        (Verb.UPDATE_NODE_RETRY_POLICY, {}), (Verb.UPDATE_NODE_TIMEOUT, {}), (Verb.RESET_NODE, {}), (Verb.RESET, {}),
    ]  # fmt: skip
    for verb, fields in asked:
        for _ in range(2):
            await operator.ask(verb, run_id, request_id=f"r-{verb}", reason=f"why {verb}", **fields)
        await _stubbornly(ticker, other_ticker, books)
    for verb in (Verb.CANCEL, Verb.TERMINATE, Verb.PAUSE):  # all three meet in one tick: the last has lost its race
        await operator.ask(verb, run_id, request_id=f"end-{verb}", reason="enough")
    await _stubbornly(ticker, other_ticker, books)
    entries = await _trail(edges, run_id)
    assert sorted(_said(entries)) == sorted(
        [(verb.value, "anonymous", f"why {verb}", f"r-{verb}", "applied") for verb, _ in asked]
        + [
            ("cancel", "anonymous", "enough", "end-cancel", "applied"),
            ("terminate", "anonymous", "enough", "end-terminate", "applied"),
            ("pause", "anonymous", "enough", "end-pause", "rejected"),
        ]
    )
    rejected = next(e for e in entries if e.outcome == "rejected")
    assert "RUN_TERMINAL" in rejected.detail_json
    request = reads.ListAuditRequest(
        target=f"run:{run_id}", page_size=1000, payload_format=common_pb2.PAYLOAD_FORMAT_JSON
    )
    listed = await edges.reads.ListAudit(request, metadata=META)
    assert list(listed.data) == entries[::-1]


async def test_each_inverse_is_one_line_for_each_time_it_was_settled(
    edges: Edges, operator: Operator, books: Books, ticker: Ticker, other_ticker: Ticker
) -> None:
    """C7, C8: done by the engine, left to a person, tried again at a person's word, settled by a person: by whom and why, once each."""
    run_id = await books.start(await books.publish(_undone(2, "noop:noop", "core:echo")))
    await _stubbornly(ticker, other_ticker, books)
    await books.report(run_id)
    await _stubbornly(ticker, other_ticker, books)
    await operator.ask(Verb.CANCEL, run_id, request_id="stop", reason="no stock")
    await _stubbornly(ticker, other_ticker, books)
    await books.report(run_id)
    await _stubbornly(ticker, other_ticker, books)
    await books.report(run_id, outcome="failed", code="INVALID_ARGUMENT")
    await _stubbornly(ticker, other_ticker, books)
    await operator.ask(Verb.RESOLVE_REPAIR, run_id, request_id="again", resolution="REPAIR_RESOLUTION_RETRY")
    await _stubbornly(ticker, other_ticker, books)
    await books.report(run_id, outcome="failed", code="INVALID_ARGUMENT")
    await _stubbornly(ticker, other_ticker, books)
    await operator.ask(Verb.RESOLVE_REPAIR, run_id, request_id="hand", reason="by hand")
    await _stubbornly(ticker, other_ticker, books)
    ledger = await edges.reads.ListCompensations(reads.ListCompensationsRequest(run_id=run_id), metadata=META)
    assert {(e.position, e.status) for e in ledger.data} == {
        (0, run_pb2.COMPENSATION_ENTRY_STATUS_DONE), (1, run_pb2.COMPENSATION_ENTRY_STATUS_DONE),
    }  # fmt: skip
    entries = await _trail(edges, run_id)
    by_people = [line for line in _said(entries) if line[1] != "system"]
    assert by_people == [
        ("cancel", "anonymous", "no stock", "stop", "applied"),
        ("resolve_repair", "anonymous", "", "again", "applied"),
        ("resolve_repair", "anonymous", "by hand", "hand", "applied"),
    ]
    by_engine = [line[0] for line in _said(entries) if line[1] == "system"]
    assert by_engine == ["compensation_done", "compensation_manual_repair", "compensation_manual_repair", "compensation_done"]  # fmt: skip
    assert CompensationBlock.ON_CANCEL in next(e for e in entries if e.actor == "system").detail_json


async def test_each_publish_archive_and_deletion_is_one_line(edges: Edges) -> None:
    """C8: found by the definition; who, why, and the server's id of the call."""
    stub = WorkflowDefinitionServiceStub(edges.channel)
    definition = message(order())
    created = await stub.CreateWorkflowDefinition(
        definitions.CreateWorkflowDefinitionRequest(
            family_slug=definition.family_slug, title=definition.title, steps=definition.steps, edges=definition.edges
        ),
        metadata=META,
    )
    calls: list[Any] = [
        await stub.PublishWorkflowDefinition(definitions.PublishWorkflowDefinitionRequest(id=created.data.id, reason="go live"), metadata=META),
        await stub.ArchiveWorkflowDefinition(definitions.ArchiveWorkflowDefinitionRequest(id=created.data.id, reason="broken"), metadata=META),
        await stub.DeleteWorkflowDraft(definitions.DeleteWorkflowDraftRequest(id=created.data.id, reason="no more"), metadata=META),
    ]  # fmt: skip
    request = reads.ListAuditRequest(
        target=f"definition:{created.data.id}", payload_format=common_pb2.PAYLOAD_FORMAT_JSON
    )
    entries = list((await edges.reads.ListAudit(request, metadata=META)).data)[::-1]
    assert _said(entries) == [
        (action, "anonymous", reason, call.metadata.request_id, "applied")
        for (action, reason), call in zip(
            (("publish", "go live"), ("archive", "broken"), ("delete_draft", "no more")), calls, strict=True
        )
    ]
    assert all('"version":1' in e.detail_json.replace(" ", "") for e in entries[:2])
