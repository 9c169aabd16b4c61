"""The reset of a run, as its source sees it: a control that gives birth to another run and changes nothing here (ruling C5).

Only the inverses of what the new run keeps change hands, when the source has ended and will not run them itself: each runs at most once (C7).
"""

from msgspec.structs import replace

from ductord.engine import forks
from ductord.engine.controls.settling import reject, settle
from ductord.engine.graph import graph_of
from ductord.engine.tick import Tick
from ductord.model.control import Control, Rejection
from ductord.model.effects import StartRun
from ductord.model.events import InversesHandedOver
from ductord.model.ids import derived
from ductord.model.manifest import Manifest
from ductord.model.run import Run


def refusal(manifest: Manifest, run: Run | None, control: Control) -> Rejection | None:
    """Why the run, as it stands, cannot be reset at all. Whether the point and the steps will do is `forks.preview`'s to say, of the run as it was then."""
    if run is None:
        message = "the run has not begun, so there is nothing to reset it to"
        return Rejection(reason="RUN_STATUS_UNSUITED", message=message, metadata={"status": "pending"})
    seq = control.body.seq
    if not 1 <= seq <= run.seq:
        message = f"the run has transitions 1 to {run.seq}, there is none with the number {seq}"
        metadata = {"transition_seq": str(seq), "last_transition_seq": str(run.seq)}
        return Rejection(reason="RESET_POINT_INVALID", message=message, metadata=metadata)
    known = graph_of(manifest).index
    for ref in (*control.body.overrides, *control.body.preserve):
        if ref not in known:
            return Rejection(reason="STEP_NOT_FOUND", message=f"the run has no step {ref}")
    return None


def new_run_id(run_id: str, request_id: str) -> str:
    """The id of the run that this reset of this run makes; the same reset makes no second one."""
    return derived("reset", run_id, request_id)


def apply_reset(tick: Tick, control: Control) -> None:
    """Judge the reset against the run as it is now, and have the new run born."""
    run, body = tick.work.run, control.body
    made = forks.preview(
        tick.manifest,
        tick.inbox.points.get(control.request_id),
        tick.work.view(),
        seq=body.seq,
        overrides=body.overrides,
        preserve=body.preserve,
        force=body.force,
    )
    if isinstance(made, Rejection):
        reject(tick, control, made)
        return
    born = new_run_id(run.run_id, control.request_id)
    if made.inherited:
        tick.emit(InversesHandedOver(request_id=control.request_id, run_id=born, inverses=made.inherited))
    tick.do(
        StartRun(
            run_id=born,
            inverses=(*(replace(r, run_id=r.run_id or run.run_id) for r in made.inherited), *made.doubts),
            reset_from_seq=body.seq,
            overrides_of=control.request_id,
            preserved=made.preserved,
        )
    )
    settle(
        tick,
        control,
        result={
            "new_run_id": born,
            "kept": str(len(made.kept)),
            "preserved": str(len(made.preserved)),
            "restarted": str(len(made.restarted)),
        },
    )
