"""People, events and time at the same instant, through two replicas of signals and two coordinators that are killed (SE-01, SE-05, SE-07, E1, E3, GJ-06)."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import grpc
import pytest

from ductor.workflow.v1 import workflow_run_control_service_pb2 as controls
from ductor.workflow.v1 import workflow_run_control_service_pb2_grpc as controls_rpc
from ductor.workflow.v1 import workflow_signal_service_pb2 as signals
from ductor.workflow.v1 import workflow_signal_service_pb2_grpc as rpc
from ductord.rpc.errors import refusal_from
from tests.support.api import Api
from tests.support.stack import Stack

pytestmark = [pytest.mark.xdist_group("stack"), pytest.mark.timeout(300)]

ROUNDS = 200
WAITS, EVENTS = 250, 1_000
HOURS = 24 * 3_600_000
_WAITING = 'select count(*) from eec_workflow_run where run_id = any($1::uuid[]) and node_states::jsonb @> \'{"w": {"status": "waiting"}}\''
_MOVE = "update eec_workflow_timer set due_time = now() + $2::float8 * interval '1 second' where run_id = any($1::uuid[]) returning true"
_SETTLED = (
    "select count(*) from eec_workflow_run where run_id = any($1::uuid[])"
    ' and (end_time is not null or node_states::jsonb @> \'{"w": {"status": "waiting"}}\')'
)


class Outside:
    """Who speaks to steps, through two replicas."""

    def __init__(self, api: Api, channels: Sequence[grpc.aio.Channel]) -> None:
        self._api = api
        self._stubs = [rpc.WorkflowSignalServiceStub(channel) for channel in channels]

    async def decide(self, verb: str, run_id: str, replica: int = 0, name: str = "", by: str = "") -> None:
        """Approve or reject step `w`; the payload says who did."""
        name = name or verb
        request = getattr(signals, f"{verb}StepRequest")(
            run_id=run_id,
            step_ref="w",
            request_id=name,
            approver_id=by,
            payload_json=json.dumps({"of": run_id, "by": name}),
        )
        await getattr(self._stubs[replica], f"{verb}Step")(request, metadata=self._api.metadata, timeout=60)

    async def publish(self, key: str, event_id: str, replica: int = 0) -> int:
        """Publish a payment; how many waits it matched."""
        event = signals.PublishEventRequest(
            event_name="paid", correlation_key=key, event_id=event_id, payload_json=f'"{event_id}"'
        )
        answer = await self._stubs[replica].PublishEvent(event, metadata=self._api.metadata, timeout=60)
        assert not answer.duplicate
        return int(answer.matched)


@pytest.fixture
async def outside(stack: Stack, api: Api) -> AsyncIterator[Outside]:
    """Two replicas of signals; the second leaves again."""
    other = stack.add("signals1", ["signals"])
    other.wait_ready()
    try:
        async with (
            grpc.aio.insecure_channel(stack["edges"].target) as one,
            grpc.aio.insecure_channel(other.target) as two,
        ):
            yield Outside(api, (one, two))
    finally:
        other.terminate()
        stack.members.pop("signals1")


async def _start(api: Api, step: dict[str, Any], count: int) -> list[str]:
    definition = await api.publish(
        {"family_slug": "races", "title": "races", "steps": [{"ref": "w", **step}], "edges": []}
    )
    started = await asyncio.gather(
        *(api.start_many(definition, 1, input_json=f'{{"key": "k{i}"}}') for i in range(count))
    )
    return [run_id for (run_id,) in started]


async def _parked(owner: asyncpg.Connection, runs: Sequence[str]) -> None:
    async with asyncio.timeout(60):
        while await owner.fetchval(_WAITING, runs) < len(runs):  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.05)


async def _outputs(owner: asyncpg.Connection, runs: Sequence[str]) -> dict[str, Any]:
    """The one output of `w` of each run."""
    rows = await owner.fetch(
        "select run_id::text, output::text from eec_workflow_step_attempt where run_id = any($1::uuid[])", runs
    )
    assert len(rows) == len({row["run_id"] for row in rows}) == len(runs)
    return {row["run_id"]: json.loads(row["output"]) for row in rows}


async def _one_decision_each(owner: asyncpg.Connection, runs: Sequence[str]) -> Counter[str]:
    """Books in which each run was decided once, by somebody whose payload is the output; who won how often."""
    outputs = await _outputs(owner, runs)
    applied: dict[str, list[str]] = {run_id: [] for run_id in runs}
    told = "select run_id::text, request_id, status from eec_workflow_signal where run_id = any($1::uuid[])"
    for row in await owner.fetch(told, runs):
        assert row["status"] in ("applied", "ignored")
        if row["status"] == "applied":
            applied[row["run_id"]].append(row["request_id"])
    decided: dict[str, list[str]] = {run_id: [] for run_id in runs}
    trail = (
        "select substr(target, 5) as run_id, request_id from eec_workflow_audit where target = any(select 'run:' || r from unnest($1::text[]) r)"
        " and action in ('approve', 'reject', 'approval_timeout')"
    )
    for row in await owner.fetch(trail, runs):
        decided[row["run_id"]].append(row["request_id"] or "time")
    ended = (
        "select t.run_id::text, count(*) as ends from eec_workflow_transition t, json_array_elements(t.events) e"
        " where t.run_id = any($1::uuid[]) and e ->> 'type' = 'run_ended' group by 1"
    )
    assert {row["run_id"]: row["ends"] for row in await owner.fetch(ended, runs)} == dict.fromkeys(runs, 1)
    winners: Counter[str] = Counter()
    for run_id in runs:
        [winner] = decided[run_id]
        assert applied[run_id] == ([] if winner == "time" else [winner])
        assert outputs[run_id]["payload"] == (None if winner == "time" else {"of": run_id, "by": winner})
        assert outputs[run_id]["decision"] == ("rejected" if winner.startswith("Reject") else "approved")
        winners[winner.rstrip("0123456789")] += 1
    assert await owner.fetchval("select count(*) from eec_workflow_timer where run_id = any($1::uuid[])", runs) == 0
    return winners


async def _due(owner: asyncpg.Connection, runs: Sequence[str], seconds: float) -> float:
    """The time-outs of all these runs, which were hours away, come in so many seconds; the event loop's time of that instant."""
    begin = asyncio.get_running_loop().time()
    moved = await owner.fetch(_MOVE, runs, seconds)
    assert len(moved) == len(runs)
    return begin + seconds


