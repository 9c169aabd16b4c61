"""Whether a control can be applied to a run as it stands: the one table of control × state (rulings C1 to C10, G8).

Pure. The service asks it before it accepts a control and answers the refusal at once; the tick asks it again, since the run may have moved on in between.
docs/controls.md is printed from what the engine really does with every control in every state, so it cannot tell another story than this table.
"""

from collections.abc import Mapping
from enum import StrEnum

from ductord.engine.controls import redriving, repairing, resetting
from ductord.engine.graph import graph_of
from ductord.model.control import Control, Rejection
from ductord.model.enums import NodeStatus, RunStatus, Verb
from ductord.model.manifest import Manifest, Step
from ductord.model.run import Node, Run


class Stand(StrEnum):
    """How a run stands, as far as controls care. Columns of the table."""

    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPING = "stopping"  # after a failure; cleanup and what drains may still run
    PAUSED_STOPPING = "paused while stopping"
    EMPTYING = "emptying"  # cancelled, or its time is over: nothing is spared, the grace runs
    CONTINUING = "continuing"  # on its way to a successor
    ENDED = "ended"
    CONTINUED = "continued"  # ended, and goes on as a successor


class Answer(StrEnum):
    """Cells of the table that are no refusal: apply it; ask the node; leave it pending until the close, which hands it to the successor (C6)."""

    GO = "go"
    NODE = "node"
    WAIT = "wait"


_GO, _NODE, _WAIT = Answer
_TERMINAL, _UNSUITED, _STOPPING = "RUN_TERMINAL", "RUN_STATUS_UNSUITED", "RUN_STOPPING"
_REDRIVABLE = (RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.TIMED_OUT)
_WAY_OUT = "redrive the run, or reset it to an earlier transition"
_ABOUT_ATTEMPTS = frozenset({Verb.UPDATE_NODE_RETRY_POLICY, Verb.UPDATE_NODE_TIMEOUT})
_DELEGATED = frozenset({Verb.REDRIVE, Verb.RESET, Verb.RESOLVE_REPAIR})

# fmt: off
TABLE: Mapping[Verb, tuple[str, ...]] = {
    # in the order of Stand:      pending    running    paused     stopping   paused_st. emptying   continuing ended      continued
    Verb.PAUSE:                   (_GO,       _GO,       _GO,       _GO,       _GO,       _STOPPING, _WAIT,     _TERMINAL, _TERMINAL),
    Verb.RESUME:                  (_UNSUITED, _UNSUITED, _GO,       _UNSUITED, _GO,       _UNSUITED, _WAIT,     _TERMINAL, _TERMINAL),
    Verb.CANCEL:                  (_GO,       _GO,       _GO,       _GO,       _GO,       _GO,       _WAIT,     _TERMINAL, _TERMINAL),
    Verb.TERMINATE:               (_GO,       _GO,       _GO,       _GO,       _GO,       _GO,       _GO,       _TERMINAL, _TERMINAL),
    Verb.CONTINUE_AS_NEW:         (_GO,       _GO,       _GO,       _STOPPING, _STOPPING, _STOPPING, _WAIT,     _TERMINAL, _GO),
    Verb.PAUSE_NODE:              (_NODE,     _NODE,     _NODE,     _NODE,     _NODE,     _STOPPING, _WAIT,     _TERMINAL, _TERMINAL),
    Verb.RESUME_NODE:             (_NODE,     _NODE,     _NODE,     _NODE,     _NODE,     _STOPPING, _WAIT,     _TERMINAL, _TERMINAL),
    Verb.RESET_NODE:              (_NODE,     _NODE,     _NODE,     _STOPPING, _STOPPING, _STOPPING, _WAIT,     _TERMINAL, _TERMINAL),
    Verb.UPDATE_NODE_RETRY_POLICY:(_NODE,     _NODE,     _NODE,     _NODE,     _NODE,     _STOPPING, _WAIT,     _TERMINAL, _TERMINAL),
    Verb.UPDATE_NODE_TIMEOUT:     (_NODE,     _NODE,     _NODE,     _NODE,     _NODE,     _STOPPING, _WAIT,     _TERMINAL, _TERMINAL),
}
# fmt: on


def stand_of(run: Run | None) -> Stand:
    """How a run stands; None: no tick has taken it up."""
    if run is None or run.status is RunStatus.PENDING:
        return Stand.PENDING
    if run.status.terminal:
        return Stand.CONTINUED if run.continued_to_run_id else Stand.ENDED
    stop, paused = run.stop, run.status is RunStatus.PAUSED
    if stop is None:
        return Stand.PAUSED if paused else Stand.RUNNING
    if stop.continuation is not None:
        return Stand.CONTINUING
    if stop.cause is RunStatus.TERMINATED:
        return Stand.ENDED  # it ends in this very tick
    if stop.emptied:
        return Stand.EMPTYING
    return Stand.PAUSED_STOPPING if paused else Stand.STOPPING


def answer(run: Run | None, verb: Verb) -> str:
    """The cell of the table: an `Answer`, or the reason of a refusal. Not for redrive, reset and resolve-repair, which judge by themselves."""
    return TABLE[verb][list(Stand).index(stand_of(run))]


def waits(run: Run, control: Control) -> bool:
    """Whether the control has to wait for the close of the run, which hands it to the successor."""
    return control.verb not in _DELEGATED and answer(run, control.verb) == Answer.WAIT


