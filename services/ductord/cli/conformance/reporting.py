"""Checks of what a worker says became of a task, and of what it does when saying so, or asking for tasks, fails."""

import asyncio
from typing import Final

from ductor.workflow.v1 import run_pb2
from ductord.cli.conformance.document import FINAL, FLAKY, LATER
from ductord.cli.conformance.holding import NOT_TAKEN, belongs, json_of, said_by
from ductord.cli.conformance.proxy import BEAT, POLL, REPORT, Fault, Held
from ductord.cli.conformance.stage import Stage

AWAY_S: Final = 2.0
AWAY_LEASE: Final = 0.6
"""How long dispatch is away, and how much of a lease at most: what is being worked on must live through it."""
AWAY_CALLS: Final = 25
"""How many calls of one kind a worker may make meanwhile: pauses that begin at 100 ms and grow make a third of it."""
_BAD: Final = ("payload_invalid", "payload_too_large", "BAD_OUTPUT")
_TRIES: Final = 4


async def retry(stage: Stage) -> None:
    """Failures are told as they are: one that may be tried again, one that may not, one that says when."""
    await stage.worker()
    flaky, final, later = [await stage.run(ref) for ref in ("flaky", "final", "later")]
    status = await stage.ended(flaky, "a task that fails once")
    state = await stage.step(flaky, "flaky")
    tries = len(await stage.attempts(flaky, "flaky"))
    stage.expect(status == "completed" and tries == 2, "a task that fails once did not end with attempt 2")
    stage.expect(json_of(state.output_json) == {"attempt": 2}, 'conformance:fail does not answer {"attempt": 2}')
    _judge_failure(stage, flaky, FLAKY)
    status = await stage.ended(final, "a task that fails for good")
    tries = len(await stage.attempts(final, "final"))
    stage.expect(status == "failed" and tries == 1, f"a failure with non_retryable took {tries} attempts")
    _judge_failure(stage, final, FINAL)
    status = await stage.ended(later, f"a task to be tried again in {LATER['retry_after_ms']} ms")
    _judge_failure(stage, later, LATER)
    attempts = await stage.attempts(later, "later")
    if stage.expect(status == "completed" and len(attempts) == 2, "a task that says when was not tried again once"):
        pause = (attempts[1].start_time.ToMilliseconds() - attempts[0].end_time.ToMilliseconds()) / 1000
        asked = LATER["retry_after_ms"] / 1000
        stage.expect(pause > asked - 0.1, f"a pause of {asked:g} s that the worker asked for became {pause:.1f} s")


def _judge_failure(stage: Stage, run_id: str, args: dict[str, object]) -> None:
    """The first attempt was reported with what its args say, and nothing that they leave out."""
    held = stage.need(stage.delivered(run_id), NOT_TAKEN)
    outcome = stage.need(held.outcome, f"{args['code']}: no report was answered")
    if not stage.expect(outcome.HasField("failure"), f"{args['code']}: reported as {said_by(outcome)}"):
        return
    failure = outcome.failure
    given = {
        "code": failure.code,
        "message": failure.message,
        "non_retryable": failure.non_retryable,
        "retry_after_ms": failure.retry_after_ms if failure.HasField("retry_after_ms") else None,
    }
    for name, value in given.items():
        wanted = args.get(name, False if name == "non_retryable" else None)
        stage.expect(value == wanted, f"{args['code']}: the failure has {name} {value!r}, the args have {wanted!r}")


async def transport(stage: Stage) -> None:
    """Answers are lost and dispatch is away for a while: nothing is lost and nothing counts twice."""
    await stage.worker()
    await _lost_poll(stage)
    await _lost_report(stage)
    await _away(stage)


async def _lost_poll(stage: Stage) -> None:
    rule = stage.proxy.rule(POLL, Fault.ANSWER_LOST, times=1)
    run_id = await stage.run("echo")
    lost = (await stage.seen(lambda: rule.hits, "no poll asked for the task"))[0].request
    fault = "after the answer of a poll was lost, the worker did not ask again with the same poll_id"
    await stage.seen(lambda: stage.delivered(run_id), fault)
    again = [poll.request for poll in stage.proxy.of(POLL) if poll.request.poll_id == lost.poll_id]
    stage.expect(len(again) > 1 and again[-1].worker_id == lost.worker_id, fault)
    status = await stage.ended(run_id, "a task whose poll's answer was lost")
    await _judge_once(stage, run_id, "echo", status, "a task whose poll's answer was lost")