async def test_se_05_two_hundred_rounds(api: Api, owner: asyncpg.Connection, outside: Outside) -> None:
    """SE-05: approve, reject and the time-out at the same instant, 200 times: one decision in the books each, timer gone, payload intact. A box that is slow to
    say the words is aimed at earlier, until more than one of the three has won."""
    winners: Counter[str] = Counter()
    for lead in (0.3, 1.0, 4.0, 16.0):
        winners += await _at_the_same_instant(api, owner, outside, lead)
        if len(winners) > 1:
            break
    assert len(winners) > 1, winners


async def _at_the_same_instant(api: Api, owner: asyncpg.Connection, outside: Outside, lead: float) -> Counter[str]:
    """Who won in runs to which both words were said at most `lead` seconds before or 0.1 s after the time-out."""
    runs = await _start(api, {"type": "approval", "approval": {"timeout_ms": HOURS, "on_timeout": "approve"}}, ROUNDS)
    await _parked(owner, runs)
    clock = asyncio.get_running_loop().time
    due = await _due(owner, runs, lead + 1)
    chance = random.Random(7)

    async def say(verb: str, replica: int, run_id: str) -> None:
        await asyncio.sleep(max(due + chance.uniform(-lead, 0.1) - clock(), 0))  # what is aimed at is that instant
        await outside.decide(verb, run_id, replica)

    verbs = ("Approve", "Reject")
    await asyncio.gather(*(say(verb, replica, run_id) for run_id in runs for replica, verb in enumerate(verbs)))
    await api.until_ended()
    return await _one_decision_each(owner, runs)


async def test_se_01_a_thousand_events(api: Api, owner: asyncpg.Connection, outside: Outside) -> None:
    """SE-01, E3: 1,000 events published while the waits for them are being registered: the sum of `matched` is the number of waits that they resolved."""
    wait = {"event": {"event_name": "paid", "correlation_key": "TRIGGER.payload.key"}}
    starting = asyncio.create_task(_start(api, {"type": "wait", "wait": wait}, WAITS))
    chance = random.Random(7)
    order = [(i % WAITS, i) for i in range(EVENTS)]
    chance.shuffle(order)
    room = asyncio.Semaphore(16)

    async def publish(key: int, number: int) -> int:
        async with room:
            return await outside.publish(f"k{key}", f"e{number}", number % 2)

    matched = sum(await asyncio.gather(*(publish(*event) for event in order)))
    runs = await starting
    news = "select exists (select from eec_workflow_receipt where run_id = any($1::uuid[]) and applied_time is null)"
    async with asyncio.timeout(60):
        while await owner.fetchval(_SETTLED, runs) < WAITS or await owner.fetchval(news, runs):  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.05)
    ended = "select count(*) from eec_workflow_run where run_id = any($1::uuid[]) and status = 'completed'"
    assert await owner.fetchval(ended, runs) == matched
    left = await owner.fetch(
        "select correlation_key from eec_workflow_wait where run_id = any($1::uuid[]) and close_time is null", runs
    )
    assert len(left) == WAITS - matched
    assert await asyncio.gather(
        *(outside.publish(row["correlation_key"], f"last-{row['correlation_key']}") for row in left)
    ) == [1] * len(left)
    await api.until_ended()
    outputs = await _outputs(owner, runs)
    received = await owner.fetch(
        "select run_id::text, event_id from eec_workflow_receipt where run_id = any($1::uuid[])", runs
    )
    assert {row["run_id"]: row["event_id"] for row in received} == {
        run: out["event"]["event_id"] for run, out in outputs.items()
    }
    assert len(received) == WAITS


