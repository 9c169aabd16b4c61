"""Working off the ledger: one entry at a time, its attempts and retries, and what a failure of it leads to (rulings C7, A1, A4, A6).

An attempt of an inverse is an attempt like any other, with its own kind, numbers and idempotency keys. Whatever becomes of an entry, the next one runs
(SA-04); the run's status and nodes never change here.
"""

from datetime import datetime
from typing import Final, assert_never

from ductord.engine import attempts, faults, retry
from ductord.engine.expressions import ExpressionError
from ductord.engine.ledger import action_of, keys_of, verdict
from ductord.engine.saga import arguments, planning
from ductord.engine.tick import Tick
from ductord.model.effects import QueueTask, RecordAudit, RecordInverse
from ductord.model.enums import FailurePolicy, InverseStatus, Outcome, TaskKind
from ductord.model.errors import PayloadInvalid
from ductord.model.events import (
    AttemptCreated,
    AttemptEnded,
    CompensationEnded,
    CompensationPlanned,
    InverseEnded,
)
from ductord.model.fault import Fault
from ductord.model.ids import idempotency_key
from ductord.model.inbox import AttemptReport, LateSuccess
from ductord.model.run import Inverse

MAX_LOST: Final = 5
"""Lost attempts of an entry that are forgiven (A4)."""

_FAILED = {
    FailurePolicy.MANUAL_REPAIR: InverseStatus.MANUAL_REPAIR,
    FailurePolicy.FAIL_COMPENSATION: InverseStatus.FAILED,
    FailurePolicy.IGNORE_WITH_AUDIT: InverseStatus.IGNORED,
}


def advance(tick: Tick) -> None:
    """After the end of the run: plan what it owes, begin the next entry, and end the compensation when nothing is owed. Does nothing where nothing is new."""
    if not tick.open:
        planning.plan(tick)
        while (position := _next(tick)) is not None:
            if not _begin(tick, position):
                return
        saga = tick.work.run.saga
        stands = verdict(saga)
        if stands is not saga.status:
            tick.emit(CompensationEnded(status=stands))
    _record(tick)


def judge(tick: Tick, report: AttemptReport) -> None:
    """Apply a report of an inverse or final action (A2, A4). One that is not for an entry's latest attempt changes nothing."""
    position = _at_work(tick, report)
    if position is None:
        tick.do(attempts.put_away(report))
        return
    match report.outcome:
        case Outcome.SUCCEEDED:
            _close(tick, position, report)
            _settle(tick, position, InverseStatus.DONE)
        case Outcome.FAILED | Outcome.TIMED_OUT | Outcome.HEARTBEAT_TIMED_OUT | Outcome.QUEUE_TIMED_OUT:
            _failed(tick, position, report)
        case Outcome.LOST | Outcome.RELEASED | Outcome.REVOKED:
            _close(tick, position, report)
            _came_to_nothing(tick, position)
        case _:
            assert_never(report.outcome)


def undone_late(tick: Tick, success: LateSuccess) -> None:
    """An inverse succeeded though its attempt had been given up: its entry is done. An attempt after it is called off: it would
    do the same, under the same key or, where one in between failed, once more under a new one."""
    for position, entry in enumerate(tick.work.run.saga.plan):
        if not _kin(entry, success) or success.idempotency_key not in keys_of(tick.run_id, entry):
            continue
        if entry.status is InverseStatus.DONE:
            _tell_twice(tick, position, success)
        else:
            if entry.status is InverseStatus.RUNNING:
                _close(tick, position, _called_off(entry, tick.now))
            _settle(tick, position, InverseStatus.DONE)


def _tell_twice(tick: Tick, position: int, success: LateSuccess) -> None:
    """The entry is done already: under this key, which is the same effect; or under a later one, since an attempt in between failed, and then the action
    has acted twice. That cannot be taken back; somebody shall at least see it."""
    entry = tick.work.run.saga.plan[position]
    key = idempotency_key(tick.run_id, entry.step_ref, entry.item_index, entry.logical, entry.kind)
    if success.idempotency_key != key:
        message = f"attempt {success.attempt} of {entry.kind} of {entry.step_ref} succeeded after all, beside attempt {entry.attempt}"
        tick.do(RecordAudit(key=f"done_twice:{position}:{success.attempt}", action="done_twice", message=message))


def _called_off(entry: Inverse, at: datetime) -> AttemptReport:
    return AttemptReport(
        step_ref=entry.step_ref,
        attempt=entry.attempt,
        outcome=Outcome.REVOKED,
        report_time=at,
        kind=entry.kind,
        item_index=entry.item_index,
    )


def _next(tick: Tick) -> int | None:
    """The entry that is to begin: none while another is at work; final actions only when no inverse is owed, be it by a late success."""
    plan = tick.work.run.saga.plan
    if not plan or any(entry.status is InverseStatus.RUNNING for entry in plan):
        return None
    owed = [position for position, entry in enumerate(plan) if entry.status is InverseStatus.OWED]
    return min(owed, key=lambda position: (plan[position].kind is TaskKind.FINALLY, position), default=None)


