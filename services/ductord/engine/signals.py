"""Word from outside meets the nodes that wait for it: signals, receipts of external events, and the timers of waits (rulings E1 to E6, C2).

In order of time, so that a deadline is judged before what came after it. A held node is told nothing until it is let go; a signal for a step that has not
parked is kept until it does. What word means for a type of step is asked of its kind.
"""

from collections.abc import Callable
from itertools import groupby
from typing import Any

from ductord.engine.fans import rounds
from ductord.engine.steps import kind_of
from ductord.engine.tick import Tick
from ductord.model.effects import MoveSignals, SettleSignal, TakeReceipts
from ductord.model.enums import NodeStatus, SignalStatus, SkipReason
from ductord.model.fan_effects import TakeChildren
from ductord.model.inbox import AttemptReport, ChildFact, Receipt, Signal, TimerDue
from ductord.model.run import Node

Fact = AttemptReport | TimerDue | Signal | Receipt | ChildFact


def facts(tick: Tick, judge: Callable[[Tick, AttemptReport], None], timer: Callable[[Tick, TimerDue], bool]) -> bool:
    """Apply everything that has happened, in order of time; of one instant reports and the ends of children first, then signals and events, then timers.
    True if the run's own time is over. Signals for steps that do not wait yet are left for `deliver`."""
    inbox = tick.inbox
    due = (timer for timer in inbox.timers if timer.due_time <= tick.now)
    return _apply(tick, [*inbox.reports, *inbox.children, *inbox.signals, *inbox.receipts, *due], timer, judge)


def on_timer(tick: Tick, timer: TimerDue) -> None:
    """A timer of a wait is due."""
    index = _waiting(tick, timer.step_ref)
    if index is not None and (hook := kind_of(tick, index).on_timer) is not None:
        hook(tick, index, timer.kind)


def deliver(tick: Tick) -> bool:
    """Give nodes that wait, and were not told before, what is kept for them; whether a node ended by it, so that the tick has to go on."""
    if not tick.parked:
        return False
    ended = len(tick.events)
    parked, tick.parked = tick.parked, []
    refs = {tick.manifest.steps[index].ref for index in parked}
    for signal in tick.inbox.signals:
        if signal.step_ref in refs:
            _tell(tick, signal)
    return len(tick.events) > ended


def look(tick: Tick) -> bool:
    """Let nodes look that wait for something about the run, which has changed in this tick; whether one ended by it, so that the tick has to go on."""
    if not tick.graph.looks or not tick.events:
        return False
    before = len(tick.events)
    for index in tick.graph.looks:
        if tick.work.nodes[index].status is NodeStatus.WAITING and not tick.holds(tick.manifest.steps[index].ref):
            look = kind_of(tick, index).look
            if look is not None:
                look(tick, index)
    return len(tick.events) > before


def let_go(tick: Tick, timer: Callable[[Tick, TimerDue], bool]) -> bool:
    """Apply what was held for nodes that nothing holds any more, in order of time as ever (C2, TC-10). True if the run's own time is over."""
    held, tick.held = tick.held, []
    taken = _taken(tick)
    left = (r for r in tick.inbox.receipts if (r.step_ref, r.attempt, r.event_id) not in taken)
    return _apply(tick, [*held, *tick.inbox.signals, *left], timer)


def _apply(
    tick: Tick,
    known: list[Fact],
    timer: Callable[[Tick, TimerDue], bool],
    judge: Callable[[Tick, AttemptReport], None] | None = None,
) -> bool:
    """In order of time; what came to one wait with nothing in between is shown to it at once."""
    out_of_time = False
    for _, alike in groupby(sorted(known, key=_moment), key=_place):
        for fact in alike:
            match fact:
                case AttemptReport():
                    assert judge is not None
                    judge(tick, fact)
                case ChildFact():
                    _child(tick, fact)
                case TimerDue():
                    out_of_time = timer(tick, fact) or out_of_time
                case Signal():
                    _tell(tick, fact)
                case Receipt():
                    _receive(tick, [fact, *(r for r in alike if isinstance(r, Receipt))])
    return out_of_time


def _place(fact: Fact) -> tuple[str, int] | None:
    """The wait that an external event came to; None for any other fact."""
    return (fact.step_ref, fact.attempt) if isinstance(fact, Receipt) else None


def cut_off(node: Node) -> bool:
    """Whether the node ended otherwise than by itself, as what the stop of a run ends does."""
    return node.status is NodeStatus.CANCELLED or node.skip_reason is SkipReason.RUN_ENDED


def put_away(tick: Tick) -> None:
    """Signals for steps that ended in this tick without them change nothing any more (E1)."""
    if not tick.inbox.signals:
        return
    for signal in _unsettled(tick):
        index = tick.graph.index.get(signal.step_ref)
        if index is not None and tick.work.nodes[index].status.terminal:
            _too_late(tick, signal)