async def test_gj_06_word_while_coordinators_die(
    stack: Stack, api: Api, owner: asyncpg.Connection, outside: Outside
) -> None:
    """GJ-06, E1: both coordinators are killed with -9, again and again, also between a signal and its tick and between a timer's time and its firing: every
    signal is applied or ignored once, every run decided once."""
    approval = {"timeout_ms": HOURS, "on_timeout": "approve"}
    runs = await _start(api, {"type": "approval", "approval": approval}, 120)
    await _parked(owner, runs)
    coordinators = [stack["coordinator0"], stack["coordinator1"]]
    for turn in range(4):
        for coordinator in coordinators:
            coordinator.kill()
        if turn == 3:  # the last words come while nobody fires what is due
            await _due(owner, runs[75:], 0)
        said = runs[turn * 25 : turn * 25 + 25]
        await asyncio.gather(*(outside.decide("Approve", run_id, name="Approve1") for run_id in said))
        await asyncio.gather(*(outside.decide("Reject", run_id, 1, name="Reject2") for run_id in said))
        for coordinator in coordinators:
            coordinator.start()
        await asyncio.gather(*(outside.decide("Reject", run_id, 1, name="Reject3") for run_id in said))
    for coordinator in coordinators:
        coordinator.wait_ready()
    await api.until_ended()
    winners = await _one_decision_each(owner, runs)
    assert winners["time"] >= 20, winners
    assert winners["Approve"] >= 25, winners


async def test_se_07_signals_during_continue_as_new(
    stack: Stack, api: Api, owner: asyncpg.Connection, outside: Outside
) -> None:
    """SE-07, C6: a signal every 50 ms while the run is continued as new and one of its attempts takes its time to leave: every signal that is accepted counts
    in exactly one of the two runs, and whoever speaks to the closed run hears which one goes on."""
    steps = [
        {"ref": "w", "type": "approval", "approval": {"required": 100}},
        {"ref": "slow", "type": "action", "action": "core:sleep", "args": {"ms": 2_500}},
    ]
    definition = await api.publish({"family_slug": "seven", "title": "seven", "steps": steps, "edges": []})
    (first,) = await api.start_many(definition, 1)
    await _parked(owner, [first])
    leased = "select count(*) from eec_workflow_step_attempt where run_id = $1 and step_ref = 'slow' and start_time is not null"
    async with asyncio.timeout(60):
        while not await owner.fetchval(leased, first):  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.05)
    heard: list[str] = []
    run_id = first

    async def speak(number: int) -> None:
        nonlocal run_id
        try:
            await outside.decide("Approve", run_id, number % 2, name=f"n{number}", by=f"p{number}")
        except grpc.aio.AioRpcError as error:
            refusal = refusal_from(error)
            assert refusal.reason == "RUN_TERMINAL"  # whoever hears it speaks to the successor
            run_id = refusal.metadata["continued_to_run_id"]
            await outside.decide("Approve", run_id, number % 2, name=f"n{number}", by=f"p{number}")
        heard.append(f"n{number}")

    async with grpc.aio.insecure_channel(stack["edges"].target) as channel:
        number, since = 0, 0
        while since < 30:  # to the successor
            since += run_id != first
            if number == 15:
                stub = controls_rpc.WorkflowRunControlServiceStub(channel)
                request = controls.ContinueAsNewRunRequest(run_id=first, request_id="go")
                successor = (await stub.ContinueAsNewRun(request, metadata=api.metadata, timeout=30)).new_run_id
            await speak(number)
            number += 1
            await asyncio.sleep(
                0.05 if number < 60 else 1
            )  # the case's own rhythm, for as long as the first run may hear it
    assert run_id == successor
    await _parked(owner, [successor])
    kept = "select count(*) from eec_workflow_signal where run_id = any($1::uuid[]) and status = 'kept'"
    async with asyncio.timeout(60):
        while await owner.fetchval(kept, [first, successor]):  # noqa: ASYNC110  # rows have no event
            await asyncio.sleep(0.05)
    counted = await owner.fetch(
        "select substr(target, 5) as run_id, request_id from eec_workflow_audit where target = any($1::text[]) and action = 'approve'",
        [f"run:{first}", f"run:{successor}"],
    )
    assert sorted(row["request_id"] for row in counted) == sorted(heard)
    assert {row["run_id"] for row in counted} == {first, successor}
    await outside.decide("Reject", successor)
    await api.until_ended()
