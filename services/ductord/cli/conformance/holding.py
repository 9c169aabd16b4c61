"""Checks of how a worker holds a task: what it reads of it, its heartbeats, and what makes it stop."""

import asyncio
import json
from typing import Any, Final

from ductor.workflow.v1 import run_pb2
from ductor.workflow.v1 import task_service_pb2 as api
from ductord.cli.conformance.document import BEAT_TIMEOUT_MS
from ductord.cli.conformance.proxy import BEAT, REPORT, Fault, Held
from ductord.cli.conformance.stage import Stage
from ductord.model import jsonvalue
from ductord.model.errors import PayloadInvalid

VALUE: Final = {
    "integers": [0, -1, 2**53 + 1, 2**63 - 1, -(2**63)],
    "fractions": [0.1, -2.5, 1.5e-9, 123456.789],
    "texts": ["", "Grüße, 世界 🚢", 'quote " backslash \\ slash / tab \t line \n', "\u2028\u00a0\u007f"],
    "words": [None, True, False],
    "empty": [{}, [], ""],
    "nested": {"b": {"a": [[{"__proto__": 1}]]}, "a b": "key with a blank", "ключ": 1},
}
"""What JSON can carry and libraries like to break."""
SIDE_BY_SIDE: Final = 4
_SLEEP_MS: Final = 1_200
_STALE_MS: Final = 200
"""How old details may be when a heartbeat carries them."""
STOP_S: Final = 1.5
"""How long a task that is told to stop may take to be reported."""
LONG_MS: Final = 600_000
NO_BEAT: Final = "heartbeats did not come for a task that takes longer"
NOT_TAKEN: Final = "a task was not taken"


async def lease(stage: Stage) -> None:
    """Args and outputs are exact, what a task says is read, and several tasks are worked on at once."""
    await stage.worker()
    echo = await stage.run("echo", value=VALUE)
    sleep = await stage.run("sleep", ms=50)
    status = await stage.ended(echo, "conformance:echo")
    state = await stage.step(echo, "echo")
    if stage.expect(status == "completed", f"conformance:echo failed: {state.error.code} {state.error.message}"):
        output = json_of(state.output_json)
        stage.expect(_text(output) == _text({"value": VALUE}), "conformance:echo: the output is not the args, exactly")
    await stage.ended(sleep, "conformance:sleep")
    _judge_context(stage, await stage.step(sleep, "sleep"), sleep, None, 50)
    items = await stage.run("items", items=[_SLEEP_MS + n for n in range(SIDE_BY_SIDE)])
    await stage.ended(items, f"{SIDE_BY_SIDE} tasks of a fan-out", more_s=SIDE_BY_SIDE * _SLEEP_MS / 1000)
    for index in range(SIDE_BY_SIDE):
        _judge_context(stage, await stage.step(items, "items", index), items, index, _SLEEP_MS + index)
    found = [stage.delivered(items, item_index=index) for index in range(SIDE_BY_SIDE)]
    begun = max((held.since for held in found if held), default=0)
    done = min((held.closed or begun for held in found if held), default=0)
    stage.expect(begun < done, f"the worker does not work on {SIDE_BY_SIDE} tasks side by side")


def _judge_context(stage: Stage, state: run_pb2.StepState, run_id: str, index: int | None, ms: int) -> None:
    output = json_of(state.output_json)
    held = stage.need(stage.delivered(run_id, item_index=index), NOT_TAKEN)
    task = held.task
    wanted = {
        "tenant_id": task.tenant_id,
        "run_id": run_id,
        "step_ref": task.step_ref,
        "item_index": index,
        "attempt": 1,
        "idempotency_key": task.idempotency_key,
        "resumed_at_ms": 0,
    }
    if not isinstance(output, dict):
        stage.expect(False, "conformance:sleep did not answer what it should")
        return
    for name, value in wanted.items():
        given = output.get(name, "nothing")
        stage.expect(
            _text(given) == _text(value), f"conformance:sleep answers {name} {given!r}, the task has {value!r}"
        )
    slept, took = output.get("slept_ms"), ((held.closed or held.since) - held.since) * 1000
    right = isinstance(slept, int | float) and ms <= slept <= took + stage.late_s * 1000
    stage.expect(right, f"conformance:sleep answers slept_ms {slept!r} for {ms} ms, which took {took:.0f} ms")


async def heartbeat(stage: Stage) -> None:
    """Heartbeats come as often as the task asks, carry details, go on when one fails, and until the report is answered."""
    await stage.worker()
    run_id = await stage.run("beating", ms=BEAT_TIMEOUT_MS + 1_000)
    held = await stage.seen(lambda: stage.delivered(run_id), NOT_TAKEN)
    await stage.seen(lambda: held.beats, NO_BEAT)
    stage.proxy.rule(BEAT, Fault.AWAY, meant=_is(held), times=1)
    status = await stage.ended(run_id, "conformance:sleep", more_s=BEAT_TIMEOUT_MS / 1000 + 1)
    stage.expect(status == "completed", "conformance:sleep did not live through one heartbeat that failed")
    stage.expect(stage.delivered(run_id, attempt=2) is None, "conformance:sleep took more than one attempt")
    _judge_details(stage, held)
    run_id = await stage.run("sleep", ms=100)
    away = stage.proxy.rule(REPORT, Fault.AWAY, meant=lambda entry: belongs(stage, entry, run_id))
    report = await stage.seen(lambda: away.hits[:1], "no report came")
    held = stage.need(stage.delivered(run_id), NOT_TAKEN)
    within_s = held.task.heartbeat_interval_ms / 1000 * 1.5 + 1
    fault = "heartbeats end before the report is answered"
    await stage.seen(lambda: [b for b in held.beats if b.call.began > report[0].began], fault, within_s=within_s)
    away.left = 0
    await stage.ended(run_id, "a task whose report had failed for a while")


