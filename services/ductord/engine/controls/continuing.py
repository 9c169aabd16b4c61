"""Continue-as-new: handing a run over to a successor, asked for or because its history grew too long (rulings C6, G8).

Once accepted the run is emptied as by a cancel, and its control stays pending; the close gives birth to the successor and hands it what came meanwhile. The
successor's id follows from run and request, so however often and wherever it is asked for, there is one.
"""

from ductord.engine import faults, saga, signals, stopping
from ductord.engine.controls import admission
from ductord.engine.controls.settling import reject, settle
from ductord.engine.errors import EngineError
from ductord.engine.tick import Tick
from ductord.model import ids, jsonvalue
from ductord.model.control import Control, Rejection
from ductord.model.effects import ForwardControl, RecordAudit, SettleControl, StartRun
from ductord.model.enums import NodeStatus, RunStatus, Verb
from ductord.model.errors import PayloadInvalid
from ductord.model.events import HistoryLong
from ductord.model.fault import Fault
from ductord.model.run import Continuation, Run, Stop, Waiting

CLOSE_REASON = "continued_as_new"


def successor_of(run: Run, request_id: str) -> str:
    """The id of the run that a continue-as-new leads to: the successor that there is, or is on its way, or the one that this request makes (field case
    RR-03)."""
    if run.stop is not None and run.stop.continuation is not None:
        return run.stop.continuation.new_run_id
    return run.continued_to_run_id or ids.derived("continue", run.run_id, request_id)


def apply_continue_as_new(tick: Tick, control: Control) -> None:
    """End the run to go on as a successor. What is at work gets the grace; the control is settled at the close."""
    run = tick.work.run
    if run.continued_to_run_id:
        settle(tick, control, "the run had been continued already", {"new_run_id": run.continued_to_run_id})
        return
    try:
        _context(tick, control)
    except PayloadInvalid as error:
        reject(tick, control, _unfit(error))
        return
    _continue(tick, Continuation(new_run_id=successor_of(run, control.request_id), request_id=control.request_id))


def passed_on(tick: Tick, control: Control) -> bool:
    """Hand a control to the successor, if it came too late for this run; False if it has none, or the control is about this run alone."""
    successor = tick.work.run.continued_to_run_id
    if not successor or control.verb not in admission.TABLE or control.verb is Verb.CONTINUE_AS_NEW:
        return False
    tick.do(ForwardControl(request_id=control.request_id, run_id=successor))
    return True


def by_length(tick: Tick) -> None:
    """Judge the length of the history against the tiers that act, before anything new begins: end the run, or continue it where the definition opts in and
    nothing is at work. A tick in which nothing has happened judges nothing, and a run that is about to end is left to its end."""
    run, limits = tick.work.run, tick.limits
    if (run.moves < limits.history_hard and run.moves < limits.history_terminate) or not tick.events or tick.paused:
        return
    if not run.open_nodes or tick.failing or (run.stop is not None and run.stop.emptied):
        return
    if run.moves >= limits.history_terminate:
        message = f"the history has {run.moves} moves, the limit is {limits.history_terminate}"
        _note(tick, f"history_terminate:{run.moves}", "history_terminate", message)
        limit = Stop(cause=RunStatus.TERMINATED, fault=Fault(code=faults.HISTORY_LIMIT, message=message))
        stopping.at_once(tick, run.stop or limit)
    elif tick.manifest.auto_continue and run.stop is None and not _at_work(tick):
        new_run_id = ids.derived("continue", run.run_id, "auto")
        message = f"the history has {run.moves} moves: the run goes on as {new_run_id}"
        _note(tick, "continue_as_new", "continue_as_new", message)
        _continue(tick, Continuation(new_run_id=new_run_id))


def tell_length(tick: Tick) -> None:
    """Tell, in the tick that crosses a tier, that the history has grown long: the soft one, and the hard one with what it leads to."""
    moves, limits = tick.work.run.moves, tick.limits
    if moves < limits.history_soft or not tick.work.run.open_nodes:
        return
    if not tick.work.run.warned:
        tick.emit(HistoryLong(moves=moves))
        message = f"the history has {moves} moves; at {limits.history_terminate} the run is ended"
        _note(tick, "history_soft", "history_soft", message)
    if tick.moves < limits.history_hard <= moves:
        opted = tick.manifest.auto_continue
        then = (
            "it is continued as new once no attempt is open" if opted else "its definition does not say auto_continue"
        )
        _note(tick, "history_hard", "history_hard", f"the history has {moves} moves: {then}")


def hand_over(tick: Tick, continuation: Continuation) -> None:
    """At the close: the successor is born with the run context and the registered inverses, and gets the controls that waited and, unless they are to be
    discarded, the signals that no step has consumed."""
    new_run_id = continuation.new_run_id
    own = next((c for c in tick.inbox.controls if c.request_id == continuation.request_id), None)
    if continuation.request_id and own is None:
        raise EngineError(
            "CONTROL_MISSING", f"{continuation.request_id} is to be settled at the close and was not shown"
        )
    tick.do(
        StartRun(
            run_id=new_run_id, context_json=_context(tick, own), inverses=saga.carried(tick.manifest, tick.work.view())
        )
    )
    if own is None or not own.body.discard_pending:
        signals.hand_over(tick, new_run_id)
    settled = {effect.request_id for effect in tick.effects if isinstance(effect, SettleControl)}
    for control in tick.inbox.controls:
        if control.request_id in settled:
            continue
        if control.verb is Verb.CONTINUE_AS_NEW:
            settle(tick, control, result={"new_run_id": new_run_id})
        else:
            tick.do(ForwardControl(request_id=control.request_id, run_id=new_run_id))


def _continue(tick: Tick, continuation: Continuation) -> None:
    stop = Stop(cause=RunStatus.TERMINATED, request_id=continuation.request_id, continuation=continuation)
    stopping.empty(tick, stop, tick.limits.continue_grace_ms)


def _at_work(tick: Tick) -> bool:
    """Whether something has begun that a successor would not take up: an attempt, a back-off, children (C6), or a wait that has been told something
    already."""
    return any(
        node.status is NodeStatus.RUNNING or _told(node.waiting) or (node.fan is not None and not node.status.terminal)
        for node in tick.work.nodes
    )


def _told(wait: Waiting | None) -> bool:
    return wait is not None and bool(wait.votes or wait.heard or wait.received or wait.window_id)


def _context(tick: Tick, control: Control | None) -> str:
    """The run context of the successor as JSON text: this run's, overlaid by the seed (C6). Raises `PayloadInvalid` when it is too large."""
    seed = control.body.seed if control is not None else None
    context = {**tick.inbox.start.context, **(seed or {})}
    return jsonvalue.encode(context, root="run_context", max_bytes=tick.limits.aggregate_max_bytes)


def _unfit(error: PayloadInvalid) -> Rejection:
    told = {"field": "seed_run_context"}
    if error.limit_bytes is not None:
        told["limit_bytes"] = str(error.limit_bytes)
        return Rejection(reason="PAYLOAD_TOO_LARGE", message=error.message, metadata=told)
    told |= {"path": error.path, "problem": error.reason}
    return Rejection(reason="PAYLOAD_INVALID", message=error.message, metadata=told)


def _note(tick: Tick, key: str, action: str, message: str) -> None:
    tick.do(RecordAudit(key=key, action=action, message=message))
