"""Streams of WatchRun, as a caller has them."""

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from grpc.aio import EOF  # type: ignore[attr-defined]  # not in the stubs

from ductor.workflow.v1 import workflow_service_pb2 as reads
from ductord.rpc.errors import refusal_from
from tests.coordinator.conftest import Ticker
from tests.support.books import TENANT, Books
from tests.support.edges import Edges, as_tenant

META = as_tenant(TENANT)
STATE, CHANGE, HEARTBEAT = reads.WATCH_KIND_STATE, reads.WATCH_KIND_CHANGE, reads.WATCH_KIND_HEARTBEAT


class Watch:
    """One open stream."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def next(self, *, beats: bool = False) -> reads.WatchRunResponse:
        """The next message; heartbeats are passed over unless asked for."""
        async with asyncio.timeout(60):
            while True:
                message: Any = await self.call.read()
                assert message is not EOF, "the stream has ended"
                if beats or message.kind != HEARTBEAT:
                    return message  # type: ignore[no-any-return]

    async def until(self, holds: Callable[[reads.WatchRunResponse], bool]) -> list[reads.WatchRunResponse]:
        """Messages up to the first that satisfies `holds`."""
        found = [await self.next()]
        while not holds(found[-1]):
            found.append(await self.next())
        return found

    async def over(self) -> None:
        """Nothing more comes."""
        async with asyncio.timeout(60):
            assert await self.call.read() is EOF


def watched(edges: Edges, run_id: str, *, tenant: str = TENANT, **fields: Any) -> Watch:
    """A stream that is as quick as one can be."""
    fields = {"min_interval_ms": 20} | fields
    return Watch(edges.reads.WatchRun(reads.WatchRunRequest(run_id=run_id, **fields), metadata=as_tenant(tenant)))


async def reason_of(watch: Watch) -> str:
    """Why the stream ends with an error."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await watch.next()
    return refusal_from(raised.value).reason


def are_told(messages: list[reads.WatchRunResponse], after: int) -> None:
    """Every transition after `after` is told once, in order."""
    for message in messages:
        assert (message.kind, message.first_seq) == (CHANGE, after + 1)
        after = message.seq


def statuses(message: reads.WatchRunResponse) -> dict[str, int]:
    """Of the nodes in a message."""
    return {node.step_ref: node.status for node in message.nodes}


async def goes_on(ticker: Ticker, books: Books) -> None:
    """Whatever is at work succeeds."""
    await books.report()
    await ticker.drain()
