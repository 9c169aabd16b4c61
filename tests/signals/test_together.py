"""The signals service with coordinators beside it: what is accepted is applied, once, whatever happens at the same instant (E1, E2, E3; SE-01, SE-02, SE-03,
SE-05)."""

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from ductord.coordinator.service import SERVICE as COORDINATOR
from ductord.engine.compile import compile_definition
from ductord.model.manifest import Manifest
from ductord.signals.service import SERVICE
from tests.conftest import Database
from tests.signals.sender import Sender
from tests.signals.standing import Desk
from tests.support.books import Books
from tests.support.edges import serving

pytestmark = pytest.mark.timeout(240)

HOUR_MS = 3_600_000
KEY = "TRIGGER.payload.key"


def _alone(type_: str, fields: dict[str, Any]) -> Manifest:
    """A workflow of one step, `w`."""
    step = {"ref": "w", "type": type_, type_: fields}
    manifest = compile_definition({"family_slug": "alone", "steps": [step], "edges": []}).manifest
    assert manifest is not None
    return manifest


WAIT = _alone("wait", {"event": {"event_name": "paid", "correlation_key": KEY}})
SET = _alone(
    "event_set",
    {
        "correlation_key": KEY,
        "requirements": [{"name": "a", "event_name": "paid"}, {"name": "b", "event_name": "sent"}],
    },
)
TWO = _alone(
    "event_set",
    {
        "correlation_key": KEY,
        "requirements": [{"name": "a", "event_name": "paid"}],
        "completion_policy": "count",
        "count": 2,
    },
)


@pytest.fixture
async def senders(database: Database) -> AsyncIterator[tuple[Sender, Sender]]:
    """Two processes, each with the signals service and a coordinator."""
    async with (
        serving(database, [SERVICE, COORDINATOR], pool_max_size=4) as one,
        serving(database, [SERVICE, COORDINATOR], pool_max_size=4) as other,
    ):
        yield Sender(one), Sender(other)


async def _start(books: Books, manifest: Manifest, count: int) -> list[str]:
    version = await books.publish(manifest)
    return [await books.start(version, input_=json.dumps({"key": f"k{i}"})) for i in range(count)]


async def _ended(books: Books, run_ids: list[str]) -> None:
    """Until all of them have ended."""
    async with asyncio.timeout(120):
        sql = "select count(*) from eec_workflow_run where run_id = any($1::uuid[]) and end_time is not null"
        while await books.owner.fetchval(sql, run_ids) < len(run_ids):  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.05)


async def _output(owner: asyncpg.Connection, run_id: str) -> dict[str, object]:
    """The output of the step, which there is once."""
    [row] = await owner.fetch("select output::text from eec_workflow_step_attempt where run_id = $1", run_id)
    output: dict[str, object] = json.loads(row["output"])
    return output


async def test_se01_events_beside_the_waits_that_open_for_them(senders: tuple[Sender, Sender], desk: Desk) -> None:
    """Events with fresh ids, and some that are kept, are published while the waits are being registered, until one of them matches or is kept: what was
    counted is what was resolved, each wait by the very event that said so, or by one that was kept for it."""
    runs = await _start(desk.books, WAIT, 200)
    chance = random.Random(7)
    counted: dict[int, str] = {}
    kept: dict[int, set[str]] = {}

    async def produce(i: int) -> None:
        for n in range(1_000):
            ttl = 300 if chance.random() < 0.02 else 0
            answer = await senders[n % 2].publish("paid", f"k{i}", event_id=f"e{i}-{n}", ttl_seconds=ttl, payload=n)
            if answer.matched:
                assert (answer.matched, i in counted) == (1, False)
                counted[i] = answer.event_id
                return
            if ttl:
                kept.setdefault(i, set()).add(answer.event_id)
                return
            await asyncio.sleep(chance.random() * 0.02)

    await asyncio.gather(*(produce(i) for i in range(len(runs))))
    await _ended(desk.books, runs)
    for i, run_id in enumerate(runs):
        event = (await _output(desk.owner, run_id))["event"]
        assert isinstance(event, dict)
        assert event["event_id"] in ({counted[i]} if i in counted else kept[i])
    assert len(counted) + len(kept) == len(runs)
    assert await desk.owner.fetchval("select count(*) from eec_workflow_receipt where applied_time is null") == 0
    assert await desk.owner.fetchval("select coalesce(sum(matched), 0) from eec_workflow_event") == len(counted)


async def test_se03_two_events_complete_a_set_once(senders: tuple[Sender, Sender], desk: Desk) -> None:
    """SE-03: the two events of a set, published in parallel through two processes, resolve it once with both."""
    runs = await _start(desk.books, SET, 60)
    await _parked(desk, len(runs))
    calls = [
        s.told(name, f"k{i}", event_id=f"e{i}")
        for i in range(len(runs))
        for s, name in zip(senders, ("paid", "sent"), strict=True)
    ]
    assert await asyncio.gather(*calls) == [(1, False)] * 2 * len(runs)
    await _ended(desk.books, runs)
    for run_id in runs:
        output = await _output(desk.owner, run_id)
        events = output["events"]
        assert isinstance(events, list)
        assert {event["requirement"] for event in events} == {"a", "b"}


