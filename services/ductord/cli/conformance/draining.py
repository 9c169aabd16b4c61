"""The check of how a worker ends: what it takes no more, finishes, gives back, and how long that may take (KB-01)."""

import asyncio
from typing import Final

from ductord.cli.conformance import manners
from ductord.cli.conformance.holding import LONG_MS, NO_BEAT, NOT_TAKEN, json_of
from ductord.cli.conformance.process import Process
from ductord.cli.conformance.proxy import POLL, Fault, Held
from ductord.cli.conformance.stage import STOP_S, Stage

PATIENT_MS: Final = 30_000
"""A drain that is so long that nobody waits for its end."""
SECOND_S: Final = 2.0
"""How long a worker may take to end after a second signal, less `STOP_S`."""
_SHORT_MS: Final = 1_500
_LONGER_MS: Final = 2_500
"""By how much a task outlasts the drain."""
_LATE_S: Final = 0.7
"""How long after the signal the answer of a poll arrives."""
_CROSSING_S: Final = 0.2
"""How long calls may be on their way when the signal arrives."""


async def drain(stage: Stage) -> None:
    """SIGTERM with work in flight, without, and twice; the later parts go on from an orderly end of the first."""
    long = await _with_work(stage)
    if stage.faults:
        return
    await _idle(stage, long)
    await _twice(stage)


async def _with_work(stage: Stage) -> str:
    """A short task ends, a long one and one that is on its way are given back; the id of the long one's run."""
    process = await stage.worker()
    long, short = await stage.run("beating", ms=stage.drain_ms + _LONGER_MS), await stage.run("sleep", ms=_SHORT_MS)
    held = await stage.seen(lambda: stage.delivered(long), NOT_TAKEN)
    await stage.seen(lambda: stage.delivered(short), NOT_TAKEN)
    await stage.seen(lambda: held.beats, NO_BEAT)
    answer = stage.proxy.rule(POLL, Fault.HELD, times=1)
    coming = await stage.run("echo")
    await stage.seen(lambda: answer.hits, "the worker does not poll while it works")
    stage.stop(process)
    at = stage.clock()
    await asyncio.sleep(_LATE_S)
    answer.open.set()
    await _judge_end(stage, process, at + stage.drain_ms / 1000 + STOP_S, code=0)
    polls = [poll for poll in stage.proxy.of(POLL) if poll.began > at + _CROSSING_S and not manners.reclaims(poll)]
    stage.expect(not polls, "the worker polls for more after SIGTERM")
    for run_id, ref, what, wanted in (
        (short, "sleep", "a short task in flight", "succeeded"),
        (long, "beating", "a long task in flight", "released"),
        (coming, "echo", "a task on its way", "released"),
    ):
        outcome = await stage.first_outcome(run_id, ref)
        stage.expect(outcome == wanted, f"{what} at SIGTERM was not {wanted} but {outcome or 'left alone'}")
    return long


async def _idle(stage: Stage, long: str) -> None:
    """The next process goes on with what was given back; when nothing is left to do, SIGTERM ends it at once."""
    process = await stage.worker(drain_ms=PATIENT_MS)
    status = await stage.ended(long, "a task that was given back", more_s=(stage.drain_ms + _LONGER_MS) / 1000)
    stage.expect(status == "completed", "a task that was given back failed: a retry was spent on it")
    output = json_of((await stage.step(long, "beating")).output_json)
    resumed = output.get("resumed_at_ms") if isinstance(output, dict) else None
    stage.expect(isinstance(resumed, int | float) and resumed > 0, "a task that was given back was begun anew")
    await asyncio.sleep(_CROSSING_S)
    stage.stop(process)
    await _judge_end(stage, process, stage.clock() + 2 * STOP_S, code=0, what="an idle worker")


async def _twice(stage: Stage) -> None:
    """A second SIGTERM: what is in flight is given back now."""
    process = await stage.worker(drain_ms=PATIENT_MS)
    run_id = await stage.run("beating", ms=LONG_MS)
    held: Held = await stage.seen(lambda: stage.delivered(run_id), NOT_TAKEN)
    await stage.seen(lambda: held.beats, NO_BEAT)
    stage.stop(process)
    await asyncio.sleep(2 * _CROSSING_S)
    process.terminate()
    at = stage.clock()
    await _judge_end(stage, process, at + SECOND_S + STOP_S, code=None, what="a worker that was told twice")
    outcome = held.outcome
    stage.expect(
        outcome is not None and outcome.HasField("release"), "a task in flight at a second SIGTERM was not given back"
    )


async def _judge_end(
    stage: Stage, process: Process, deadline: float, *, code: int | None, what: str = "the worker"
) -> None:
    begin = stage.clock()
    if not await process.ended(max(deadline - begin, 0)):
        stage.expect(False, f"{what} had not ended {stage.clock() - stage.stopping[-1]:.1f} s after SIGTERM")
        await process.kill()
    elif code is not None:
        stage.expect(process.code == code, f"{what} ended with exit code {process.code}, not {code}")
    if await process.left_behind():
        stage.expect(False, f"{what} left processes behind")
        await process.kill()
