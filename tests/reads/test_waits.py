"""What a step waits for, as reads show it (spec: Node lifecycle; rulings E1 to E6, A3)."""

import datetime
from typing import Any

import asyncpg
from google.protobuf import json_format

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.model.enums import SignalVerb
from tests.coordinator.conftest import Ticker
from tests.coordinator.waiters import say, waiting
from tests.support.books import TENANT, Books
from tests.support.edges import Catalogue, Edges, as_tenant

META = as_tenant(TENANT)


async def _steps(edges: Edges, run_id: str) -> dict[str, run_pb2.StepState]:
    answer = await edges.reads.ListRunSteps(reads.ListRunStepsRequest(run_id=run_id), metadata=META, timeout=60)
    return {step.step_ref: step for step in answer.data}


async def _run(edges: Edges, run_id: str) -> run_pb2.RunDetail:
    answer = await edges.reads.GetRun(reads.GetRunRequest(run_id=run_id), metadata=META, timeout=60)
    return answer.data


async def _timeline(edges: Edges, run_id: str, size: int = 1000) -> list[run_pb2.TimelineEntry]:
    found: list[run_pb2.TimelineEntry] = []
    token = ""
    while True:
        request = reads.GetRunTimelineRequest(run_id=run_id, page_size=size, page_token=token, unified=True)
        page = await edges.reads.GetRunTimeline(request, metadata=META, timeout=60)
        found += page.data
        if not (token := page.next_page_token):
            return found


def _told(step: run_pb2.StepState) -> dict[str, Any]:
    """What the message says, without its times."""
    shown = json_format.MessageToDict(step.waiting, preserving_proto_field_name=True)
    return {name: value for name, value in shown.items() if not name.endswith("_time")}


