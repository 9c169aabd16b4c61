"""What a redrive does to the nodes of a run (C4): told before it is accepted, with its acceptance, and when the same call is made again."""

from typing import Final

import asyncpg

from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.db.queries import Queries
from ductord.engine.controls import redriving
from ductord.engine.controls.redriving import RedrivePlan
from ductord.model import events as history
from ductord.model.enums import OperationStatus
from ductord.model.events import RunRedriven
from ductord.run_control.asked import Ask
from ductord.run_control.intents import Known, check
from ductord.run_control.runs import Found

_q: Final = Queries("ductord.run_control")


def planned(found: Found, ask: Ask) -> api.RedrivePlan:
    """What the redrive would do to the run as it stands. Raises as `check`."""
    check(found, ask)
    assert found.run is not None, "admission refuses to redrive what has not begun"
    return _message(redriving.plan(found.manifest, found.run))


async def recorded(db: asyncpg.Connection, found: Found, ask: Ask, known: Known) -> api.RedrivePlan | None:
    """What the redrive that was accepted before has done, or will do; None for one that was rejected."""
    if known.status == OperationStatus.PENDING and found.run is not None:
        return _message(redriving.plan(found.manifest, found.run))
    text = await db.fetchval(_q["load_redrive"], found.tenant_id, found.run_id, ask.request_id, known.create_time)
    for event in history.decode(text) if text is not None else ():
        if isinstance(event, RunRedriven) and event.request_id == ask.request_id:
            touched = {*event.steps, *event.reevaluated}
            kept = tuple(step.ref for step in found.manifest.steps if step.ref not in touched)
            return _message(RedrivePlan(restarted=event.steps, reevaluated=event.reevaluated, kept=kept))
    return None


def _message(plan: RedrivePlan) -> api.RedrivePlan:
    return api.RedrivePlan(
        restarted_step_refs=plan.restarted, reevaluated_step_refs=plan.reevaluated, kept_step_refs=plan.kept
    )
