"""Runs that go on while something breaks, and what must be true of them when it is over."""

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import grpc
import httpx

from ductord.rpc.errors import refusal_from
from tests.chaos.books import assert_whole
from tests.support.api import Api, chain
from tests.support.recorder import Recorder
from tests.support.stack import Member, Stack

STEPS = 3


async def until(condition: Callable[[], Awaitable[object] | object], seconds: float = 60) -> None:
    """Wait until a condition holds. Raises TimeoutError with the condition's last answer. The limit is for what never comes: it claims nothing about speed."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if isinstance(answer, Awaitable):
            answer = await answer
        if answer:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"still {answer!r} after {seconds} s")
        await asyncio.sleep(0.02)


def effects(slug: str, recorder: Recorder) -> dict[str, Any]:
    """A chain whose every step leaves a trace outside."""
    return chain(slug, STEPS, "http:request", args={"method": "POST", "url": f"{recorder.url}/ok"})


async def trickle(api: Api, definition_id: str, runs: int, seconds: float, *, batch: int = 5) -> list[str]:
    """Start runs over a time, in keyed batches that are repeated until they are accepted; their ids. Nothing started twice, nothing lost on the way."""
    begin = time.monotonic()
    run_ids: list[str] = []
    for number in itertools.count():
        if len(run_ids) >= runs:
            assert len(set(run_ids)) == len(run_ids) == runs
            return run_ids
        # The pace of the load, not a wait for anything.
        await asyncio.sleep(max(begin + seconds * len(run_ids) / runs - time.monotonic(), 0))
        while True:
            try:
                run_ids += await api.start_many(definition_id, batch, key=f"b{number}")
                break
            except grpc.RpcError as error:
                # A server that stops cancels a call that it has read and not yet begun; the key makes the repetition safe.
                if error.code() not in (
                    grpc.StatusCode.UNAVAILABLE,
                    grpc.StatusCode.ABORTED,
                    grpc.StatusCode.CANCELLED,
                ):
                    raise
                await asyncio.sleep(0.05)
    raise AssertionError("unreachable")


async def answered(call: Any, request: Any, api: Api) -> tuple[Any, int]:
    """The answer to a call that may be repeated, and at which try: a service gives up when it has lost five commits in a row."""
    tries = 0
    while True:
        tries += 1
        try:
            return await call(request, metadata=api.metadata, timeout=90), tries
        except grpc.aio.AioRpcError as error:
            if refusal_from(error).code != "UNAVAILABLE":
                raise


async def assert_each_effect_once(dsn: str, api: Api, run_ids: list[str], recorder: Recorder) -> None:
    """The runs are all there are, they completed, every step took one attempt, and the outside saw each key just once."""
    tenant = dict(api.metadata)["x-tenant-id"]
    owner = await asyncpg.connect(dsn)
    try:
        statuses = await assert_whole(owner, tenant=tenant)
        assert statuses == {"completed": len(run_ids)}
        rows = await owner.fetch(
            "select run_id::text, idempotency_key, attempt, status from eec_workflow_step_attempt where tenant_id = $1",
            tenant,
        )
    finally:
        await owner.close()
    assert {row["run_id"] for row in rows} == set(run_ids)
    odd = [row for row in rows if row["attempt"] != 1 or row["status"] != "succeeded"]
    assert odd == []
    assert len(rows) == STEPS * len(run_ids)
    assert recorder.calls == {row["idempotency_key"]: 1 for row in rows}


async def probed(of: Member | int, path: str) -> tuple[int, str]:
    """(status, body) of a probe of a process or a port, as a kubelet would ask; status 0 when there is no answer."""
    port = of if isinstance(of, int) else of.http_port
    try:
        async with httpx.AsyncClient(timeout=15) as client:
            answer = await client.get(f"http://127.0.0.1:{port}{path}")
    except httpx.HTTPError as error:
        return 0, type(error).__name__
    return answer.status_code, answer.text


async def metric(stack: Stack, name: str, label: str = "") -> float:
    """The sum of a metric over all processes of the stack, of the series that have a label (`reason="INTERNAL"`)."""
    total = 0.0
    for member in stack.members.values():
        status, text = await probed(member, "/metrics")
        assert status == 200
        lines = [line for line in text.splitlines() if line.startswith((f"{name}{{", f"{name} ")) and label in line]
        total += sum(float(line.rsplit(" ", 1)[1]) for line in lines)
    return total


async def backends(owner: asyncpg.Connection, name: str = "ductor-%") -> set[int]:
    """Process ids of the server's backends whose application is named so."""
    rows = await owner.fetch("select pid from pg_stat_activity where application_name like $1", name)
    return {row["pid"] for row in rows}


def output(row: asyncpg.Record) -> Any:
    """The output of an attempt."""
    return json.loads(row["output"])
