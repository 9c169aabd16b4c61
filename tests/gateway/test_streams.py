"""Server streams at every door: server-sent events, Connect and gRPC-Web; errors before and in the middle, callers that leave, a stop (AP-06, KB-01, TN-01)."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from connectrpc.code import Code
from connectrpc.errors import ConnectError
from connectrpc.protocol import ProtocolType

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductor.workflow.v1.workflow_service_connect import WorkflowServiceClient
from ductord.rpc.errors import refused
from tests.gateway.peers import Running, fault, running

pytestmark = pytest.mark.asyncio(loop_scope="module")

RUN_ID = "0190b6f0-5a1c-7cc0-8000-00000000000a"
OTHER_ID = "0190b6f0-5a1c-7cc0-8000-00000000000b"
PATH = f"/api/workflows/runs/{RUN_ID}/watch"
ACME = {"x-tenant-id": "acme"}
PROTOCOLS = pytest.mark.parametrize(
    "protocol", [ProtocolType.CONNECT, ProtocolType.GRPC_WEB], ids=lambda p: p.name.lower()
)


def _message(seq: int, **fields: Any) -> reads.WatchRunResponse:
    node = run_pb2.StepState(step_ref="pages", fan=run_pb2.FanState(expected=3, succeeded=seq))
    return reads.WatchRunResponse(
        kind=reads.WATCH_KIND_CHANGE, run_id=RUN_ID, first_seq=seq, seq=seq, nodes=[node], **fields
    )


class Source:
    """Answers `count` messages, then ends, raises or waits for ever."""

    def __init__(self, count: int, *, error: Exception | None = None, endless: bool = False) -> None:
        self.count, self.error, self.endless = count, error, endless
        self.left = asyncio.Event()

    async def __call__(self, request: Any) -> AsyncIterator[reads.WatchRunResponse]:
        try:
            for seq in range(1, self.count + 1):
                yield _message(seq)
            if self.error is not None:
                raise self.error
            if self.endless:
                await asyncio.Event().wait()
        finally:
            self.left.set()


class Event:
    """One server-sent event."""

    def __init__(self, text: str) -> None:
        fields = [line.partition(": ")[::2] for line in text.split("\n")]
        self.fields = dict(fields)
        assert len(self.fields) == len(fields), text
        self.data = json.loads(self.fields["data"])


async def _events(response: httpx.Response, count: int | None = None) -> list[Event]:
    """The first events, or all."""
    found: list[Event] = []
    rest = ""
    async for text in response.aiter_text():
        rest += text
        *whole, rest = rest.split("\n\n")
        found += [Event(event) for event in whole]
        if count is not None and len(found) >= count:
            return found
    assert not rest
    return found


async def test_each_message_is_an_event_in_the_dialect_of_rest(gateway: Running) -> None:
    gateway.peers.answers["WatchRun"] = Source(3)
    async with gateway.http.stream("GET", f"{PATH}?follow=true&min_interval_ms=50") as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream"
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-request-id"]
        events = await _events(response)
    assert [event.fields["id"] for event in events] == [f"{RUN_ID}:{seq}" for seq in (1, 2, 3)]
    assert [event.data["kind"] for event in events] == ["change"] * 3
    assert events[1].data["nodes"][0]["fan"]["succeeded"] == 2
    asked = gateway.peers.last
    assert asked.request == reads.WatchRunRequest(run_id=RUN_ID, follow=True, min_interval_ms=50)
    assert asked.caller.tenant_id == "acme"
    assert asked.remaining_s is None


async def test_events_come_as_they_happen_and_a_caller_that_leaves_ends_the_call(gateway: Running) -> None:
    source = gateway.peers.answers["WatchRun"] = Source(2, endless=True)
    async with gateway.http.stream("GET", PATH) as response:
        assert len(await _events(response, 2)) == 2
        assert not source.left.is_set()
    async with asyncio.timeout(60):
        await source.left.wait()


async def test_the_last_event_id_goes_on_where_the_stream_was(gateway: Running) -> None:
    """Browsers send it by themselves; it may name the successor that was followed; a field of the query wins."""
    for given, query, wanted in (
        (f"{RUN_ID}:7", "", (RUN_ID, 7)),
        (f"{OTHER_ID}:2", "?follow=true", (OTHER_ID, 2)),
        (f"{RUN_ID}:7", "?after_seq=3", (RUN_ID, 3)),
    ):
        response = await gateway.http.get(PATH + query, headers={"last-event-id": given})
        assert (response.status_code, response.content) == (200, b"")
        asked = gateway.peers.last.request
        assert (asked.run_id, asked.after_seq) == wanted
    for given in ("7", f"{RUN_ID}:-1", f"{RUN_ID}:", "x:1"):
        response = await gateway.http.get(PATH, headers={"last-event-id": given})
        assert fault(response)[:3] == (400, "INVALID_ARGUMENT", "FIELD_INVALID")


async def test_an_error_before_the_first_message_is_an_ordinary_one(gateway: Running) -> None:
    gateway.peers.answers["WatchRun"] = Source(0, error=refused("RUN_NOT_FOUND", "there is no such run"))
    assert fault(await gateway.http.get(PATH))[:3] == (404, "NOT_FOUND", "RUN_NOT_FOUND")
    assert fault(await gateway.http.get(f"{PATH}?nonsense=1"))[0] == 400
    assert fault(await gateway.http.post(PATH))[2] == "METHOD_NOT_ALLOWED"
    async with httpx.AsyncClient(base_url=gateway.http.base_url) as nobody:
        assert fault(await nobody.get(PATH))[2] == "TENANT_REQUIRED"


async def test_an_error_in_the_middle_is_the_last_event(gateway: Running) -> None:
    gateway.peers.answers["WatchRun"] = Source(1, error=refused("SERVICE_DRAINING", "stopping", retry_after_ms=500))
    async with gateway.http.stream("GET", PATH) as response:
        first, last = await _events(response)
    assert first.data["seq"] == 1
    assert last.fields["event"] == "error"
    assert last.data["error"]["status"] == "UNAVAILABLE"
    assert last.data["error"]["details"][0]["reason"] == "SERVICE_DRAINING"
    gateway.peers.answers["WatchRun"] = Source(1, error=RuntimeError("secret"))
    async with gateway.http.stream("GET", PATH) as response:
        _, last = await _events(response)
    assert last.data["error"]["status"] == "INTERNAL"
    assert "secret" not in json.dumps(last.data)


async def test_a_head_of_a_stream_asks_nobody(gateway: Running) -> None:
    response = await gateway.http.head(PATH)
    assert (response.status_code, response.headers["content-type"]) == (200, "text/event-stream")
    assert not gateway.peers.calls


async def test_a_deadline_of_the_callers_own_ends_a_stream(gateway: Running) -> None:
    source = gateway.peers.answers["WatchRun"] = Source(1, endless=True)
    async with gateway.http.stream("GET", PATH, headers={"x-request-timeout": "2.5"}) as response:
        _, last = await _events(response)
    assert last.data["error"]["status"] == "DEADLINE_EXCEEDED"
    async with asyncio.timeout(60):
        await source.left.wait()


@PROTOCOLS
async def test_the_generated_client_streams(gateway: Running, protocol: ProtocolType) -> None:
    gateway.peers.answers["WatchRun"] = Source(3)
    async with WorkflowServiceClient(str(gateway.http.base_url), protocol=protocol) as client:
        answers: Any = client.watch_run(reads.WatchRunRequest(run_id=RUN_ID), headers=ACME)
        assert [answer.seq async for answer in answers] == [1, 2, 3]
        gateway.peers.answers["WatchRun"] = Source(1, error=refused("RUN_NOT_FOUND", "gone"))
        answers = client.watch_run(reads.WatchRunRequest(run_id=RUN_ID), headers=ACME)
        assert (await anext(answers)).seq == 1
        with pytest.raises(ConnectError) as raised:
            await anext(answers)
    assert raised.value.code is Code.NOT_FOUND
    assert gateway.peers.last.caller.tenant_id == "acme"


@PROTOCOLS
async def test_a_client_that_leaves_ends_the_call(gateway: Running, protocol: ProtocolType) -> None:
    source = gateway.peers.answers["WatchRun"] = Source(1, endless=True)
    async with WorkflowServiceClient(str(gateway.http.base_url), protocol=protocol) as client:
        answers: Any = client.watch_run(reads.WatchRunRequest(run_id=RUN_ID), headers=ACME)
        assert (await anext(answers)).seq == 1
        await answers.aclose()
    async with asyncio.timeout(60):
        await source.left.wait()


async def test_connect_json_streams_in_envelopes(gateway: Running) -> None:
    """The envelope of Connect: one flag byte, four of length; the last message has the end."""
    gateway.peers.answers["WatchRun"] = Source(2)
    body = json.dumps({"runId": RUN_ID, "afterSeq": 1}).encode()
    response = await gateway.http.post(
        "/ductor.workflow.v1.WorkflowService/WatchRun",
        content=b"\0" + len(body).to_bytes(4, "big") + body,
        headers={"content-type": "application/connect+json"},
    )
    assert (response.status_code, response.headers["content-type"]) == (200, "application/connect+json")
    messages, content = [], response.content
    while content:
        size = int.from_bytes(content[1:5], "big")
        messages.append((content[0], json.loads(content[5 : 5 + size])))
        content = content[5 + size :]
    assert [flag for flag, _ in messages] == [0, 0, 2]
    assert messages[1][1]["nodes"][0]["fan"]["succeeded"] == 2
    assert "error" not in messages[2][1]


async def test_a_gateway_that_stops_ends_its_streams_kb_01() -> None:
    """KB-01: a stream does not hold up the stop, and its caller is told that it may ask again."""
    async with running() as gateway:
        source = gateway.peers.answers["WatchRun"] = Source(1, endless=True)
        async with gateway.http.stream("GET", PATH) as response:
            told = asyncio.create_task(_events(response))
            async with asyncio.timeout(60):
                await gateway.host._stop()
                first, last = await told
                await source.left.wait()
        assert first.data["seq"] == 1
        assert last.data["error"]["details"][0]["reason"] == "SERVICE_DRAINING"