async def test_se02_one_event_counts_once(senders: tuple[Sender, Sender], desk: Desk) -> None:
    """SE-02: `count: 2` and the same event twice through two processes: the run stays parked; the second event completes it."""
    runs = await _start(desk.books, TWO, 20)
    await _parked(desk, len(runs))
    calls = [s.told("paid", f"k{i}", event_id=f"e1-{i}") for i in range(len(runs)) for s in senders]
    answers = await asyncio.gather(*calls)
    assert sorted(answers) == [(0, True)] * len(runs) + [(1, False)] * len(runs)
    applied = "select count(*) from eec_workflow_receipt where applied_time is not null"
    async with asyncio.timeout(60):
        while await desk.owner.fetchval(applied) < len(runs):  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.02)
    assert await desk.books.open_runs() == len(runs)
    assert await asyncio.gather(*(senders[0].told("paid", f"k{i}", event_id=f"e2-{i}") for i in range(len(runs)))) == [
        (1, False)
    ] * len(runs)
    await _ended(desk.books, runs)


async def test_se05_approve_reject_and_time_out_at_the_same_instant(senders: tuple[Sender, Sender], desk: Desk) -> None:
    """SE-05: exactly one decision in the books of each run; the timer is gone; the payload of whoever won is intact; the others were accepted and changed
    nothing. A box that is slow to say the words is aimed at earlier, until more than one of the three has won."""
    winners: set[str] = set()
    for lead in (0.1, 0.5, 2.0, 8.0):
        winners |= await _at_the_same_instant(senders, desk, lead)
        if len(winners) > 1:
            break
    assert len(winners) > 1, winners
    assert await desk.owner.fetchval("select count(*) from eec_workflow_timer") == 0
    assert await desk.owner.fetchval("select count(*) from eec_workflow_signal where status = 'kept'") == 0


async def _at_the_same_instant(senders: tuple[Sender, Sender], desk: Desk, lead: float) -> set[str]:
    """Who won in 60 runs to which both words were said at most `lead` seconds before or 0.1 s after the time-out, each run's books being whole."""
    runs = await _start(desk.books, _alone("approval", {"timeout_ms": HOUR_MS, "on_timeout": "approve"}), 60)
    await _parked(desk, len(runs))
    clock = asyncio.get_running_loop().time
    due = clock() + lead + 1
    await desk.owner.execute(
        "update eec_workflow_timer set due_time = now() + $1::float8 * interval '1 second'", lead + 1
    )
    chance = random.Random(7)

    async def say(sender: Sender, rpc: str, run_id: str) -> None:
        await asyncio.sleep(max(due + chance.uniform(-lead, 0.1) - clock(), 0))  # that instant is what is aimed at
        await sender.call(rpc, run_id=run_id, step_ref="w", request_id=rpc, payload={"of": run_id, "by": rpc})

    rpcs = ("ApproveStep", "RejectStep")
    await asyncio.gather(*(say(s, rpc, run_id) for run_id in runs for s, rpc in zip(senders, rpcs, strict=True)))
    await _ended(desk.books, runs)
    return {await _winner(desk, run_id) for run_id in runs}


async def _winner(desk: Desk, run_id: str) -> str:
    """The RPC that decided a run's approval, or `system:timeout`; the output, the signals and the audit say the same."""
    output = await _output(desk.owner, run_id)
    signals = {row["request_id"]: row["status"] for row in await desk.signals(run_id)}
    applied = [name for name, status in signals.items() if status == "applied"]
    winner = applied[0] if applied else "system:timeout"
    assert sorted(signals.values()) == ["applied", "ignored"] if applied else ["ignored", "ignored"]
    assert output["payload"] == ({"of": run_id, "by": winner} if applied else None)
    assert output["decision"] == ("rejected" if winner == "RejectStep" else "approved")
    decisions = await desk.owner.fetch(
        "select action, request_id from eec_workflow_audit where target = $1 and action in ('approve', 'reject', 'approval_timeout')",
        f"run:{run_id}",
    )
    assert [row["request_id"] or "system:timeout" for row in decisions] == [winner]
    return winner


async def test_e1_what_was_said_before_the_step_waits(senders: tuple[Sender, Sender], desk: Desk) -> None:
    """A signal and a kept event that come before any tick are applied when the steps park: nobody says them again."""
    waits = await desk.books.publish(WAIT)
    approvals = await desk.books.publish(_alone("approval", {}))
    runs = [await desk.books.start(version, input_='{"key": "k"}', wake=False) for version in (waits, approvals)]
    await senders[0].call("ApproveStep", run_id=runs[1], step_ref="w", payload=7)
    assert await senders[1].told("paid", "k", ttl_seconds=60, payload=8) == (0, False)
    await desk.books.wake(runs[0])
    await _ended(desk.books, runs)
    assert (await _output(desk.owner, runs[1]))["payload"] == 7
    event = (await _output(desk.owner, runs[0]))["event"]
    assert isinstance(event, dict)
    assert event["payload"] == 8


async def _parked(desk: Desk, count: int) -> None:
    """Until so many runs wait."""
    parked = "select count(*) from eec_workflow_run where node_states::jsonb @> $1::text::jsonb"
    async with asyncio.timeout(60):
        while await desk.owner.fetchval(parked, '{"w": {"status": "waiting"}}') < count:  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.02)
