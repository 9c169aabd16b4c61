"""`decide`: one tick of one run, from what is known to what happened and what to do. The whole engine behind one pure function.

The order is the semantics: first the facts that arrived, in order of time; then, if the run's time is over, its stop; then edges and joins
until nothing moves, where a failure stops the run before anything else begins; then the attempts that are to be made; then checkpoints; then
the end. It reads no clock and loads nothing: what it lacks it names (`Missing`).
"""

from datetime import datetime

from ductord.engine import attempts, checkpoints, ending, exits, faults, joins, stopping
from ductord.engine.evolve import bare_run
from ductord.engine.expressions import Programs, one_decision
from ductord.engine.limits import LIMITS, Limits
from ductord.engine.steps import SUPPORTED
from ductord.engine.tick import First, Tick
from ductord.model.decision import Decision, Missing
from ductord.model.effects import ClearTimers, Effect, SetTimer
from ductord.model.enums import NodeStatus, Outcome, RunStatus, TimerKind
from ductord.model.events import RunStarted
from ductord.model.inbox import AttemptReport, Inbox, TimerDue
from ductord.model.jsonvalue import storable_text
from ductord.model.manifest import Manifest
from ductord.model.run import Fault, Run

_NOTHING = Decision()


def decide(
    manifest: Manifest, programs: Programs, run: Run | None, inbox: Inbox, now: datetime, limits: Limits = LIMITS
) -> Decision | Missing:
    """Decide one tick at `now` (database time). `run` None: it has no run row yet and starts.

    Answers `Missing` when an expression reads outputs that are not in `inbox.outputs`: load them and call again, nothing was decided. Facts that
    were applied before, or that come too late, change nothing (A4); a decision without events may still carry effects that put them away.
    Raises `EngineError` for a state that cannot be (C9).
    """
    if run is not None and run.status.terminal:
        return _put_away(inbox)
    tick = Tick(manifest, programs, run or bare_run(inbox.start.run_id), inbox, now, limits)
    with one_decision():
        return _decide(tick)


def _decide(tick: Tick) -> Decision | Missing:
    if tick.work.run.status is RunStatus.PENDING:
        _start(tick)
    out_of_time = _facts(tick)
    if out_of_time:
        stopping.on_run_timeout(tick)
    joins.settle(tick)
    if tick.missing:
        return Missing(steps=frozenset(tick.missing))
    _launch(tick)
    checkpoints.judge(tick)
    ending.close(tick)
    if tick.missing:
        return Missing(steps=frozenset(tick.missing))
    if not tick.events:
        return Decision(effects=tuple(tick.effects)) if tick.effects else _NOTHING
    return Decision(events=tuple(tick.events), effects=tuple(tick.effects), run=tick.work.freeze())


def _put_away(inbox: Inbox) -> Decision:
    """The run is over: what came too late is put away and changes nothing (G8)."""
    if not inbox.reports and not inbox.timers:
        return _NOTHING
    effects: list[Effect] = [attempts.put_away(report) for report in inbox.reports]
    if inbox.timers:
        effects.append(ClearTimers())
    return Decision(effects=tuple(effects))


def _start(tick: Tick) -> None:
    """Take the run up: all nodes pending, the entrypoints begin."""
    manifest = tick.manifest
    tick.emit(RunStarted(nodes=len(manifest.steps), edges=len(manifest.edges), checkpoints=len(manifest.checkpoints)))
    if manifest.run_timeout_ms is not None:
        tick.do(SetTimer(kind=TimerKind.RUN_TIMEOUT, due_time=tick.after(manifest.run_timeout_ms)))
    tick.reach(manifest.entrypoints)


def _facts(tick: Tick) -> bool:
    """Apply reports and timers in order of time, a report before a timer of the same instant. True if the run's own time is over."""
    inbox = tick.inbox
    if not inbox.timers:
        for report in inbox.reports:
            attempts.judge(tick, report)
        return False
    out_of_time = False
    facts: list[AttemptReport | TimerDue] = [*inbox.reports, *(t for t in inbox.timers if t.due_time <= tick.now)]
    for fact in sorted(facts, key=lambda f: f.report_time if isinstance(f, AttemptReport) else f.due_time):
        if isinstance(fact, AttemptReport):
            attempts.judge(tick, fact)
            continue
        tick.do(ClearTimers(kind=fact.kind, step_ref=fact.step_ref))
        if fact.kind is TimerKind.TOTAL_TIMEOUT:
            _total_timeout(tick, fact)
        elif fact.kind is TimerKind.STOP_GRACE:
            stopping.on_grace_over(tick)
        else:
            out_of_time = True
    return out_of_time


def _total_timeout(tick: Tick, timer: TimerDue) -> None:
    """The step's time across attempts is over (A3): it fails, whether an attempt is at work, held back or just about to be made."""
    index = tick.graph.index.get(timer.step_ref)
    if index is None or tick.work.nodes[index].status is not NodeStatus.RUNNING:
        return
    node = tick.work.nodes[index]
    if tick.ready.pop(index, None) is None:
        held = attempts.held(tick, node)
        attempts.close(tick, index, Outcome.REVOKED if held else Outcome.TIMED_OUT, spent=not held)
    if node.cancelling:
        exits.cancel(tick, index, node.fault)
        return
    message = f"total_timeout_ms {tick.manifest.steps[index].total_timeout_ms} is over at attempt {node.attempt}"
    if node.fault is not None:
        detail = f" ({node.fault.message})" if node.fault.message else ""
        message = f"{message}; the last error was {node.fault.code}{detail}"
    exits.fail(tick, index, Fault(code=faults.TOTAL_TIMEOUT, message=storable_text(message)))


def _launch(tick: Tick) -> None:
    """Make the attempts that this tick decided on, in Kahn order."""
    for index in sorted(tick.ready):
        ready = tick.ready[index]
        if isinstance(ready, First):
            SUPPORTED[tick.manifest.steps[index].type].start(tick, index, ready.prepared)
        else:
            attempts.queue_again(tick, index, ready)
