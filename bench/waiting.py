"""Steps that wait: what an event, a timer and a decision cost, and how late they are.

Events are published over gRPC to waits of which each listens to a key of its own: what one costs must not depend on how many others wait. Times are the
database's; a decision is timed from the caller's side of the call to the moment when a worker has the next step.
"""

import asyncio
import itertools
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from bench.load import TENANT, pids
from bench.usage import cpu_seconds
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1 import workflow_signal_service_pb2_grpc as signals_grpc
from ductor.workflow.v1 import workflow_trigger_service_pb2 as triggers
from tests.support.api import Api
from tests.support.stack import Stack

CALLERS = 32
"""Publishing calls in flight."""
KEYS = 100
"""Waits that the events go to, however many others there are."""
RATIO = 1.5
"""How much dearer an event may be with a hundred times as many waiters."""


async def events(stack: Stack, *, few: int, many: int, count: int) -> dict[str, Any]:
    """Events published per second with `few` and with `many` waiters, those that match one wait each and those that match none; `ratio_…`: how much dearer an
    event is with many. CPU is that of Postgres and of the signals service: it tells the same on a machine that has neighbours."""
    figures: dict[str, Any] = {"events": count}
    for waiters in (few, many):
        figures[str(waiters)] = await _events(stack, waiters, count, min(KEYS, few))
    for kind in ("matched", "unmatched"):
        cheap, dear = figures[str(few)], figures[str(many)]
        figures[f"ratio_{kind}"] = round(cheap[f"{kind}_per_s"] / dear[f"{kind}_per_s"], 2)
        figures[f"cpu_ratio_{kind}"] = round(dear[f"{kind}_cpu_us"] / cheap[f"{kind}_cpu_us"], 2)
    return figures


