"""`decide`: one tick of one run, from what is known to what happened and what to do. The whole engine behind one pure function.

The order is the semantics: first the facts that arrived, those about digests before others, in order of time; then the controls; then, if the run's time is
over, its stop; then edges and joins until nothing moves, where a failure stops the run before anything else begins; then the attempts that are to be made; then
checkpoints; then the end; then the compensation that an end owes. It reads no clock and loads nothing: what it lacks it names (`Missing`).
"""

from datetime import datetime, timedelta

from ductord.engine import (
    checkpoints,
    controls,
    digests,
    ending,
    exits,
    faults,
    forks,
    joins,
    policy,
    reports,
    saga,
    signals,
    stopping,
)
from ductord.engine.controls import continuing
from ductord.engine.evolve import bare_run
from ductord.engine.expressions import Programs, one_decision
from ductord.engine.fans import counting, rounds
from ductord.engine.fans.merging import merged
from ductord.engine.limits import LIMITS, Limits
from ductord.engine.steps import kind_of
from ductord.engine.tick import First, Tick
from ductord.model.decision import Decision, Missing
from ductord.model.effects import ClearTimers, SetTimer
from ductord.model.enums import Outcome, TaskKind, TimerKind
from ductord.model.events import RunStarted
from ductord.model.fault import Fault
from ductord.model.inbox import AttemptReport, Inbox, TimerDue
from ductord.model.jsonvalue import storable_text
from ductord.model.manifest import Manifest
from ductord.model.run import Run

_NOTHING = Decision()


def decide(
    manifest: Manifest, programs: Programs, run: Run | None, inbox: Inbox, now: datetime, limits: Limits = LIMITS
) -> Decision | Missing:
    """Decide one tick at `now` (database time). `run` None: it has no run row yet and starts.

    Answers `Missing` when an expression reads outputs that are not in `inbox`: load them and call again, nothing was decided. Facts that
    were applied before, or that come too late, change nothing (A4); a decision without events may still carry effects that put them away.
    Raises `EngineError` for a state that cannot be (C9).
    """
    tick = Tick(manifest, programs, run or forks.base_of(inbox) or bare_run(inbox.start.run_id), inbox, now, limits)
    with one_decision():
        return _decide(tick, new=run is None)


def _decide(tick: Tick, *, new: bool) -> Decision | Missing:
    if new:
        _start(tick)
    elif tick.graph.fans:
        rounds.foresee(tick)
        if tick.lacking:
            return tick.lacking
    rounds.settle(tick)
    out_of_time = _facts(tick)
    rounds.settle(tick)
    if tick.inbox.lates:
        saga.late(tick)
    if tick.inbox.controls:
        if tick.lacking:
            return tick.lacking
        controls.apply(tick)
        digests.tell(tick)
        out_of_time = signals.let_go(tick, _timer) or out_of_time
    if tick.open:
        if out_of_time:
            stopping.on_run_timeout(tick)
        continuing.by_length(tick)
        while True:
            if not tick.paused:
                joins.settle(tick)
            if tick.lacking:
                return tick.lacking
            _launch(tick, parking=True)
            # A step that was parked just now may find its word from outside waiting for it (E1), and another may see what it waits for in the run. Either may
            # fail by it and stop the run, so nothing is handed to workers before.
            told = signals.deliver(tick)
            looked = signals.look(tick)
            moved = not tick.paused and (tick.frontier or tick.failing)  # by a step that ended where it would begin
            if not (looked or told or moved):
                break
        if tick.lacking:
            return tick.lacking
        _launch(tick, parking=False)
        rounds.fill(tick)
        if tick.lacking:
            return tick.lacking
        continuing.tell_length(tick)
        checkpoints.judge(tick)
        signals.put_away(tick)
        ending.close(tick)
    if tick.work.run.saga.plan or not tick.open:
        saga.advance(tick)
    if tick.lacking:
        return tick.lacking
    if not tick.events:
        return Decision(effects=tuple(tick.effects)) if tick.effects else _NOTHING
    events = merged(tick.events) if tick.graph.fans else tuple(tick.events)
    return Decision(events=events, effects=tuple(tick.effects), run=tick.work.freeze())