def hand_over(tick: Tick, run_id: str) -> None:
    """The run ends to go on as `run_id`, which gets what no step has consumed (C6)."""
    unconsumed = tuple(signal.request_id for signal in _unsettled(tick) if _cut_off(tick, signal))
    if unconsumed:
        tick.do(MoveSignals(run_id=run_id, request_ids=unconsumed))


def end(tick: Tick) -> None:
    """The run has ended: what no step has consumed goes with it (E1)."""
    for signal in _unsettled(tick):
        if _cut_off(tick, signal):
            _discard(tick, signal)
        else:
            _ignore(tick, signal)


def _moment(fact: Fact) -> tuple[Any, ...]:
    """What the order of facts is judged by: events of one instant go by their ids, each wait getting one as a whole (E4), signals as they came (E1)."""
    match fact:
        case AttemptReport():
            return fact.report_time, 0
        case ChildFact():
            return fact.time, 0
        case Signal():
            return fact.create_time, 1
        case Receipt():
            return fact.time, 1, fact.event_id, fact.event_name, fact.step_ref, fact.attempt, fact.requirement
        case TimerDue():
            return fact.due_time, 2


def _tell(tick: Tick, signal: Signal) -> None:
    if settled(tick, signal):
        return
    index = tick.graph.index.get(signal.step_ref)
    if index is None or tick.work.nodes[index].status.terminal:
        _too_late(tick, signal)
        return
    node = tick.work.nodes[index]
    if node.status is not NodeStatus.WAITING or tick.holds(signal.step_ref):
        return
    if (hook := kind_of(tick, index).on_signal) is not None:
        hook(tick, index, signal)


def _too_late(tick: Tick, signal: Signal) -> None:
    """A signal for a step that has ended is recorded and changes nothing. One whose step was cut off by a run on its way to a successor is for that: it stays
    kept until the close, and is handed on after (C6)."""
    run = tick.work.run
    if not _cut_off(tick, signal):
        _ignore(tick, signal)
    elif run.continued_to_run_id:
        tick.do(MoveSignals(run_id=run.continued_to_run_id, request_ids=(signal.request_id,)))
    elif run.stop is None or run.stop.continuation is None:
        _discard(tick, signal)


def _cut_off(tick: Tick, signal: Signal) -> bool:
    """Whether the signal's step ended because its run was stopped."""
    index = tick.graph.index.get(signal.step_ref)
    if index is None or tick.work.run.stop is None:
        return False
    node = tick.work.nodes[index]
    if node.skip_reason is SkipReason.RACE_LOST:
        return False
    return node.status is NodeStatus.CANCELLED or node.skip_reason is SkipReason.RUN_ENDED


def _ignore(tick: Tick, signal: Signal) -> None:
    tick.do(SettleSignal(request_id=signal.request_id, status=SignalStatus.IGNORED, message="the step had ended"))


def _discard(tick: Tick, signal: Signal) -> None:
    message = "the run ended before its step took it"
    tick.do(SettleSignal(request_id=signal.request_id, status=SignalStatus.DISCARDED, message=message))


def _unsettled(tick: Tick) -> list[Signal]:
    return [signal for signal in tick.inbox.signals if not settled(tick, signal)]


def settled(tick: Tick, signal: Signal) -> bool:
    """Whether the signal has been settled, or handed on, in this tick."""
    return any(
        (isinstance(e, SettleSignal) and e.request_id == signal.request_id)
        or (isinstance(e, MoveSignals) and signal.request_id in e.request_ids)
        for e in tick.effects
    )


def _taken(tick: Tick) -> set[tuple[str, int, str]]:
    """The events that have been put away in this tick, by wait and id."""
    return {
        (e.step_ref, e.attempt, event_id)
        for e in tick.effects
        if isinstance(e, TakeReceipts)
        for event_id in e.event_ids
    }


def _receive(tick: Tick, receipts: list[Receipt]) -> None:
    first = receipts[0]
    index = _waiting(tick, first.step_ref)
    if index is None or tick.work.nodes[index].attempt != first.attempt:
        # Its wait is over: it is put away, and changes nothing.
        ids = tuple(receipt.event_id for receipt in receipts)
        tick.do(TakeReceipts(step_ref=first.step_ref, attempt=first.attempt, event_ids=ids))
        return
    if tick.holds(first.step_ref):
        return
    if (hook := kind_of(tick, index).on_receipts) is not None:
        hook(tick, index, receipts)


def _child(tick: Tick, fact: ChildFact) -> None:
    """What became of a child run. One of an earlier attempt of its node, or of a node that has ended, changes nothing."""
    tick.do(TakeChildren(run_ids=(fact.run_id,)))
    index = tick.graph.index.get(fact.step_ref)
    if index is None or not tick.open:
        return
    node = tick.work.nodes[index]
    begun = node.status.begun and node.attempt == fact.attempt
    if begun and (hook := kind_of(tick, index).on_child) is not None:
        hook(tick, index, fact)
        rounds.look(tick, index)


def _waiting(tick: Tick, step_ref: str) -> int | None:
    index = tick.graph.index.get(step_ref)
    waits = index is not None and tick.work.nodes[index].status is NodeStatus.WAITING
    return index if waits else None