async def _events(stack: Stack, waiters: int, count: int, keys: int) -> dict[str, float]:
    """A set that counts more events than there will be stays open, so each event matches exactly one wait of as many as before. They go on waiting after."""
    slug = f"events{waiters}"
    collects: dict[str, Any] = {
        "correlation_key": "TRIGGER.payload.key",
        "requirements": [{"name": "any", "event_name": slug}],
        "completion_policy": "count",
        "count": 10_000,
    }
    tree = {"family_slug": slug, "steps": [{"ref": "collect", "type": "event_set", "event_set": collects}]}
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    try:
        async with Api(stack["edges"].target, TENANT) as api:
            definition_id = await api.publish(tree)
            await _start(api, definition_id, [{"key": f"k{number}"} for number in range(waiters)])
            listening = "select count(*) from eec_workflow_wait where event_name = $1 and close_time is null"
            await until(owner, listening, waiters, slug)
            await owner.execute("vacuum analyze eec_workflow_wait, eec_workflow_timer, eec_workflow_run")
            stub = signals_grpc.WorkflowSignalServiceStub(api.channel)
            ids = itertools.count()

            async def publish(key: str, matched: int) -> None:
                event = signals.PublishEventRequest(event_name=slug, correlation_key=key, event_id=f"{key}-{next(ids)}")
                answer = await stub.PublishEvent(event, metadata=api.metadata, timeout=60)
                assert answer.matched == matched, answer

            applied = "select count(*) from eec_workflow_receipt where applied_time is null"
            await rate(stack, count // 4, lambda number: publish(f"k{number % keys}", 1))
            await until(owner, applied, 0)
            unmatched = await rate(stack, count, lambda _: publish("nobody", 0))
            matched = await rate(stack, count, lambda number: publish(f"k{number % keys}", 1))
            await until(owner, applied, 0)
    finally:
        await owner.close()
    kinds = {"matched": matched, "unmatched": unmatched}
    return {
        **{f"{kind}_per_s": rate for kind, (rate, _) in kinds.items()},
        **{f"{kind}_cpu_us": cpu for kind, (_, cpu) in kinds.items()},
    }


async def rate(stack: Stack, count: int, call: Callable[[int], Awaitable[None]]) -> tuple[float, float]:
    """Calls per second, `CALLERS` of them in flight, and microseconds of CPU per call."""
    numbers = iter(range(count))

    async def caller() -> None:
        for number in numbers:
            await call(number)

    def used() -> float:
        return sum(cpu_seconds({name: pids(stack)[name] for name in ("postgres", "edges")}).values())

    before, begin = used(), time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    seconds = time.perf_counter() - begin
    return round(count / seconds, 1), round((used() - before) / count * 1e6, 1)


async def timers(stack: Stack, *, count: int) -> dict[str, Any]:
    """Timers fired per second when `count` runs wait for the same moment: from that moment until the last run has ended."""
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    try:
        async with Api(stack["edges"].target, TENANT) as api:
            definition_id = await api.publish(_until_a_moment("alarm"))
            at = datetime.now(UTC) + timedelta(seconds=4 + count / 500)
            await _start(api, definition_id, [{"at": at.isoformat()}] * count)
            await until(
                owner, "select count(*) from eec_workflow_timer where kind = 'wait' and due_time = $1", count, at
            )
            assert await owner.fetchval("select eec_now()") < at, "the runs were not parked in time"
            await _until_ended(owner, "alarm", count)
        first, last = await owner.fetchrow(
            "select extract(epoch from min(r.end_time) - $1)::float8, extract(epoch from max(r.end_time) - $1)::float8"
            " from eec_workflow_run_start s join eec_workflow_run r using (tenant_id, run_id) where s.family_slug = 'alarm'",
            at,
        )
        assert first >= 0, "no timer fires early"
    finally:
        await owner.close()
    return {
        "timers": count,
        "per_s": round(count / last),
        "first_after_s": round(first, 3),
        "last_after_s": round(last, 3),
    }


async def lateness(stack: Stack, *, count: int) -> dict[str, float]:
    """Milliseconds between a moment and the tick that fires it, with nothing else to do: ten moments a second, no two alike."""
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    try:
        async with Api(stack["edges"].target, TENANT) as api:
            definition_id = await api.publish(_until_a_moment("punctual"))
            begin = datetime.now(UTC) + timedelta(seconds=3)
            moments = [begin + timedelta(milliseconds=103 * number) for number in range(count)]
            await _start(api, definition_id, [{"at": moment.isoformat()} for moment in moments])
            await _until_ended(owner, "punctual", count)
        late = await owner.fetch(
            "select extract(epoch from r.end_time - (s.input ->> 'at')::timestamptz)::float8 * 1000 as ms"
            " from eec_workflow_run_start s join eec_workflow_run r using (tenant_id, run_id) where s.family_slug = 'punctual'"
        )
        assert min(row["ms"] for row in late) >= 0, "no timer fires early"
    finally:
        await owner.close()
    return _percentiles([row["ms"] for row in late])


async def decisions(stack: Stack, *, count: int) -> dict[str, float]:
    """Milliseconds from an ApproveStep call until a worker has the next step; one run at a time."""
    owner = await asyncpg.connect(stack.postgres.dsn("ductor"))
    tree = {
        "family_slug": "decided",
        "steps": [{"ref": "ask", "type": "approval"}, {"ref": "next", "type": "action", "action": "noop:noop"}],
        "edges": [{"source_ref": "ask", "target_ref": "next", "type": "approved"}],
    }
    try:
        async with Api(stack["edges"].target, TENANT) as api:
            run_ids = await api.start_many(await api.publish(tree), count + 10)
            waits = (
                "select count(*) from eec_workflow_run where run_id = any($1::uuid[])"
                " and node_states::jsonb -> 'ask' ->> 'status' = 'waiting'"
            )
            await until(owner, waits, len(run_ids), run_ids)
            stub = signals_grpc.WorkflowSignalServiceStub(api.channel)
            taken = "from eec_workflow_step_attempt where run_id = $1 and step_ref = 'next' and start_time is not null"
            times = []
            for run_id in run_ids:
                asked = datetime.now(UTC)
                request = signals.ApproveStepRequest(run_id=run_id, step_ref="ask", request_id="yes")
                await stub.ApproveStep(request, metadata=api.metadata, timeout=30)
                await until(owner, f"select count(*) {taken}", 1, run_id)
                at = await owner.fetchval(f"select start_time {taken}", run_id)
                times.append((at - asked).total_seconds() * 1000)
    finally:
        await owner.close()
    return _percentiles(times[10:])


def table(figures: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What the benchmark prints of it. `figures`: of the whole benchmark."""
    rows: list[tuple[str, Any]] = []
    if "events" in figures:
        found = figures["events"]
        rates = ", ".join(
            f"{waiters} waiters {rate['matched_per_s']} matched, {rate['unmatched_per_s']} unmatched"
            for waiters, rate in found.items()
            if isinstance(rate, Mapping)
        )
        dearer = (
            f"{found['ratio_matched']} matched, {found['ratio_unmatched']} unmatched (promised {RATIO}); in CPU"
            f" {found['cpu_ratio_matched']}, {found['cpu_ratio_unmatched']}"
        )
        rows += [("events published/s", rates), ("the same, how much dearer with many waiters", dearer)]
    if "timers" in figures:
        rows.append((f"timers fired/s, {figures['timers']['timers']} due at once", figures["timers"]["per_s"]))
    names = {
        "timer_lateness_ms": "timer lateness on an idle stack, ms",
        "approve_to_next_step_ms": "approve to next step, ms",
    }
    return rows + [(title, figures[key]) for key, title in names.items() if key in figures]


def _until_a_moment(slug: str) -> dict[str, Any]:
    wait = {"timestamp": "${{ TRIGGER.payload.at }}"}
    return {"family_slug": slug, "steps": [{"ref": "wait", "type": "wait", "wait": wait}]}


async def _start(api: Api, definition_id: str, inputs: list[dict[str, Any]]) -> None:
    for begin in range(0, len(inputs), 500):
        items = [triggers.BatchTriggerItem(input_json=json.dumps(item)) for item in inputs[begin : begin + 500]]
        request = triggers.BatchTriggerWorkflowRequest(definition_id=definition_id, items=items)
        answer = await api.triggers.BatchTriggerWorkflow(request, metadata=api.metadata, timeout=60)
        assert all(result.run_id for result in answer.results), answer


async def until(owner: asyncpg.Connection, count: str, wanted: int, *values: Any) -> None:
    """Until a count is reached: rows have no event."""
    deadline = time.monotonic() + 300
    while (found := await owner.fetchval(count, *values)) != wanted:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{found} of {wanted}: {count}")
        await asyncio.sleep(0.05)


async def _until_ended(owner: asyncpg.Connection, slug: str, count: int) -> None:
    ended = (
        "select count(*) from eec_workflow_run_start s join eec_workflow_run r using (tenant_id, run_id)"
        " where s.family_slug = $1 and r.end_time is not null"
    )
    await until(owner, ended, count, slug)


def _percentiles(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    return {
        "p50": round(statistics.median(times), 1),
        "p99": round(times[min(int(len(times) * 0.99), len(times) - 1)], 1),
    }
