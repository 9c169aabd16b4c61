"""Resolve-repair: what a person says about inverses that need one (ruling C7)."""

from ductord.engine import ledger
from ductord.engine.controls.settling import reject, settle
from ductord.engine.tick import Tick
from ductord.model.control import Control, Rejection
from ductord.model.enums import InverseStatus, Resolution
from ductord.model.events import InverseEnded
from ductord.model.manifest import Manifest
from ductord.model.run import Run


def refusal(manifest: Manifest, run: Run | None, control: Control) -> Rejection | None:
    """Why the entries that the control names cannot be resolved; None if they can. While a redriven run is open nothing of its ledger can be tried again."""
    ref, position = control.step_ref, control.body.position
    if run is None or not ledger.in_need(run.saga, ref, position):
        what = f"entry {position} of step {ref}" if position is not None else f"step {ref}"
        return Rejection(
            reason="NOTHING_TO_REPAIR",
            message=f"{what} has nothing that needs repair: only what stands at manual_repair can be resolved",
            metadata={"step_ref": ref},
        )
    if control.body.resolution is Resolution.RETRY and not run.status.terminal:
        return Rejection(
            reason="RUN_NOT_TERMINAL",
            message=f"the run is {run.status} again, and inverses run after its end: try again then",
            metadata={"status": run.status},
        )
    return None


def apply_resolve_repair(tick: Tick, control: Control) -> None:
    """Record that the effect is undone or was never there, or have the inverse tried again, with fresh retries. What follows is the saga's (`advance`)."""
    rejection = refusal(tick.manifest, tick.work.run, control)
    if rejection is not None:
        reject(tick, control, rejection)
        return
    again = control.body.resolution is Resolution.RETRY
    positions = ledger.in_need(tick.work.run.saga, control.step_ref, control.body.position)
    for position in positions:
        tick.emit(
            InverseEnded(
                position=position,
                step_ref=control.step_ref,
                status=InverseStatus.OWED if again else InverseStatus.DONE,
                request_id=control.request_id,
            )
        )
    settle(tick, control, result={"positions": ",".join(map(str, positions))})
