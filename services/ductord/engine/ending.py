"""The end of a run: when no node is open it closes, with the first committed cause or `completed`, and its output (ruling G8)."""

from ductord.engine import faults, signals
from ductord.engine.checkpoints import outputs_of
from ductord.engine.controls import continuing, redriving
from ductord.engine.expressions import ExpressionError
from ductord.engine.reading import bindings
from ductord.engine.tick import Tick
from ductord.model import jsonvalue
from ductord.model.effects import RecordResult, SetTimer
from ductord.model.enums import RunStatus
from ductord.model.errors import PayloadInvalid
from ductord.model.events import RunEnded
from ductord.model.fan_effects import CloseChildren, PassChildOn, TellParent, TickAgain
from ductord.model.fault import Fault
from ductord.model.run import Stop


def close(tick: Tick) -> None:
    """End the run if nothing is open any more."""
    run = tick.work.run
    if run.open_nodes or run.status is not RunStatus.RUNNING:
        return
    stop = run.stop
    successor = stop.continuation if stop is not None else None
    status = stop.cause if stop is not None else RunStatus.COMPLETED
    output_fault = _record_output(tick) if status is RunStatus.COMPLETED else None
    tick.emit(
        RunEnded(
            status=status,
            has_errors=run.has_errors,
            fault=stop.fault if stop is not None else None,
            output_fault=output_fault,
            close_reason=continuing.CLOSE_REASON if successor is not None else "",
            continued_to_run_id=successor.new_run_id if successor is not None else "",
            merged_into_run_id=stop.merged_into_run_id if stop is not None else "",
        )
    )
    # The commit clears timers before it sets any: what this tick wanted to set must not outlive the run.
    tick.effects = [effect for effect in tick.effects if not isinstance(effect, SetTimer)]
    if tick.manifest.run_timeout_ms is not None or stop is not None:
        tick.clear_timers()
    if successor is not None:
        continuing.hand_over(tick, successor)
    signals.end(tick)
    _tell_family(tick, run.stop, status)


def _tell_family(tick: Tick, stop: Stop | None, status: RunStatus) -> None:
    """Children that are open get what their close policies say; whoever waits for this run as a child is told of its end, or follows it (F5)."""
    continued_to = stop.continuation.new_run_id if stop is not None and stop.continuation is not None else ""
    if tick.graph.parents:
        tick.do(CloseChildren(status=status, continued_to_run_id=continued_to))
    if not tick.inbox.start.parent_run_id:
        return
    if continued_to:
        tick.do(PassChildOn(run_id=continued_to))
    elif redriving.follows(tick):
        # An end that is none, or the refusal of that redrive tells of it.
        tick.do(TickAgain())
    else:
        tick.do(TellParent(status=status, fault=stop.fault if stop is not None else None))


def _record_output(tick: Tick) -> Fault | None:
    """Record the output of a completed run. A definition's `output` that does not evaluate leaves the run completed, with this fault (G8)."""
    template = tick.manifest.output
    if template is None:
        tick.do(RecordResult(refs=outputs_of(tick, tick.graph.leaves)))
        return None
    if tick.lacks(template.steps):
        return None
    try:
        output = template.tree if template.static else tick.programs.render(template, bindings(tick, template))
        text = jsonvalue.encode(output, root="output", max_bytes=tick.limits.aggregate_max_bytes)
    except ExpressionError as error:
        return faults.of_expression(error)
    except PayloadInvalid as error:
        return faults.of_payload(error)
    tick.do(RecordResult(output_json=text))
    return None