async def test_every_kind_of_wait_says_what_it_waits_for(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """Type and what wakes it, in the list, in the step and in the run; times are the database's; nothing where a node is not parked."""
    manifest = waiting(
        'step nap type=wait wait={"duration": "2h"}',
        'step quiet type=wait wait={"until_expr": "STEPS[\\"calm\\"].status == \\"failed\\""}',
        "step calm",
        "calm -success-> quiet",
        'step paid type=wait wait={"event": {"event_name": "order.paid", "correlation_key": "\\"o1\\""}, "timeout_ms": 60000}',
        'step go type=wait wait={"signal": "go"}',
        'step review type=approval approval={"required": 2, "timeout_ms": 3600000}',
        'step kyc type=human_loop human_loop={"case_type": "kyc"}',
        'step parts type=event_set event_set={"correlation_key": "\\"o1\\"", "requirements":'
        ' [{"name": "stock", "event_name": "order.stock"}, {"name": "carrier", "event_name": "order.carrier"}]}',
        "step later",
        "nap -success-> later",
    )
    run_id = (await edges.start(await catalogue.published(manifest))).run_id
    await ticker.drain()
    await books.report()
    await ticker.drain()
    steps = await _steps(edges, run_id)
    assert {ref: _told(step) for ref, step in steps.items() if step.HasField("waiting")} == {
        "nap": {"type": "WAITING_TYPE_TIMER"},
        "quiet": {"type": "WAITING_TYPE_TIMER", "condition": 'STEPS["calm"].status == "failed"'},
        "paid": {"type": "WAITING_TYPE_EVENT", "event_name": "order.paid", "correlation_key": "o1"},
        "go": {"type": "WAITING_TYPE_SIGNAL", "signal": "go"},
        "review": {"type": "WAITING_TYPE_APPROVAL"},
        "kyc": {"type": "WAITING_TYPE_INTERACTION", "case_id": steps["kyc"].waiting.case_id} | _case(steps["kyc"]),
        "parts": {"type": "WAITING_TYPE_EVENT_SET", "correlation_key": "o1"},
    }
    assert steps["kyc"].waiting.case_id
    nap = steps["nap"].waiting
    assert nap.due_time.ToDatetime() - nap.since_time.ToDatetime() == datetime.timedelta(hours=2)
    assert not nap.HasField("timeout_time")
    paid = steps["paid"].waiting
    assert paid.timeout_time.ToDatetime() - paid.since_time.ToDatetime() == datetime.timedelta(minutes=1)
    assert steps["nap"].start_time == nap.since_time
    assert steps["later"].status == run_pb2.NODE_STATUS_PENDING
    alone = await edges.reads.GetRunStep(reads.GetRunStepRequest(run_id=run_id, step_id="paid"), metadata=META)
    assert alone.data.waiting == paid
    shown = {node.step_ref: node.waiting for node in (await _run(edges, run_id)).nodes if node.HasField("waiting")}
    assert shown == {ref: step.waiting for ref, step in steps.items() if step.HasField("waiting")}

    await say(books, run_id, SignalVerb.APPROVE, "review", request_id="r1")
    await ticker.drain()
    assert _told((await _steps(edges, run_id))["review"])["approvers"] == ["ann"]


def _case(step: run_pb2.StepState) -> dict[str, str]:
    return {"case_status": step.waiting.case_status} if step.waiting.case_status else {}


async def test_what_counts_for_a_set_is_shown(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker, owner: asyncpg.Connection
) -> None:
    """Receipts with the requirement that they met, and when; gone with the wait (E4)."""
    manifest = waiting(
        'step parts type=event_set event_set={"correlation_key": "\\"o1\\"", "requirements":'
        ' [{"name": "stock", "event_name": "order.stock"}, {"name": "carrier", "event_name": "order.carrier"}]}',
    )
    run_id = (await edges.start(await catalogue.published(manifest))).run_id
    await ticker.drain()
    await _receive(owner, run_id, "order.stock", "e1", "stock")
    await ticker.drain()
    (receipt,) = (await _steps(edges, run_id))["parts"].waiting.receipts
    assert (receipt.event_id, receipt.event_name, receipt.requirement) == ("e1", "order.stock", "stock")
    assert receipt.HasField("receive_time")
    await _receive(owner, run_id, "order.carrier", "e2", "carrier")
    await ticker.drain()
    step = (await _steps(edges, run_id))["parts"]
    assert (step.status, step.HasField("waiting")) == (run_pb2.NODE_STATUS_SUCCEEDED, False)
    received = [json_format.MessageToDict(e.detail)["received"] for e in await _timeline(edges, run_id) if e.type == "events_received"]  # fmt: skip
    assert [[e["event_id"] for e in events] for events in received] == [["e1"], ["e2"]]


async def _receive(owner: asyncpg.Connection, run_id: str, name: str, event_id: str, requirement: str) -> None:
    """An event and its receipt, as publishing leaves them."""
    await owner.execute(
        "with told as (insert into eec_workflow_event (tenant_id, event_name, event_id, correlation_key, payload, publish_time, dedupe_until, matched)"
        "              values ($1, $3, $4, 'o1', '{}', eec_now(), eec_now() + interval '1 day', 1) returning publish_time),"
        " woken as (insert into eec_workflow_wakeup (tenant_id, run_id) values ($1, $2))"
        " insert into eec_workflow_receipt (tenant_id, run_id, step_ref, attempt, event_name, event_id, requirement, receive_time)"
        " select $1, $2, 'parts', 1, $3, $4, $5, publish_time from told",
        TENANT, run_id, name, event_id, requirement,
    )  # fmt: skip


async def test_signals_are_woven_into_the_unified_timeline(
    edges: Edges, catalogue: Catalogue, books: Books, ticker: Ticker
) -> None:
    """E1: each where it was accepted and where it was settled (applied, ignored, discarded), like a control, also under a control's id; its payload is not
    repeated; pages of any size."""
    manifest = waiting(
        "step review type=approval",
        "step again type=approval",
        "step hold type=approval",
        "step never type=approval",
        "review -success-> again",
        "hold -success-> never",
    )
    run_id = (await edges.start(await catalogue.published(manifest))).run_id
    await ticker.drain()
    await say(books, run_id, SignalVerb.APPROVE, "never", request_id="r0", wake=False)
    await say(books, run_id, SignalVerb.APPROVE, "review", {"pin": "secret"}, request_id="r1")
    await say(books, run_id, SignalVerb.REJECT, "review", request_id="r2")
    await ticker.drain()
    await books.owner.execute(
        "insert into eec_workflow_intent (tenant_id, run_id, request_id, verb, body, body_hash, actor) values ($1, $2, 'r1', 'cancel', '{}', 'h', 'bob')",
        TENANT,
        run_id,
    )
    await books.owner.execute("insert into eec_workflow_wakeup (tenant_id, run_id) values ($1, $2)", TENANT, run_id)
    await ticker.drain()
    woven = await _timeline(edges, run_id)
    points = [(entry.type, entry.step_ref, json_format.MessageToDict(entry.detail)) for entry in woven if entry.event_index < 0]  # fmt: skip
    ann = {"approver_id": "ann", "comment": "because"}
    assert [(kind, ref, detail["request_id"]) for kind, ref, detail in points] == [
        ("signal_accepted", "never", "r0"),
        ("signal_accepted", "review", "r1"),
        ("signal_accepted", "review", "r2"),
        ("signal_applied", "review", "r1"),
        ("signal_ignored", "review", "r2"),
        ("control_accepted", "", "r1"),
        ("control_applied", "", "r1"),
        ("signal_discarded", "never", "r0"),
    ]
    assert points[1][2].items() >= ({"verb": "approve"} | ann).items()
    assert points[4][2] == {"verb": "reject", "request_id": "r2", "message": "the step had ended"}
    assert "secret" not in str(woven)
    times = [entry.event_time.ToMicroseconds() for entry in woven]
    assert times == sorted(times)
    kinds = [entry.type for entry in woven]
    assert kinds.index("signal_accepted") < kinds.index("node_ended") < kinds.index("signal_applied")
    for size in (1, 2, 3, 7):
        assert await _timeline(edges, run_id, size) == woven
