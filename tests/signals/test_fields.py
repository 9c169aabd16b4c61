"""Bad input per field, with the coded error that names it, and no effect (PL-01, PL-03, PL-04, L6, L7)."""

from typing import Any

import pytest

from tests.signals.sender import Sender
from tests.signals.standing import Desk

BIG = "x" * (1 << 20)
STEP = {"step_ref": "ap"}
NAME = {"event_name": "paid"}
DEEP = "[" * 33 + "]" * 33

SIGNALS: list[tuple[dict[str, Any], str, str]] = [
    ({"step_ref": ""}, "FIELD_REQUIRED", "step_ref"),
    ({"step_ref": "ap\0"}, "FIELD_INVALID", "step_ref"),
    ({"run_id": ""}, "FIELD_REQUIRED", "run_id"),
    ({"request_id": "é" * 129}, "FIELD_INVALID", "request_id"),
    ({"request_id": "a\0b"}, "FIELD_INVALID", "request_id"),
    ({"comment": "é" * 2049}, "FIELD_INVALID", "comment"),
    ({"comment": "\0"}, "FIELD_INVALID", "comment"),
]
PAYLOADS: list[tuple[dict[str, Any], str, str]] = [
    ({"payload": {"a": "x\0y"}}, "PAYLOAD_INVALID", "payload"),
    ({"payload": {"k\0": 1}}, "PAYLOAD_INVALID", "payload"),
    ({"payload": 2**53}, "PAYLOAD_INVALID", "payload"),
    ({"payload": {"a": BIG}}, "PAYLOAD_TOO_LARGE", "payload"),
    ({"payload": 1, "payload_json": "1"}, "FIELDS_EXCLUSIVE", "payload"),
    ({"payload_json": '{"a":"x\\u0000y"}'}, "PAYLOAD_INVALID", "payload_json"),
    ({"payload_json": '"\\ud800"'}, "PAYLOAD_INVALID", "payload_json"),
    ({"payload_json": "NaN"}, "PAYLOAD_INVALID", "payload_json"),
    ({"payload_json": "1e999"}, "PAYLOAD_INVALID", "payload_json"),
    ({"payload_json": "18446744073709551616"}, "PAYLOAD_INVALID", "payload_json"),
    ({"payload_json": '{"a":1,"a":2}'}, "PAYLOAD_INVALID", "payload_json"),
    ({"payload_json": DEEP}, "PAYLOAD_INVALID", "payload_json"),
    ({"payload_json": "{"}, "PAYLOAD_INVALID", "payload_json"),
    ({"payload_json": ""}, "PAYLOAD_INVALID", "payload_json"),
    ({"payload_json": f'"{BIG}"'}, "PAYLOAD_TOO_LARGE", "payload_json"),
]
EVENTS: list[tuple[dict[str, Any], str, str]] = [
    ({"event_name": ""}, "FIELD_REQUIRED", "event_name"),
    ({"event_name": "é" * 129}, "FIELD_INVALID", "event_name"),
    ({"event_name": "\0"}, "FIELD_INVALID", "event_name"),
    ({"correlation_key": "x" * 257}, "FIELD_INVALID", "correlation_key"),
    ({"correlation_key": "a\0"}, "FIELD_INVALID", "correlation_key"),
    ({"event_id": "x" * 257}, "FIELD_INVALID", "event_id"),
    ({"event_id": "\0"}, "FIELD_INVALID", "event_id"),
]
BAD: list[Any] = [
    *((rpc, {**STEP, **fields}, *told) for rpc in ("ApproveStep", "RejectStep", "ResolveInteraction") for fields, *told in SIGNALS),
    *((rpc, {**STEP, **fields}, *told) for rpc in ("ApproveStep", "ResolveInteraction") for fields, *told in PAYLOADS),
    *((rpc, {**NAME, **fields}, *told) for rpc in ("PublishEvent", "ExplainWorkflowEventSetMatch") for fields, *told in EVENTS + PAYLOADS),
    ("ApproveStep", {**STEP, "approver_id": "x" * 257}, "FIELD_INVALID", "approver_id"),
    ("RejectStep", {**STEP, "approver_id": "\0"}, "FIELD_INVALID", "approver_id"),
    ("ResolveInteraction", {**STEP, "status": "x" * 257}, "FIELD_INVALID", "status"),
    ("ResolveInteraction", {**STEP, "status": "\0"}, "FIELD_INVALID", "status"),
    ("ResolveInteraction", {**STEP, "resolved_by": "x" * 257}, "FIELD_INVALID", "resolved_by"),
    ("ResolveInteraction", {"step_ref": "case", "payload": [1]}, "FIELD_INVALID", "payload"),
    ("ResolveInteraction", {"step_ref": "case", "payload_json": "7"}, "FIELD_INVALID", "payload"),
    ("PublishEvent", {**NAME, "ttl_seconds": -1}, "FIELD_INVALID", "ttl_seconds"),
    ("PublishEvent", {**NAME, "ttl_seconds": 86_401}, "FIELD_INVALID", "ttl_seconds"),
    ("ListWaitReceipts", {"step_ref": ""}, "FIELD_REQUIRED", "step_ref"),
    ("ListWaitReceipts", {**STEP, "page_size": 1001}, "FIELD_INVALID", "page_size"),
]  # fmt: skip