def refusal(manifest: Manifest, run: Run | None, control: Control) -> Rejection | None:
    """Why the control cannot be applied to the run as it stands; None if it can, now or, in a successor, later. `run` None: it is pending."""
    if control.step_ref and control.step_ref not in graph_of(manifest).index:
        return Rejection(reason="STEP_NOT_FOUND", message=f"the run has no step {control.step_ref}")
    match control.verb:
        case Verb.REDRIVE:
            return redriving.refusal(run, control)
        case Verb.RESET:
            return resetting.refusal(manifest, run, control)
        case Verb.RESOLVE_REPAIR:
            return repairing.refusal(manifest, run, control)
    cell = answer(run, control.verb)
    if cell == Answer.NODE:
        return _node_refusal(manifest, run, control)
    return None if cell in (Answer.GO, Answer.WAIT) else _refused(run, control.verb, cell)


def _refused(run: Run | None, verb: Verb, reason: str) -> Rejection:
    status = run.status if run is not None else RunStatus.PENDING
    told = {"status": status.value}
    if run is None or reason == _UNSUITED:
        return Rejection(reason=reason, message=f"the run is {status}, not paused", metadata=told)
    cause = run.stop.cause if run.stop is not None else status
    if reason == _STOPPING:
        return Rejection(reason=reason, message=f"the run is being stopped, to be {_word(cause)}", metadata=told)
    ended = status if status.terminal else cause
    told = {"status": ended.value}
    if run.continued_to_run_id:
        told["continued_to_run_id"] = run.continued_to_run_id
        message = f"{_word(verb)} ignored: the run has been continued as {run.continued_to_run_id}"
    else:
        message = f"{_word(verb)} ignored: already {_word(ended)}"
        if verb is Verb.RESET_NODE:
            message += f"; {_WAY_OUT if ended in _REDRIVABLE else 'reset the run to an earlier transition'}"
    return Rejection(reason=reason, message=message, metadata=told)


def _node_refusal(manifest: Manifest, run: Run | None, control: Control) -> Rejection | None:
    """What the node says to a lever: it has to be open, but for a reset, which also takes back an end as long as nothing came of it (C10)."""
    index = graph_of(manifest).index[control.step_ref]
    node = run.nodes[index] if run is not None and run.nodes else Node()
    if control.verb is Verb.RESET_NODE:
        return _reset_refusal(manifest, run, control.step_ref, index, node)
    if node.status.terminal:
        return _by_node("NODE_FINISHED", control.step_ref, node, f"has ended: it {_how(node)}")
    if control.verb is Verb.RESUME_NODE and not node.paused:
        return _by_node("NODE_STATUS_UNSUITED", control.step_ref, node, "is not paused")
    if control.verb in _ABOUT_ATTEMPTS and not _has_attempts(manifest.steps[index]):
        return _without_attempts(manifest.steps[index], node, control)
    if control.verb is Verb.PAUSE_NODE and node.cancelling:
        return _by_node("NODE_STATUS_UNSUITED", control.step_ref, node, "was asked to stop")
    return None


def _has_attempts(step: Step) -> bool:
    """Whether workers work for the step, or for its inline children."""
    return step.action is not None or (step.scatter is not None and step.scatter.action is not None)


def _without_attempts(step: Step, node: Node, control: Control) -> Rejection | None:
    """A step that no worker works for has no retries and no time-outs of attempts. The time of all children together is another thing, be they runs (A3)."""
    if control.verb is Verb.UPDATE_NODE_TIMEOUT and (step.scatter is not None or step.for_each is not None):
        if set(control.body.fields) <= {"total_timeout_ms"}:
            return None
        what = "has runs as children: of its time-outs only total_timeout_ms can be changed"
        return _by_node("NODE_STATUS_UNSUITED", step.ref, node, what)
    return _by_node("NODE_STATUS_UNSUITED", step.ref, node, f"is of type {_word(step.type)}: it has no attempts")


def _reset_refusal(manifest: Manifest, run: Run | None, ref: str, index: int, node: Node) -> Rejection | None:
    if node.status is NodeStatus.PENDING:
        return _by_node("NODE_STATUS_UNSUITED", ref, node, "has not begun, so there is nothing to reset")
    if node.status is NodeStatus.SKIPPED:
        return _by_node("NODE_STATUS_UNSUITED", ref, node, f"{_how(node)}: reset the step that decided it")
    if manifest.steps[index].digest is not None and node.output is not None:
        # The runs that were merged into this one are over (E5): their events are in this output and will not come again.
        return _by_node("NODE_STATUS_UNSUITED", ref, node, "has gone on with its events, which do not come again")
    assert run is not None
    graph = graph_of(manifest)
    for other in sorted(graph.downstream((index,)) - {index}):
        if _started(run.nodes[other]):
            started = manifest.steps[other].ref
            message = f"step {started}, downstream of {ref}, has started: redrive the run once it has ended, or reset it to an earlier transition"
            told = {"step_ref": ref, "started_step_ref": started}
            return Rejection(reason="DOWNSTREAM_STARTED", message=message, metadata=told)
    return None


def _started(node: Node) -> bool:
    """Whether anything was dispatched for the node, or kept for it, since it was last pending."""
    return node.first_time is not None or node.output is not None


def _by_node(reason: str, ref: str, node: Node, what: str) -> Rejection:
    told = {"step_ref": ref, "node_status": node.status.value}
    return Rejection(reason=reason, message=f"step {ref} {what}", metadata=told)


def _how(node: Node) -> str:
    if node.skip_reason is not None:
        return f"was skipped ({node.skip_reason})"
    return f"is {_word(node.status)}"


def _word(name: str) -> str:
    return str(name).replace("_", " ")
