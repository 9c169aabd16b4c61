"""Word from outside meets the nodes that wait for it: signals, receipts of external events, and the timers of waits (rulings E1 to E6, C2).

In order of time, so that a deadline is judged before what came after it. A held node is told nothing until it is let go; a signal for a step that has not
parked is kept until it does. What word means for a type of step is asked of its kind.
"""

from collections.abc import Callable

from ductord.engine.steps import kind_of
from ductord.engine.tick import Tick
from ductord.model.effects import SettleSignal, TakeReceipts
from ductord.model.enums import NodeStatus, SignalStatus
from ductord.model.inbox import AttemptReport, Receipt, Signal, TimerDue

Fact = AttemptReport | TimerDue | Signal | Receipt


def facts(tick: Tick, judge: Callable[[Tick, AttemptReport], None], timer: Callable[[Tick, TimerDue], bool]) -> bool:
    """Apply everything that has happened, in order of time; of one instant reports first, then signals and events, then timers. True if the run's own
    time is over. Signals for steps that do not wait yet are left for `deliver`."""
    inbox = tick.inbox
    known: list[Fact] = [
        *inbox.reports,
        *inbox.signals,
        *inbox.receipts,
        *(t for t in inbox.timers if t.due_time <= tick.now),
    ]
    out_of_time = False
    for fact in sorted(known, key=_moment):
        match fact:
            case AttemptReport():
                judge(tick, fact)
            case TimerDue():
                out_of_time = timer(tick, fact) or out_of_time
            case Signal():
                _tell(tick, fact)
            case Receipt():
                _receive(tick, [fact])
    return out_of_time


def on_timer(tick: Tick, timer: TimerDue) -> None:
    """A timer of a wait is due."""
    index = _waiting(tick, timer.step_ref)
    if index is not None and (hook := kind_of(tick, index).on_timer) is not None:
        hook(tick, index, timer.kind)


def deliver(tick: Tick) -> bool:
    """Give nodes that wait, and were not told before, what is kept for them; whether a node ended by it, so that the tick has to go on."""
    ended = len(tick.events)
    parked, tick.parked = tick.parked, []
    refs = {tick.manifest.steps[index].ref for index in parked}
    if refs:
        for signal in tick.inbox.signals:
            if signal.step_ref in refs:
                _tell(tick, signal)
    return len(tick.events) > ended


def look(tick: Tick) -> bool:
    """Let nodes look that wait for something about the run, which has changed in this tick; whether one ended by it, so that the tick has to go on."""
    before = len(tick.events)
    for index in tick.graph.looks if tick.events else ():
        if tick.work.nodes[index].status is NodeStatus.WAITING and not tick.holds(tick.manifest.steps[index].ref):
            look = kind_of(tick, index).look
            if look is not None:
                look(tick, index)
    return len(tick.events) > before


def let_go(tick: Tick, timer: Callable[[Tick, TimerDue], bool]) -> bool:
    """Apply what was held for nodes that nothing holds any more, in order of time as ever (C2, TC-10). True if the run's own time is over."""
    held, tick.held = tick.held, []
    known: list[Fact] = [*held, *tick.inbox.signals, *(r for r in tick.inbox.receipts if not taken(tick, r))]
    out_of_time = False
    for fact in sorted(known, key=_moment):
        match fact:
            case TimerDue():
                out_of_time = timer(tick, fact) or out_of_time
            case Signal():
                _tell(tick, fact)
            case Receipt():
                _receive(tick, [fact])
    return out_of_time


def _moment(fact: Fact) -> tuple[object, int]:
    match fact:
        case AttemptReport():
            return fact.report_time, 0
        case Signal():
            return fact.create_time, 1
        case Receipt():
            return fact.time, 1
        case TimerDue():
            return fact.due_time, 2


def _tell(tick: Tick, signal: Signal) -> None:
    if settled(tick, signal):
        return
    index = tick.graph.index.get(signal.step_ref)
    node = tick.work.nodes[index] if index is not None else None
    if index is None or node is None or node.status.terminal:
        tick.do(SettleSignal(request_id=signal.request_id, status=SignalStatus.IGNORED, message="the step had ended"))
        return
    if node.status is not NodeStatus.WAITING or tick.holds(signal.step_ref):
        return
    if (hook := kind_of(tick, index).on_signal) is not None:
        hook(tick, index, signal)


def settled(tick: Tick, signal: Signal) -> bool:
    """Whether the signal has been settled in this tick."""
    return any(isinstance(e, SettleSignal) and e.request_id == signal.request_id for e in tick.effects)


def taken(tick: Tick, receipt: Receipt) -> bool:
    """Whether the receipt has been applied in this tick."""
    wait = (receipt.step_ref, receipt.attempt)
    return any(
        isinstance(e, TakeReceipts) and (e.step_ref, e.attempt) == wait and receipt.event_id in e.event_ids
        for e in tick.effects
    )


def _receive(tick: Tick, receipts: list[Receipt]) -> None:
    first = receipts[0]
    index = _waiting(tick, first.step_ref)
    if index is not None and tick.holds(first.step_ref):
        return
    if index is None or tick.work.nodes[index].attempt != first.attempt:
        # Its wait is over: it is put away, and changes nothing.
        ids = tuple(receipt.event_id for receipt in receipts)
        tick.do(TakeReceipts(step_ref=first.step_ref, attempt=first.attempt, event_ids=ids))
        return
    if (hook := kind_of(tick, index).on_receipts) is not None:
        hook(tick, index, receipts)


def _waiting(tick: Tick, step_ref: str) -> int | None:
    index = tick.graph.index.get(step_ref)
    waits = index is not None and tick.work.nodes[index].status is NodeStatus.WAITING
    return index if waits else None