async def test_bad_input(sender: Sender, desk: Desk) -> None:
    """INVALID_ARGUMENT with the field's name; nothing is stored and nobody is woken."""
    run_id = await desk.open()
    for rpc, fields, reason, field in BAD:
        run: dict[str, Any] = {} if rpc in ("PublishEvent", "ExplainWorkflowEventSetMatch") else {"run_id": run_id}
        refused = await sender.refused(rpc, **{**run, **fields})
        told = (refused.code, refused.reason, refused.metadata["field"])
        assert told == ("INVALID_ARGUMENT", reason, field), (rpc, str(fields)[:100])
    assert [*await desk.signals(run_id), *await desk.receipts(), *await desk.events()] == []
    assert await desk.wakeups(run_id) == 0


@pytest.mark.parametrize("key", ["é/:% \U0001f600\n" * 23 + "abc", " a ", "a'b\"c\\", "x" * 256])
async def test_keys_are_taken_as_they_are(key: str, sender: Sender, desk: Desk) -> None:
    """PG-09: up to 256 bytes, nothing trimmed, every character but NUL."""
    run_id = await desk.open(name=key, key=key)
    assert await sender.told(key, key, event_id=key) == (1, False)
    assert await sender.told(key, key, event_id=key) == (0, True)
    assert await desk.receipts(run_id) == [("ev", 1, "", key)]
    await sender.call(
        "ApproveStep", run_id=run_id, step_ref="ap", request_id=key, approver_id=key, comment="\U0001f600" * 1024
    )
    [row] = await desk.signals(run_id)
    assert (row["request_id"], row["approver_id"], row["comment"]) == (key, key, "\U0001f600" * 1024)


async def test_payloads_are_exact(sender: Sender, desk: Desk) -> None:
    """L5: what came by the twin is in the row to the digit; the order of keys makes no other request of it."""
    run_id = await desk.run()
    for text in ('{"b": 9007199254740993, "a": [1.5, null]}', '{"a":[1.50,null],"b":9007199254740993}'):
        await sender.call("ApproveStep", run_id=run_id, step_ref="ap", request_id="r", payload_json=text)
    [row] = await desk.signals(run_id)
    assert row["payload"] == '{"b":9007199254740993,"a":[1.5,null]}'


async def test_the_largest_payload_that_is_allowed(sender: Sender, desk: Desk) -> None:
    """L7: a megabyte of JSON, by both doors."""
    run_id = await desk.open()
    text = "x" * ((1 << 20) - 2)
    await sender.call("ApproveStep", run_id=run_id, step_ref="ap", payload_json=f'"{text}"')
    await sender.call("ResolveInteraction", run_id=run_id, step_ref="sig", payload=text)
    assert await sender.told(payload=text) == (1, False)
    assert [len(row["payload"]) for row in await desk.signals(run_id)] == [1 << 20] * 2
