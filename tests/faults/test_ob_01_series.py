"""OB-01: /metrics of every process stays as small as it is, whatever names, refs, texts and tenants pass through it."""

import asyncio
import secrets
from typing import Any

import grpc
import httpx
import pytest

from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1 import workflow_signal_service_pb2_grpc as rpc
from tests.faults.load import probed
from tests.faults.workers import single
from tests.support.api import Api, chain
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]

MARK = "zq9x"
"""Is in everything that is random here; no series may hold it."""
COMING = ("ductor_queue_",)
"""Gauges of what comes and goes; a queue without tasks has none, and the number of queues has a cap of its own."""
SERIES = 1_300
"""More than any process has with every label value in use: most are the buckets of its RPCs, some fifteen of each."""
RARE = 20
"""Series that a process may come to have by chance: codes and reasons are few, and some of them are seldom (a transaction that is tried again). Fewer than the
tenants and families of the second half, which would have one each."""


async def _play(stack: Stack, tenants: int, runs: int) -> None:
    """Tenants, families, refs, keys, subjects, events, error codes and texts that nobody ever saw before."""

    async def one() -> None:
        async with Api(stack["edges"].target, _random()) as api:
            fails = single(_random(), "core:fail", "default", args={"code": _random(), "message": _random() * 20})
            for tree in (_renamed(chain(_random(), 2)), _renamed(fails)):
                await api.start_many(await api.publish(tree), runs, key=_random())
            event = signals.PublishEventRequest(event_name=_random(), correlation_key=_random(), event_id=_random())
            await rpc.WorkflowSignalServiceStub(api.channel).PublishEvent(event, metadata=api.metadata, timeout=60)
            await api.until_ended()

    for _ in range(0, tenants, 10):
        await asyncio.gather(*(one() for _ in range(10)))
    await _ask_for_what_is_not_there(stack, tenants)


async def _ask_for_what_is_not_there(stack: Stack, times: int) -> None:
    """Paths of HTTP, names of RPCs and ids that nobody serves."""
    unknown = ("/", "/workflow/v1/definitions/", "/ductor.workflow.v1.WorkflowService/")
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{stack['gateway'].http_port}", timeout=60) as http:
        for _ in range(times):
            for path in unknown:
                answer = await http.post(path + _random(), json={_random(): 1}, headers={"X-Tenant-ID": _random()})
                assert answer.status_code >= 400
            answer = await http.request(_random().upper(), f"/{_random()}")
            assert answer.status_code >= 400
    async with grpc.aio.insecure_channel(stack["edges"].target) as channel:
        for _ in range(times):
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary(f"/{_random()}/{_random()}", None, None)(b"")


def _random() -> str:
    return f"{MARK}{secrets.token_hex(6)}"


def _renamed(tree: dict[str, Any]) -> dict[str, Any]:
    names = {step["ref"]: _random() for step in tree["steps"]}
    for step in tree["steps"]:
        step["ref"] = names[step["ref"]]
    for edge in tree["edges"]:
        edge["source_ref"], edge["target_ref"] = names[edge["source_ref"]], names[edge["target_ref"]]
    return tree


async def _series(stack: Stack) -> dict[str, set[str]]:
    """Series by process."""
    found = {}
    for name, member in stack.members.items():
        status, text = await probed(member, "/metrics")
        assert status == 200
        assert MARK not in text
        found[name] = {
            line.rsplit(" ", 1)[0] for line in text.splitlines() if line and not line.startswith(("#", *COMING))
        }
    return found


async def test_ob_01_series_are_bounded(stack: Stack) -> None:
    """OB-01: what 20 tenants with 40 families brought in series, 60 more tenants with 120 families and 1,200 runs hardly add to."""
    edges = stack["edges"].target
    names = ("DEFINITION", "TRIGGER", "RUN_CONTROL", "SIGNALS", "READS", "ADMIN")
    targets = {f"DUCTOR_{name}_TARGET": edges for name in names}
    gateway = stack.add("gateway", ["gateway"], http=True, DUCTOR_DISPATCH_TARGET=stack["dispatch0"].target, **targets)
    try:
        await asyncio.to_thread(gateway.wait_ready)
        await _play(stack, 20, 10)
        before = await _series(stack)
        await _play(stack, 60, 10)
        after = await _series(stack)
    finally:
        stack.members.pop("gateway").terminate()
    for name in after:
        assert len(after[name]) < SERIES, sorted(after[name])
        assert len(after[name] - before[name]) < RARE, (name, after[name] - before[name])
