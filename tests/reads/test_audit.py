"""The audit trail as it is read: a run's, a definition's, a tenant's (ruling C8)."""

import datetime
import json
from typing import Any

import asyncpg
from google.protobuf import json_format

from ductor.workflow.v1 import common_pb2, run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.db.ids import new_id
from ductord.rpc.answers import timestamp
from tests.support.books import TENANT
from tests.support.edges import Catalogue, Edges, as_tenant, refusal

BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


async def _list(edges: Edges, *, tenant: str = TENANT, **filters: Any) -> reads.ListAuditResponse:
    return await edges.reads.ListAudit(reads.ListAuditRequest(**filters), metadata=as_tenant(tenant), timeout=60)


async def _of_run(edges: Edges, run_id: str, **fields: Any) -> reads.GetRunAuditResponse:
    request = reads.GetRunAuditRequest(run_id=run_id, **fields)
    return await edges.reads.GetRunAudit(request, metadata=as_tenant(TENANT), timeout=60)


async def _everything(edges: Edges, size: int, **filters: Any) -> list[str]:
    found: list[str] = []
    token = ""
    while True:
        page = await _list(edges, page_size=size, page_token=token, **filters)
        assert len(page.data) <= size
        found += [entry.audit_id for entry in page.data]
        if not (token := page.next_page_token):
            return found


async def _write(owner: asyncpg.Connection, target: str, action: str, actor: str, count: int, **fields: str) -> None:
    """Lines of one act, three at each instant."""
    await owner.executemany(
        "insert into eec_workflow_audit (tenant_id, audit_id, at, actor, action, target, reason, request_id, outcome, detail)"
        " values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10::jsonb)",
        [
            (TENANT, new_id(), BEGIN + datetime.timedelta(seconds=n // 3), actor, action, target, fields.get("reason", ""),
             f"r{n}", fields.get("outcome", "applied"), fields.get("detail", "{}"))
            for n in range(count)
        ],
    )  # fmt: skip


async def _newest_first(owner: asyncpg.Connection, condition: str = "true") -> list[str]:
    rows = await owner.fetch(f"select audit_id::text from eec_workflow_audit where {condition} order by at desc, audit_id desc")  # fmt: skip
    return [row[0] for row in rows]


async def test_a_tenants_trail_by_every_filter(edges: Edges, owner: asyncpg.Connection) -> None:
    """C8: target, action, actor, times, alone and together; newest first; every line once whatever the size of a page."""
    await _write(owner, "run:a", "cancel", "ann", 10)
    await _write(owner, "run:b", "pause", "ann", 10)
    await _write(owner, "definition:d", "publish", "bob", 10)
    since = timestamp(BEGIN + datetime.timedelta(seconds=1))
    for filters, condition in (
        ({}, "true"),
        ({"target": "run:a"}, "target = 'run:a'"),
        ({"action": "publish"}, "action = 'publish'"),
        ({"actor": "ann"}, "actor = 'ann'"),
        ({"actor": "ann", "action": "pause", "target": "run:b"}, "target = 'run:b'"),
        ({"created_after": since}, "at > '2026-01-01T00:00:01Z'"),
        ({"created_before": since, "actor": "bob"}, "at < '2026-01-01T00:00:01Z' and actor = 'bob'"),
    ):
        expected = await _newest_first(owner, condition)
        assert expected
        for size in (1, 4, 1000):
            assert await _everything(edges, size, **filters) == expected
    assert await _everything(edges, 10, actor="ann", action="publish") == []
    assert await _everything(edges, 10, tenant="other") == []
    token = (await _list(edges, page_size=1)).next_page_token
    assert (await refusal(_list(edges, actor="ann", page_token=token))).reason == "PAGE_TOKEN_INVALID"
    wrong = timestamp(BEGIN)
    wrong.nanos = -1
    assert (await refusal(_list(edges, created_after=wrong))).metadata["field"] == "created_after"


async def test_the_trail_of_a_run(edges: Edges, catalogue: Catalogue, owner: asyncpg.Connection) -> None:
    """Oldest first, of this run alone; who, why, which request, what became of it, and what else is known."""
    definition_id = await catalogue.published()
    run_id = (await edges.start(definition_id)).run_id
    other = (await edges.start(definition_id)).run_id
    assert not (await _of_run(edges, run_id)).data
    detail = json.dumps({"new_run_id": other, "size": 2**53 + 1})
    await _write(owner, f"run:{run_id}", "reset", "ann", 4, reason="wrong input", detail=detail)
    await _write(owner, f"run:{other}", "cancel", "bob", 1)
    found: list[run_pb2.AuditEntry] = []
    token = ""
    while True:
        page = await _of_run(edges, run_id, page_size=3, page_token=token)
        found += page.data
        if not (token := page.next_page_token):
            break
    assert [entry.audit_id for entry in found] == (await _newest_first(owner, f"target = 'run:{run_id}'"))[::-1]
    first = found[0]
    assert (first.actor, first.action, first.target) == ("ann", "reset", f"run:{run_id}")
    assert (first.reason, first.outcome) == ("wrong input", "applied")
    assert first.request_id
    assert first.audit_time.ToDatetime(datetime.UTC) == BEGIN
    assert json.loads(first.detail_json)["size"] == 2**53 + 1, "a Struct would round it, so the twin is given"
    last = (await _of_run(edges, other)).data[0]
    assert json_format.MessageToDict(last.detail) == {}
    text = (await _of_run(edges, other, payload_format=common_pb2.PAYLOAD_FORMAT_JSON)).data[0]
    assert text.detail_json == "{}"
