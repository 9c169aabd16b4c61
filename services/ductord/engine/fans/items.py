"""Inline children: tasks of the run itself, each with attempts, retries and a verdict of its own (rulings F1, A1 to A6, C7).

What a child has behind it stands in the row of its open attempt and comes with the report. A report is of an attempt whose row is open, so it is for a child
that is open too; whatever closes children closes their rows in the same commit.
"""

from typing import assert_never

import msgspec
from msgspec.structs import replace

from ductord.engine import attempts, faults, policy, reports, retry, saga
from ductord.engine.doubt import may_have_acted, unsaid
from ductord.engine.fans import making
from ductord.engine.fans.expanding import fan_of
from ductord.engine.ledger import undoable
from ductord.engine.tick import Repeat, Tick
from ductord.model.effects import CloseAttempt
from ductord.model.enums import AttemptStatus, Outcome, TaskKind, TimerKind
from ductord.model.events import AttemptEnded, NodeCancelRequested
from ductord.model.fan import Item
from ductord.model.fan_effects import CancelItems, CloseItems, RecordItemFault
from ductord.model.fan_events import ChildFailed, ChildrenCancelled, ChildrenDropped, ChildrenSucceeded
from ductord.model.fault import Fault
from ductord.model.inbox import AttemptReport
from ductord.model.needs import ItemsNeed


def judge(tick: Tick, report: AttemptReport) -> int | None:
    """Apply the report of a child (A2, A4); the index of its node, if it was for one that is open."""
    index = tick.graph.index.get(report.step_ref)
    if index is None:
        tick.do(attempts.put_away(report))
        return None
    node = tick.work.nodes[index]
    behind = report.item or Item(logical=report.attempt)
    if not node.status.begun or node.fan is None or not node.fan.open or report.attempt > node.top:
        tick.do(_as_cancelled(report))
        if report.outcome is Outcome.SUCCEEDED and node.status.terminal and node.fan is not None:
            # Its node was ended in this very tick, by a timer of an earlier instant: the effect is there all the same (C7).
            saga.register(tick, index, report.attempt, behind.logical, item_index=report.item_index, late=True)
        return None
    match report.outcome:
        case Outcome.SUCCEEDED:
            tick.do(attempts.put_away(report))
            pair = (report.item_index, report.attempt)
            tick.emit(ChildrenSucceeded(step_ref=report.step_ref, children=(pair,)))
            saga.register(tick, index, report.attempt, behind.logical, item_index=report.item_index)
        case Outcome.FAILED | Outcome.TIMED_OUT | Outcome.HEARTBEAT_TIMED_OUT | Outcome.QUEUE_TIMED_OUT:
            fault = report.fault or faults.of_outcome(report.outcome)
            assert fault is not None
            _failed(tick, index, report, _after(behind, report, fault), fault)
        case Outcome.LOST | Outcome.RELEASED | Outcome.REVOKED:
            _came_to_nothing(tick, index, report, _after(behind, report, None))
        case _:
            assert_never(report.outcome)
    return index


def repeat(tick: Tick) -> None:
    """Queue the further attempts that were decided on in this tick, with the input of the ones before. Where the run has begun to drain meanwhile, what failed
    is not tried again (G5)."""
    for index, repeats in sorted(tick.repeats.items()):
        for one in repeats:
            if one.fault is not None and not reports.goes_on(tick, index):
                _fail(tick, index, one.report, one.fault, one.item)
            else:
                tick.do(attempts.put_away(one.report))
                making.again(tick, index, one)
    tick.repeats.clear()


# What a stop, a time-out or a reset means for inline children.


def may_report(tick: Tick, index: int) -> bool:
    """Whether a child has an attempt that may be at work. One that was to get another in this tick has none."""
    return fan_of(tick, index).open > len(tick.repeats.get(index, ()))


def ask(tick: Tick, index: int) -> None:
    """Have the children asked to stop; those that a worker has may still report."""
    tick.emit(NodeCancelRequested(step_ref=tick.manifest.steps[index].ref))
    call_off(tick, index)


def call_off(tick: Tick, index: int) -> None:
    """Have the open children cancelled; one that nobody works for has ended with that."""
    ref = tick.manifest.steps[index].ref
    for one in tick.repeats.pop(index, ()):
        _cancelled(tick, index, one.report, one.item)
    if fan_of(tick, index).open:
        tick.do(CancelItems(step_ref=ref))


def drop(tick: Tick, index: int, outcome: Outcome) -> None:
    """End all open children without waiting for anybody. Whatever the reason, they count as cancelled: a gather shows nothing of them."""
    ref, fan = tick.manifest.steps[index].ref, fan_of(tick, index)
    if not fan.open:
        return
    doubted = _open_doubts(tick, index) if undoable(tick.manifest.steps[index]) else ()
    for one in tick.repeats.pop(index, ()):
        tick.do(_as_cancelled(one.report))
    tick.emit(ChildrenDropped(step_ref=ref))
    tick.do(CloseItems(step_ref=ref))
    for item_index, logical in doubted:
        saga.doubt(tick, index, item_index, logical)


def reset(tick: Tick, index: int) -> None:
    """Put away what the node has open: it is about to expand anew (C10)."""
    ref = tick.manifest.steps[index].ref
    drop(tick, index, Outcome.REVOKED)
    tick.unset(TimerKind.TOTAL_TIMEOUT, ref)
    if tick.work.nodes[index].cancelling:
        tick.unset(TimerKind.NODE_GRACE, ref)


