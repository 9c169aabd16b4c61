"""Which run goes on in the place of one that is continued as new (C6): what the answer to the control names, also when another control was first (RR-03)."""

from ductord.model.ids import derived
from ductord.run_control.asked import Ask
from ductord.run_control.intents import Accepted


def successor_of(ask: Ask, accepted: Accepted) -> str:
    """The id of the successor, as far as it is known before a tick has judged the control.

    An operation that was applied says it; else a run that goes on already has one successor for good; else the oldest continue-as-new that waits for a tick
    makes it, since controls are applied in order.
    """
    if accepted.known is not None and (told := accepted.known.result.get("new_run_id")):
        return told
    run = accepted.found.run
    if run is not None and run.continued_to_run_id:
        return run.continued_to_run_id
    if run is not None and run.stop is not None and run.stop.continuation is not None:
        return run.stop.continuation.new_run_id
    return derived("continue", ask.run_id, accepted.continuing or ask.request_id)
