"""Pause, resume, cancel and terminate (rulings C2, C3, G8)."""

from ductord.engine import joins, stopping
from ductord.engine.controls.settling import reject, settle
from ductord.engine.tick import Tick
from ductord.model.control import Control, Rejection
from ductord.model.enums import RunStatus
from ductord.model.events import RunPaused, RunResumed
from ductord.model.run import Stop


def apply_pause(tick: Tick, control: Control) -> None:
    """Nothing more begins; what is in flight finishes and is recorded. What is queued is held by `holding`."""
    if tick.paused:
        settle(tick, control, "the run was paused already")
        return
    tick.emit(RunPaused(request_id=control.request_id))
    settle(tick, control)


def apply_resume(tick: Tick, control: Control) -> None:
    """The run goes on: what failed meanwhile stops it now, what became ready begins, what came due is applied."""
    tick.emit(RunResumed(request_id=control.request_id))
    joins.look_again(tick)
    settle(tick, control)


def apply_cancel(tick: Tick, control: Control) -> None:
    """Stop the run gracefully. One that is being stopped already keeps its cause, but nothing of it is spared any more."""
    before = tick.work.run.stop
    stopping.empty(tick, Stop(cause=RunStatus.CANCELLED, request_id=control.request_id))
    if before is None:
        settle(tick, control)
        return
    what = "nothing of it was left to spare" if before.emptied else "no cleanup is spared any more"
    settle(tick, control, f"the run was being stopped already, to be {str(before.cause).replace('_', ' ')}: {what}")


def apply_terminate(tick: Tick, control: Control) -> None:
    """End the run in this tick, over whatever stopped it before. A successor that it was on its way to is not born."""
    before = tick.work.run.stop
    skip_finally = control.body.skip_finally
    stopping.at_once(tick, Stop(cause=RunStatus.TERMINATED, request_id=control.request_id, skip_finally=skip_finally))
    settle(tick, control)
    if before is not None and before.continuation is not None:
        _overtaken(tick, before.continuation.request_id)


def _overtaken(tick: Tick, request_id: str) -> None:
    for control in tick.inbox.controls:
        if control.request_id == request_id:
            message = "the run was terminated before it could be continued"
            told = {"status": RunStatus.TERMINATED.value}
            reject(tick, control, Rejection(reason="RUN_TERMINAL", message=message, metadata=told))