def _start(tick: Tick) -> None:
    """Take the run up: all nodes pending, the entrypoints begin. A reset run begins where its source's history was cut (C5)."""
    manifest, start = tick.manifest, tick.inbox.start
    if start.reset_from_seq:
        forks.start(tick)
    else:
        tick.emit(
            RunStarted(
                nodes=len(manifest.steps),
                edges=len(manifest.edges),
                checkpoints=len(manifest.checkpoints),
                inverses=start.inverses,
            )
        )
        tick.reach(manifest.entrypoints)
    if manifest.run_timeout_ms is not None:
        tick.do(SetTimer(kind=TimerKind.RUN_TIMEOUT, due_time=tick.after(manifest.run_timeout_ms)))


def _facts(tick: Tick) -> bool:
    """Apply reports, timers, and what external events and signals waiting nodes were told, in order of time; of one instant a report comes first and a timer
    last. True if the run's own time is over."""
    inbox = tick.inbox
    digests.tell(tick)
    if inbox.signals or inbox.receipts or inbox.children:
        return signals.facts(tick, _judge, _timer)
    if not inbox.timers:
        for report in inbox.reports:
            _judge(tick, report)
        return False
    out_of_time = False
    facts: list[AttemptReport | TimerDue] = [*inbox.reports, *(t for t in inbox.timers if t.due_time <= tick.now)]
    for fact in sorted(facts, key=lambda f: f.report_time if isinstance(f, AttemptReport) else f.due_time):
        if isinstance(fact, AttemptReport):
            _judge(tick, fact)
        else:
            out_of_time = _timer(tick, fact) or out_of_time
    return out_of_time


def _judge(tick: Tick, report: AttemptReport) -> None:
    if report.kind is TaskKind.STEP:
        reports.judge(tick, report)
    elif report.kind is TaskKind.ITEM:
        rounds.judge(tick, report)
    else:
        saga.judge(tick, report)


def _timer(tick: Tick, timer: TimerDue) -> bool:
    """Apply a timer; True if it says that the run's own time is over. While the run is paused all others are held (C2), but for the grace of a loser, which is
    part of an end that is under way (G7)."""
    if not tick.open:
        tick.clear_timers()
        return False
    if timer.kind is TimerKind.RUN_TIMEOUT:
        tick.do(ClearTimers(kind=timer.kind, step_ref=timer.step_ref))
        return True
    if timer.kind is not TimerKind.NODE_GRACE and tick.holds(timer.step_ref):
        tick.held.append(timer)
        return False
    tick.do(ClearTimers(kind=timer.kind, step_ref=timer.step_ref))
    if timer.kind is TimerKind.TOTAL_TIMEOUT:
        _total_timeout(tick, timer)
    elif timer.kind is TimerKind.STOP_GRACE:
        stopping.on_grace_over(tick)
    elif timer.kind is TimerKind.NODE_GRACE:
        stopping.on_node_grace(tick, timer.step_ref)
    else:
        signals.on_timer(tick, timer)
    return False


def _total_timeout(tick: Tick, timer: TimerDue) -> None:
    """The step's time across attempts is over (A3): it fails, whether an attempt is at work, held back or just about to be made."""
    index = tick.graph.index.get(timer.step_ref)
    if index is None or not tick.work.nodes[index].status.begun:
        return
    step, node = tick.manifest.steps[index], tick.work.nodes[index]
    total = policy.total_timeout_ms(step, node)
    if total is None or (node.first_time is not None and node.first_time + timedelta(milliseconds=total) > tick.now):
        return  # An operator gave it more time in this very tick.
    stands = f"when {counting.progress(node.fan)}" if node.fan is not None else f"at attempt {node.attempt}"
    kind_of(tick, index).drop(tick, index, Outcome.TIMED_OUT)
    if node.cancelling:
        stopping.end_dropped(tick, index)
        return
    message = f"total_timeout_ms {total} is over {stands}"
    if node.fault is not None:
        detail = f" ({node.fault.message})" if node.fault.message else ""
        message = f"{message}; the last error was {node.fault.code}{detail}"
    exits.fail(tick, index, Fault(code=faults.TOTAL_TIMEOUT, message=storable_text(message)))


def _launch(tick: Tick, *, parking: bool) -> None:
    """Make the attempts that this tick decided on, in Kahn order; or park the nodes that it found ready to wait."""
    if not tick.ready:
        return
    for index in sorted(tick.ready):
        kind = kind_of(tick, index)
        if kind.parks is not parking:
            continue
        ready = tick.ready.pop(index)
        if isinstance(ready, First):
            kind.start(tick, index, ready.prepared)
        else:
            kind.again(tick, index, ready)