def _begin(tick: Tick, position: int) -> bool:
    """Render the entry's args and queue its first attempt; False if they read what was not given. Args that do not evaluate fail it without one."""
    entry = tick.work.run.saga.plan[position]
    action = action_of(tick.manifest, entry)
    if arguments.lacks(tick, entry, action):
        return False
    try:
        input_json = arguments.render(tick, entry, action)
    except ExpressionError as error:
        _give_up(tick, position, faults.of_expression(error))
    except PayloadInvalid as error:
        _give_up(tick, position, faults.of_payload(error))
    else:
        _queue(tick, position, input_json=input_json)
    return True


def _queue(tick: Tick, position: int, *, input_json: str = "", delay_ms: int = 0, retry_of: int | None = None) -> None:
    plan = tick.work.run.saga.plan
    entry = plan[position]
    action = action_of(tick.manifest, entry)
    kin = [other for other in plan if _kin(other, entry)]
    attempt = 1 + max(e.attempt for e in kin)
    # The outside may know the key already, unless a worker said what became of it (A6).
    logical = entry.logical if entry.unknown else 1 + max(e.logical for e in kin)
    due_time: datetime = tick.after(delay_ms) if delay_ms else tick.now
    tick.emit(
        AttemptCreated(
            step_ref=entry.step_ref,
            attempt=attempt,
            logical=logical,
            due_time=due_time if delay_ms else None,
            kind=entry.kind,
            item_index=entry.item_index,
            position=position,
        )
    )
    tick.do(
        QueueTask(
            step_ref=entry.step_ref,
            attempt=attempt,
            kind=entry.kind,
            item_index=entry.item_index,
            idempotency_key=idempotency_key(tick.run_id, entry.step_ref, entry.item_index, logical, entry.kind),
            action=action.action,
            queue=action.queue,
            due_time=due_time,
            input_json=input_json,
            retry_of=retry_of,
            timeout_ms=action.timeout_ms,
        )
    )


def _close(tick: Tick, position: int, report: AttemptReport, fault: Fault | None = None) -> None:
    """Write the verdict over the entry's open attempt; a `fault` spends one of its retries."""
    tick.emit(
        AttemptEnded(
            step_ref=report.step_ref,
            attempt=report.attempt,
            outcome=report.outcome,
            spent=fault is not None,
            fault=fault,
            output=report.output,
            started=report.start_time is not None,
            kind=report.kind,
            item_index=report.item_index,
            position=position,
        )
    )
    tick.do(attempts.put_away(report))


def _failed(tick: Tick, position: int, report: AttemptReport) -> None:
    fault = report.fault or faults.of_outcome(report.outcome)
    assert fault is not None
    _close(tick, position, report, fault)
    entry = tick.work.run.saga.plan[position]
    policy = action_of(tick.manifest, entry).retry
    if entry.failures >= policy.max_attempts or not retry.retryable(policy, fault, report.non_retryable):
        _give_up(tick, position, fault)
        return
    if report.retry_after_ms is not None:
        delay_ms = min(max(report.retry_after_ms, 0), tick.limits.max_worker_delay_ms)
    else:
        delay_ms = retry.delay_ms(policy, entry.failures, tick.run_id, entry.step_ref, entry.attempt)
    _queue(tick, position, delay_ms=delay_ms, retry_of=entry.attempt)


def _came_to_nothing(tick: Tick, position: int) -> None:
    """The attempt was lost, given back or revoked: it is made again and costs no retry (A4)."""
    entry = tick.work.run.saga.plan[position]
    if entry.losses > MAX_LOST:
        message = f"the worker was lost {entry.losses} times"
        _give_up(tick, position, Fault(code=faults.WORKER_LOST, message=message))
        return
    _queue(tick, position, delay_ms=retry.pause_ms(entry.returned), retry_of=entry.attempt)


def _give_up(tick: Tick, position: int, fault: Fault) -> None:
    """The entry has failed: its step's policy says what that means (SA-04)."""
    entry = tick.work.run.saga.plan[position]
    compensation = tick.manifest.steps[tick.graph.index[entry.step_ref]].compensation
    assert compensation is not None
    _settle(tick, position, _FAILED[compensation.failure_policy], fault)


def _settle(tick: Tick, position: int, status: InverseStatus, fault: Fault | None = None) -> None:
    step_ref = tick.work.run.saga.plan[position].step_ref
    tick.emit(InverseEnded(position=position, step_ref=step_ref, status=status, fault=fault))


def _at_work(tick: Tick, report: AttemptReport) -> int | None:
    """The position of the entry whose latest attempt the report is about."""
    for position, entry in enumerate(tick.work.run.saga.plan):
        if entry.status is InverseStatus.RUNNING and _kin(entry, report) and entry.attempt == report.attempt:
            return position
    return None


def _kin(one: Inverse, other: Inverse | AttemptReport | LateSuccess) -> bool:
    """Whether two entries, or an entry and a fact about an attempt, number their attempts together."""
    return (one.step_ref, one.item_index, one.kind) == (other.step_ref, other.item_index, other.kind)


def _record(tick: Tick) -> None:
    """Have every entry written that changed in this tick."""
    plan = tick.work.run.saga.plan
    if not plan:
        return
    appended = sum(len(event.entries) for event in tick.events if isinstance(event, CompensationPlanned))
    changed = set(range(len(plan) - appended, len(plan)))
    for event in tick.events:
        match event:
            case AttemptCreated(position=int(position)) | AttemptEnded(position=int(position)):
                changed.add(position)
            case InverseEnded():
                changed.add(event.position)
    for position in sorted(changed):
        tick.do(RecordInverse(position=position, entry=plan[position]))
