"""What holds for every call of a worker, whatever a check is about: judged over all that the proxy has seen when the check is over."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from ductor.workflow.v1 import task_service_pb2 as api
from ductord.cli.conformance.document import ACTIONS
from ductord.cli.conformance.proxy import BEAT, POLL, Call, Fault, Held, Said
from ductord.cli.conformance.stage import Stage

PAUSE_S: Final = 2.0
"""The longest pause after a call that failed."""
_FINAL: Final = (api.TASK_COMPLETION_STATUS_OK, api.TASK_COMPLETION_STATUS_LEASE_LOST)
_SHORTEST_ID: Final = 8
_SHORTEST_WAIT_MS: Final = 500


def judge(stage: Stage) -> None:
    """Note what was wrong with any call."""
    for fault in (*_polls(stage), *(fault for held in stage.proxy.held.values() for fault in _task(stage, held))):
        stage.expect(False, fault)


def reclaims(poll: Call) -> bool:
    """Whether a poll only asks for what an earlier one was given: it names none of the worker's actions."""
    return not set(poll.request.actions) & set(ACTIONS)


def _polls(stage: Stage) -> Iterator[str]:
    polls = stage.proxy.of(POLL)
    answered: set[str] = set()
    names = {poll.request.worker_id for poll in polls}
    if "" in names or len(names) > len(stage.processes):
        yield "worker_id is not one name for the life of the process"
    elif len(names) < len(stage.processes):
        yield "worker_id is not new at each start"
    for n, poll in enumerate(polls):
        request = poll.request
        if list(request.queues) != [stage.queue]:
            yield f"a poll names the queues {list(request.queues)}, not the one of DUCTOR_QUEUE"
        if request.poll_id in answered:
            yield "a poll has the poll_id of one that was answered"
        if len(request.poll_id) < _SHORTEST_ID:
            yield "a poll_id is too short to be random"
        if not reclaims(poll):
            if missing := sorted(set(ACTIONS) - set(request.actions)):
                yield f"a poll does not name {', '.join(missing)}"
            if request.max_tasks < 1:
                yield "a poll has no room for a task (max_tasks)"
            if request.wait_ms < _SHORTEST_WAIT_MS:
                yield f"a poll waits only {request.wait_ms} ms for tasks (wait_ms)"
        if poll.answered:
            answered.add(request.poll_id)
        elif poll.fault and not _repeated(stage, poll, polls[n + 1 :]):
            yield "a poll that failed is not made again with its poll_id"


def _repeated(stage: Stage, poll: Call, later: list[Call]) -> bool:
    stopped = any(time >= poll.began for time in stage.stopping)
    return stopped or not later or any(each.request.poll_id == poll.request.poll_id for each in later)


def _task(stage: Stage, held: Held) -> Iterator[str]:
    task, interval_s = held.task, held.task.heartbeat_interval_ms / 1000
    what = f"{task.action} (attempt {task.attempt})"
    closed = held.closed
    stopped = min((time for time in stage.stopping if time >= held.since), default=None)
    end = min(time for time in (closed, stopped, stage.clock()) if time is not None)
    beats = [said.call for said in held.beats if said.call.began < end]
    times = [held.since, *(call.began for call in beats), end]
    late = max(later - _due(stage, earlier, interval_s) for earlier, later in pairwise(times))
    if late > interval_s / 2 + stage.late_s:
        yield f"{what}: a heartbeat is {late:.1f} s late where one is due every {interval_s:.1f} s"
    if closed is not None and any(said.call.began > closed + stage.late_s for said in held.beats):
        yield f"{what}: heartbeats go on after the worker was told that it is done with the task"
    lost = [said.call.ended for said in held.beats if said.status == api.TASK_HEARTBEAT_STATUS_LEASE_LOST]
    if lost and any(said.call.began > min(lost) + stage.late_s for said in held.reports):
        yield f"{what}: a report long after the worker was told that the lease is lost"
    yield from _reports(what, held.reports)


def _due(stage: Stage, beaten: float, interval_s: float) -> float:
    """When a task is to be beaten for next: an interval later, or after the pause that a failure (of any heartbeat: they may go in one call) brings."""
    due = beaten + interval_s
    for call in stage.proxy.of(BEAT):
        if not call.answered and call.began <= due:
            due = max(due, call.began + PAUSE_S)
    return due


def _reports(what: str, reports: list[Said]) -> Iterator[str]:
    for earlier, later in pairwise(reports):
        if earlier.status in _FINAL:
            yield f"{what}: a report after one that was answered"
        elif earlier.status or earlier.call.fault is Fault.REFUSED:
            if later.entry == earlier.entry and earlier.status:
                yield f"{what}: an output that dispatch cannot carry is reported again"
        elif later.entry != earlier.entry:
            yield f"{what}: a report that nobody answered is not repeated as it was"