def _failed(tick: Tick, index: int, report: AttemptReport, item: Item, fault: Fault) -> None:
    node = tick.work.nodes[index]
    rules = policy.retry_of(tick.manifest.steps[index], node)
    if node.cancelling:
        _cancelled(tick, index, report, item)
    elif (
        item.failures < rules.max_attempts
        and report.outcome is not Outcome.QUEUE_TIMED_OUT
        and retry.retryable(rules, fault, report.non_retryable)
        and reports.goes_on(tick, index)
    ):
        _repeat(tick, index, report, item, reports.delay_ms(tick, index, report, item.failures), fault)
    else:
        _fail(tick, index, report, fault, item)


def _came_to_nothing(tick: Tick, index: int, report: AttemptReport, item: Item) -> None:
    """The attempt was lost, given back or revoked: it is made again and costs no retry (A4)."""
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    if node.cancelling:
        _cancelled(tick, index, report, item)
    elif item.losses > step.max_lost:
        message = f"the worker was lost {item.losses} times"
        _fail(tick, index, report, Fault(code=faults.WORKER_LOST, message=message), item)
    else:
        _repeat(tick, index, report, item, retry.pause_ms(item.returned), None)


def _fail(tick: Tick, index: int, report: AttemptReport, fault: Fault, item: Item) -> None:
    """A child has failed for good. Its row says why, also where no worker did."""
    ref, item_index, attempt = report.step_ref, report.item_index, report.attempt
    tick.do(attempts.put_away(report))
    tick.emit(ChildFailed(step_ref=ref, item_index=item_index, fault=fault, attempt=attempt))
    tick.do(RecordItemFault(step_ref=ref, item_index=item_index, attempt=attempt, fault=fault))
    _doubt(tick, index, item_index, item)


def _as_cancelled(report: AttemptReport) -> CloseAttempt:
    """The verdict over an attempt whose child counts as cancelled, whatever was reported of it: a gather shows nothing of it."""
    return replace(attempts.put_away(report), status=AttemptStatus.CANCELLED)


def _cancelled(tick: Tick, index: int, report: AttemptReport, item: Item) -> None:
    tick.do(_as_cancelled(report))
    tick.emit(ChildrenCancelled(step_ref=report.step_ref, children=((report.item_index, report.attempt),)))
    _doubt(tick, index, report.item_index, item)


def _repeat(tick: Tick, index: int, report: AttemptReport, item: Item, delay_ms: int, fault: Fault | None) -> None:
    tick.emit(
        AttemptEnded(
            step_ref=report.step_ref,
            attempt=report.attempt,
            outcome=report.outcome,
            spent=fault is not None,
            fault=fault,
            started=report.start_time is not None,
            kind=TaskKind.ITEM,
            item_index=report.item_index,
        )
    )
    if not unsaid(report.outcome, fault):
        # The outside may already know this attempt's key unless the worker told us that it failed (A6).
        item = replace(item, logical=report.attempt + 1)
    tick.repeats.setdefault(index, []).append(Repeat(report, item, delay_ms, fault))


def _after(behind: Item, report: AttemptReport, fault: Fault | None) -> Item:
    """What a child has behind it when this attempt of it has ended without success."""
    unknown = behind.unknown
    acted = may_have_acted(report.outcome, fault, started=report.start_time is not None)
    if acted and behind.logical not in unknown:
        unknown = (*unknown, behind.logical)
    return Item(
        logical=behind.logical,
        failures=behind.failures + (fault is not None),
        losses=behind.losses + (report.outcome is Outcome.LOST),
        returned=behind.returned + report.outcome.returned,
        unknown=unknown,
    )


def _doubt(tick: Tick, index: int, item_index: int, item: Item) -> None:
    """The child has ended without success: what it may have done all the same is somebody's to look at (C7, SA-02)."""
    for logical in item.unknown:
        saga.doubt(tick, index, item_index, logical)


def _open_doubts(tick: Tick, index: int) -> list[tuple[int, int]]:
    """Index and logical attempt of what the open children may have done."""
    ref, fan = tick.manifest.steps[index].ref, fan_of(tick, index)
    rows = tick.given(ItemsNeed(ref, fan.next))
    if rows is msgspec.UNSET:
        return []
    ended = _ended(tick, ref)
    found = [(one.report.item_index, logical) for one in tick.repeats.get(index, ()) for logical in one.item.unknown]
    for row in rows:
        if row.open and row.item_index not in ended:
            logicals = (*row.item.unknown, row.item.logical) if row.started else row.item.unknown
            found += [(row.item_index, logical) for logical in dict.fromkeys(logicals)]
    return found


def _ended(tick: Tick, ref: str) -> set[int]:
    """The children whose attempts, open in their rows, were judged in this very tick."""
    ended: set[int] = set()
    for event in tick.events:
        match event:
            case ChildrenSucceeded(step_ref=named) | ChildrenCancelled(step_ref=named) if named == ref:
                ended.update(number for number, _ in event.children)
            case ChildFailed(step_ref=named) | AttemptEnded(step_ref=named, kind=TaskKind.ITEM) if named == ref:
                ended.add(event.item_index)
    return ended