async def _lost_report(stage: Stage) -> None:
    rule = stage.proxy.rule(REPORT, Fault.ANSWER_LOST, times=1)
    run_id = await stage.run("echo")
    await stage.seen(lambda: rule.hits, "no report came")
    status = await stage.ended(run_id, "a task whose report's answer was lost")
    held = stage.need(stage.delivered(run_id), NOT_TAKEN)
    fault = "a report whose answer was lost was not made again until it was answered"
    await stage.seen(lambda: held.outcome, fault)
    await _judge_once(stage, run_id, "echo", status, "a task whose report's answer was lost")


async def _away(stage: Stage) -> None:
    """A task is being worked on and one comes while nothing is answered."""
    working = await stage.run("sleep", ms=1_000)
    held: Held = await stage.seen(lambda: stage.delivered(working), NOT_TAKEN)
    away_s = min(AWAY_S, held.task.lease_ms / 1000 * AWAY_LEASE)
    rules = [stage.proxy.rule(method, Fault.AWAY) for method in (POLL, BEAT, REPORT)]
    coming = await stage.run("echo")
    await asyncio.sleep(away_s)
    for rule in rules:
        rule.left = 0
        stage.expect(
            len(rule.hits) <= AWAY_CALLS,
            f"{len(rule.hits)} calls of {rule.method} in {away_s:g} s while dispatch was away: pauses must grow",
        )
    for run_id, step, what in (
        (working, "sleep", "a task that was worked on while dispatch was away"),
        (coming, "echo", "a task that came while dispatch was away"),
    ):
        await _judge_once(stage, run_id, step, await stage.ended(run_id, what), what)


async def _judge_once(stage: Stage, run_id: str, ref: str, status: str, what: str) -> None:
    attempts = await stage.attempts(run_id, ref)
    stage.expect(status == "completed", f"{what}: the run {status}")
    stage.expect(len(attempts) == 1, f"{what} took {len(attempts)} attempts")
    stale = any(attempt.HasField("stale_report") for attempt in attempts)
    stage.expect(not stale, f"{what}: another report was set aside as stale")


async def bad_output(stage: Stage) -> None:
    """An output that is no JSON and one that dispatch refuses: each fails its own attempt, once, and the worker goes on."""
    await stage.worker()
    run_id = await stage.run("bad")
    status = await stage.ended(run_id, "conformance:bad_output")
    state = await stage.step(run_id, "bad")
    stage.expect(status == "failed" and state.error.code in _BAD, f"conformance:bad_output ended as {_ending(state)}")
    tries = len(await stage.attempts(run_id, "bad"))
    stage.expect(tries == 1, f"conformance:bad_output was made {tries} times")
    await _refused(stage)
    run_id = await stage.run("echo")
    status = await stage.ended(run_id, "a task after bad outputs")
    stage.expect(status == "completed", "a task after bad outputs failed")


async def _refused(stage: Stage) -> None:
    """Two outputs at once, of which one is refused whenever it comes: the other is taken, the one becomes a failure."""
    refused = await stage.run("sleep", ms=500)
    rule = stage.proxy.rule(
        REPORT,
        Fault.REFUSED,
        meant=lambda entry: entry.HasField("success") and belongs(stage, entry, refused),
    )
    other = await stage.run("sleep", ms=500)
    status = await stage.ended(other, "a task beside one whose output is refused")
    stage.expect(status == "completed", "a task beside one whose output is refused failed")
    held: Held = await stage.seen(lambda: stage.delivered(refused), NOT_TAKEN)
    fault = "an output that CompleteTasks refuses is not reported as a failure"
    outcome = await stage.seen(lambda: held.outcome, fault)
    stage.expect(
        outcome.failure.non_retryable, f"a refused output is reported as {said_by(outcome)}, not non_retryable"
    )
    stage.expect(len(rule.hits) <= _TRIES, f"a report that is refused was made {len(rule.hits)} times")
    await stage.ended(refused, "a task whose output is refused")


def _ending(state: run_pb2.StepState) -> str:
    return f"{run_pb2.NodeStatus.Name(state.status).removeprefix('NODE_STATUS_').lower()} {state.error.code}".strip()