def _judge_details(stage: Stage, held: Held) -> None:
    before = -1.0
    for said in held.beats:
        details = json_of(said.entry.details_json) if said.entry.HasField("details_json") else None
        slept = details.get("slept_ms") if isinstance(details, dict) else None
        if not isinstance(slept, int | float):
            stage.expect(False, f"a heartbeat of conformance:sleep carries {details!r}, not its slept_ms")
            return
        off = abs(slept - (said.call.began - held.since) * 1000)
        stage.expect(off <= stage.late_s * 1500, f"slept_ms in a heartbeat is {off:.0f} ms from the truth")
        stage.expect(slept >= before, "slept_ms in heartbeats shrinks")
        before = slept


async def cancel(stage: Stage) -> None:
    """A run that is cancelled while its task sleeps: the task stops at the next heartbeat and fails with CANCELLED."""
    await stage.worker()
    held = await _sleeping(stage)
    run_id = held.task.run_id
    await stage.cancel(run_id)
    asked = await stage.seen(
        lambda: [said for said in held.beats if said.status == api.TASK_HEARTBEAT_STATUS_CANCEL],
        "no heartbeat asked after the run had been cancelled",
    )
    at = asked[0].call.ended
    fault = f"a task that was told to stop was not reported within {STOP_S} s"
    outcome = await stage.seen(lambda: held.outcome, fault, within_s=at + STOP_S - stage.clock())
    stage.expect(
        outcome.failure.code == "CANCELLED", f"a task that was told to stop was reported as {said_by(outcome)}"
    )
    status = await stage.ended(run_id, "the cancelled run")
    stage.expect(status == "cancelled", f"the cancelled run ended as {status}")


async def lease_loss(stage: Stage) -> None:
    """A lease that is lost, in truth and as told: the task stops without a word, and the next attempt goes on from the details."""
    await stage.worker()
    told = await _sleeping(stage)
    stage.proxy.rule(BEAT, Fault.LEASE_LOST, meant=_is(told))
    real = await _sleeping(stage)
    silence = stage.proxy.rule(BEAT, Fault.AWAY, meant=_is(real))
    beat_s = real.task.heartbeat_interval_ms / 1000
    for held in (real, told):
        await stage.seen(
            lambda held=held: stage.delivered(held.task.run_id, attempt=2),  # type: ignore[misc]
            "a task whose lease was lost was not taken again",
            within_s=real.task.lease_ms / 1000 + 3 * stage.patience_s,
        )
    silence.left = 0
    await stage.seen(
        lambda: [said for said in real.beats if said.status == api.TASK_HEARTBEAT_STATUS_LEASE_LOST],
        "heartbeats had failed for a while, and there were none any more",
        within_s=2 * beat_s + stage.patience_s,
    )
    for held in (real, told):
        await _judge_resumed(stage, held.task.run_id)
    await asyncio.sleep(beat_s + 1)  # for what must not come any more
    for held in (real, told):
        late = [said for said in held.reports if said.status != api.TASK_COMPLETION_STATUS_LEASE_LOST]
        stage.expect(not late, "a report of a task whose lease is lost was taken")


async def _sleeping(stage: Stage) -> Held:
    """A task that sleeps for long and has made two heartbeats."""
    run_id = await stage.run("sleep", ms=LONG_MS)
    held = await stage.seen(lambda: stage.delivered(run_id), NOT_TAKEN)
    within_s = 3 * held.task.heartbeat_interval_ms / 1000 + stage.patience_s
    await stage.seen(lambda: [said for said in held.beats if said.status][1:], NO_BEAT, within_s=within_s)
    return held


async def _judge_resumed(stage: Stage, run_id: str) -> None:
    """The second attempt began where the first had been at its last heartbeat that arrived."""
    second = stage.need(stage.delivered(run_id, attempt=2), "a task was not taken again")
    beat_s = second.task.heartbeat_interval_ms / 1000
    beats = await stage.seen(
        lambda: second.beats, "the second attempt makes no heartbeats", within_s=beat_s + stage.patience_s
    )
    kept = _slept(second.task.heartbeat_details_json)
    stage.expect(kept > 0, "the first attempt left no slept_ms in its heartbeats")
    now = _slept(beats[0].entry.details_json)
    stage.expect(now >= kept - _STALE_MS, f"the second attempt did not go on at {kept:.0f} ms, it says {now:.0f} ms")


def _slept(text: str) -> float:
    details = json_of(text)
    slept = details.get("slept_ms") if isinstance(details, dict) else None
    return slept if isinstance(slept, int | float) else 0.0


def _is(held: Held) -> Any:
    return lambda entry: entry.task_token == held.task.task_token


def belongs(stage: Stage, entry: Any, run_id: str) -> bool:
    held = stage.proxy.held.get(entry.task_token)
    return held is not None and held.task.run_id == run_id


def said_by(completion: api.TaskCompletion) -> str:
    kind = completion.WhichOneof("outcome") or "nothing"
    return f"{kind} {completion.failure.code}".strip()


def json_of(text: str) -> Any:
    """The JSON value of a text, None where it is none."""
    try:
        return jsonvalue.parse(text, max_bytes=None) if text else None
    except PayloadInvalid:
        return None


def _text(value: Any) -> str:
    """One text for one value."""
    return json.dumps(jsonvalue.normalise(value), sort_keys=True)
