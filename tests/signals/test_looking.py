"""What changes nothing: an event tried out, and the events that a step has received."""

import asyncio
from typing import Any

from ductord.db.ids import new_id
from ductord.rpc.answers import timestamp
from tests.signals.sender import Sender
from tests.signals.standing import Desk


async def _explained(sender: Sender, **fields: Any) -> tuple[int, int, dict[str, int]]:
    answer = await sender.call(
        "ExplainWorkflowEventSetMatch", **{"event_name": "paid", "correlation_key": "k", **fields}
    )
    return answer.candidate_waits, answer.matched, {reason.code: reason.count for reason in answer.reasons}


async def test_why_an_event_would_match_or_not(sender: Sender, desk: Desk) -> None:
    """Counts of event sets and codes, nothing of what they hold; nothing is stored by it."""
    assert await _explained(sender) == (0, 0, {})
    match = await desk.open(step_ref="set", requirement="a", filter_="EVENT.payload.n == 1")
    await desk.open(match, "set", requirement="b", filter_="EVENT.payload.n == 2")  # of one set the best counts
    await desk.open(step_ref="set", requirement="a", filter_="EVENT.payload.n > 5")
    await desk.open(step_ref="set", requirement="a", filter_="EVENT.payload.missing == 1")
    await desk.open(step_ref="set", requirement="a", key="secret-key")
    await desk.open(step_ref="set", requirement="a", key=None)
    await desk.open(step_ref="set", requirement="a", name="shipped")
    await desk.open(step_ref="ev")  # not a set
    closed = await desk.open(step_ref="set", requirement="a")
    await desk.close(closed, "set")
    expected = {"correlation_key_differs": 1, "filter_false": 1, "filter_error": 1}
    assert await _explained(sender, payload={"n": 1}) == (5, 2, expected)
    assert await _explained(sender, payload={"n": 1}, run_id=match) == (1, 1, {})
    assert await _explained(sender, payload={"n": 3}, run_id=match) == (1, 0, {"filter_false": 1})
    assert await _explained(sender, payload={"n": 1}, run_id=closed) == (0, 0, {"wait_closed": 1})
    assert await _explained(sender, correlation_key="", run_id=match) == (1, 0, {"correlation_key_differs": 1})
    assert await desk.receipts() == await desk.events() == []


async def test_an_id_that_came_before(sender: Sender, desk: Desk) -> None:
    """An event that was published would be a duplicate, also for a set that opened since."""
    first = await desk.open(step_ref="set", requirement="a")
    assert await sender.told(event_id="e") == (1, False)
    await desk.open(step_ref="set", requirement="a")
    assert await _explained(sender, event_id="e") == (2, 0, {"already_received": 2})
    assert await _explained(sender, event_id="other") == (2, 2, {})
    await desk.age(24)
    assert await _explained(sender, event_id="e") == (2, 1, {"already_received": 1})
    assert await _explained(sender, event_id="e", run_id=first) == (1, 0, {"already_received": 1})


async def test_an_explanation_agrees_with_the_publication(sender: Sender, desk: Desk) -> None:
    sources = ["", "EVENT.payload > 3", "EVENT.payload < 3", "EVENT.payload.x", "EVENT.id == 'e4'"]
    for i, source in enumerate(sources * 3):
        await desk.open(step_ref="set", requirement="a", filter_=source, key=(None, "k", "other")[i % 3])
    for payload in range(6):
        event: dict[str, Any] = {"event_id": f"e{payload}", "payload": payload}
        _, matched, _ = await _explained(sender, **event)
        assert await sender.told(**event) == (matched, False)


async def test_receipts_page_by_page(sender: Sender, desk: Desk) -> None:
    """Oldest first, equal times neither lost nor doubled; only of the last wait."""
    run_id = await desk.open(step_ref="set", requirement="money")
    await asyncio.gather(*(sender.told(event_id=f"e{i:02}") for i in range(25)))
    await desk.owner.execute("update eec_workflow_receipt set receive_time = '2026-01-01' where event_id < 'e10'")
    seen: list[Any] = []
    token, pages = "", 0
    while token or not pages:
        page = await sender.call("ListWaitReceipts", run_id=run_id, step_ref="set", page_size=7, page_token=token)
        seen += page.data
        token, pages = page.next_page_token, pages + 1
    assert pages == 4
    assert len({r.event_id for r in seen}) == len(seen) == 25
    assert [r.event_id for r in seen[:10]] == [f"e{i:02}" for i in range(10)]
    assert {(r.event_name, r.requirement) for r in seen} == {("paid", "money")}
    times = [r.receive_time.ToDatetime() for r in seen]
    assert times == sorted(times)
    stored = await desk.owner.fetchval("select receive_time from eec_workflow_receipt where event_id = 'e24'")
    [last] = [r for r in seen if r.event_id == "e24"]
    assert last.receive_time == timestamp(stored)
    await desk.open(run_id, "set", requirement="money", attempt=2)
    assert not (await sender.call("ListWaitReceipts", run_id=run_id, step_ref="set")).data
    assert not (await sender.call("ListWaitReceipts", run_id=run_id, step_ref="act")).data
    for ref, run, reason in (("nope", run_id, "STEP_NOT_FOUND"), ("set", new_id(), "RUN_NOT_FOUND")):
        assert (await sender.refused("ListWaitReceipts", run_id=run, step_ref=ref)).reason == reason
    refused = await sender.refused("ListWaitReceipts", run_id=run_id, step_ref="ev", page_token=seen[0].event_id)
    assert refused.reason == "PAGE_TOKEN_INVALID"
