"""Controls: applying what operators ask (rulings C1 to C10).

`admission` says whether a control can be applied to a run as it stands; the service asks it before it accepts one, and the tick asks it again, since the
run may have moved on in between. Every verb has one function that applies it; what a control means for a kind of step is asked of the step's kind.
"""

from collections.abc import Callable, Mapping

from ductord.engine.controls import admission, continuing, holding, nodes, redriving, repairing, resetting, running
from ductord.engine.controls.settling import reject
from ductord.engine.tick import Tick
from ductord.model.control import Control
from ductord.model.enums import Verb

VERBS: Mapping[Verb, Callable[[Tick, Control], None]] = {
    Verb.PAUSE: running.apply_pause,
    Verb.RESUME: running.apply_resume,
    Verb.CANCEL: running.apply_cancel,
    Verb.TERMINATE: running.apply_terminate,
    Verb.REDRIVE: redriving.apply_redrive,
    Verb.CONTINUE_AS_NEW: continuing.apply_continue_as_new,
    Verb.RESET: resetting.apply_reset,
    Verb.PAUSE_NODE: nodes.apply_pause_node,
    Verb.RESUME_NODE: nodes.apply_resume_node,
    Verb.RESET_NODE: nodes.apply_reset_node,
    Verb.UPDATE_NODE_RETRY_POLICY: nodes.apply_update_node_retry_policy,
    Verb.UPDATE_NODE_TIMEOUT: nodes.apply_update_node_timeout,
    Verb.RESOLVE_REPAIR: repairing.apply_resolve_repair,
}


def apply(tick: Tick) -> None:
    """Apply or reject every pending control, in order of creation; what has to wait for a successor stays pending (C6)."""
    before = holding.held(tick)
    for control in tick.inbox.controls:
        _apply(tick, control)
    holding.carry_out(tick, before)


def _apply(tick: Tick, control: Control) -> None:
    run = tick.work.view()
    if redriving.is_early(tick, control):
        return
    rejection = admission.refusal(tick.manifest, run, control)
    if rejection is not None:
        if not continuing.passed_on(tick, control):
            reject(tick, control, rejection)
        if control.verb is Verb.REDRIVE:
            redriving.tell_parent(tick)
    elif not admission.waits(run, control):
        VERBS[control.verb](tick, control)
