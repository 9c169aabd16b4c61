"""Facts as lines: how events, tasks and snapshots read in a transcript. No ids, no wall clock: the same story gives the same lines."""

from collections.abc import Iterable

from ductord.model.enums import (
    CompensationStatus,
    EdgeState,
    FailPolicy,
    InverseStatus,
    NodeStatus,
    OperationStatus,
    Outcome,
    SignalStatus,
    SignalVerb,
)
from ductord.model.events import (
    AttemptCreated,
    AttemptEnded,
    CheckpointReached,
    CheckpointUnreachable,
    CompensationEnded,
    CompensationPlanned,
    EdgesResolved,
    Event,
    EventsReceived,
    HistoryLong,
    InverseEnded,
    InverseRegistered,
    InversesHandedOver,
    NodeCancelRequested,
    NodeEnded,
    NodeParked,
    NodePaused,
    NodePolicyChanged,
    NodeReset,
    NodeResumed,
    RaceLost,
    RunEnded,
    RunForked,
    RunPaused,
    RunRedriven,
    RunResumed,
    RunStarted,
    RunStopping,
    WaitChanged,
)
from ductord.model.inbox import Signal
from ductord.model.manifest import Manifest
from ductord.model.run import Inverse, Node, Run
from tests.support.fan_lines import child_lines, fan, fan_event, task_lines
from tests.support.naming import task_name
from tests.support.saying import as_json, because, received, since_start, waits, word
from tests.support.world import Listening, OpenTask, Settled, SettledSignal, Snapshot, Task, Transition

_SAYS = {SignalVerb.APPROVE: "approve", SignalVerb.REJECT: "reject", SignalVerb.RESOLVE_INTERACTION: "resolve"}

_EDGE_WORDS = {
    EdgeState.TAKEN: "taken",
    EdgeState.DEAD_SKIP: "dead",
    EdgeState.DEAD_FAILURE: "dead by failure",
}


def transition(manifest: Manifest, of: Transition) -> list[str]:
    """The lines of one transition: a head with its number and time, then one line per event."""
    return [f"#{of.seq} {since_start(of.at)}", *(f"  {line}" for e in of.events for line in _event(manifest, e))]


def settled(of: Settled) -> str:
    """What became of a control."""
    if of.status is OperationStatus.REJECTED:
        return f"= {of.request_id} rejected: {of.code} ({of.message})"
    facts = "".join(f", {name} {value}" for name, value in sorted(of.result.items()))
    return f"= {of.request_id} {of.status}{f': {of.message}' if of.message else ''}{facts}"


def settled_signal(of: SettledSignal) -> str:
    """What became of a signal."""
    return f"= {of.request_id} {of.status}{f': {of.message}' if of.message else ''}"


def task(of: Task, key: str) -> str:
    """A leased task. `key`: a short name of its idempotency key."""
    details = "" if of.details is None else f", last progress {as_json(of.details)}"
    return f"{of.step_ref}#{of.attempt}: {of.action} {as_json(of.input)}, {key}{details}"


def snapshot(of: Snapshot, manifest: Manifest) -> list[str]:
    """The lines of `show`."""
    if of.run is None:
        return ["run pending"]
    run = of.run
    errors = ", has errors" if run.has_errors else ""
    lines = [f"run {word(run.status)}{errors}{because(run.fault)}"]
    lines += [f"  {ref}: {_node(node)}" for ref, node in zip(of.refs, run.nodes, strict=True)]
    lines += _compensation(run)
    lines += task_lines(of.tasks, _open_task)
    lines += [
        f"timer {t.kind}{f' of {t.step_ref}' if t.step_ref else ''} at {since_start(t.due_time)}" for t in of.timers
    ]
    lines += child_lines(of.children)
    lines += [_listening(wait) for wait in of.listening]
    lines += [_kept(signal) for signal in of.kept]
    lines += [f"{count} received for {ref} and not applied" for ref, count in of.receipts.items()]
    for name, (status, outputs) in of.checkpoints.items():
        lines.append(f"checkpoint {name}: {status}{f' {as_json(outputs)}' if outputs else ''}")
    if run.output_fault is not None:
        lines.append(f"no output{because(run.output_fault)}")
    elif of.has_result:
        lines.append(f"output {as_json(of.result)}")
    for born in of.born:
        what = f"reset from #{born.reset_from_seq}" if born.reset_from_seq else "successor"
        lines.append(f"{what} {born.run_id}{f', context {as_json(born.context)}' if born.context else ''}")
    return lines


def _compensation(run: Run) -> Iterable[str]:
    if run.saga.status is not CompensationStatus.NONE or run.saga.plan:
        yield f"compensation {word(run.saga.status)}"
    for entry in run.saga.plan:
        attempt = f", attempt {entry.attempt}" if entry.attempt else ""
        yield f"  {_inverse(entry)}: {word(entry.status)}{attempt}{because(entry.fault)}"


def _inverse(entry: Inverse) -> str:
    return f"{task_name(entry.step_ref, entry.kind, entry.item_index)} ({entry.block} {entry.number})"


def _event(manifest: Manifest, event: Event) -> Iterable[str]:
    match event:
        case RunStarted():
            yield "run started"
        case RunForked():
            yield f"run started from #{event.source_seq} of {event.source_run_id}"
            if event.attached:
                yield f"with its children of {', '.join(event.attached)}"
        case RunPaused():
            yield f"run paused by {event.request_id}"
        case RunResumed():
            yield f"run resumed by {event.request_id}"
        case RunRedriven():
            yield f"run redriven by {event.request_id}: {', '.join(event.steps) or 'nothing'} anew"
            if event.resumed:
                yield f"where they were: {', '.join(event.resumed)}"
            if event.reevaluated:
                yield f"judged again: {', '.join(event.reevaluated)}"
        case HistoryLong():
            yield f"history is long: {event.moves}"
        case NodePaused():
            yield f"{event.step_ref} paused by {event.request_id}"
        case NodeResumed():
            yield f"{event.step_ref} resumed by {event.request_id}"
        case NodeReset():
            yield f"{event.step_ref} reset by {event.request_id}"
        case NodePolicyChanged():
            yield f"{event.step_ref} changed by {event.request_id}"
        case InverseRegistered():
            late = " by a late success" if event.late else ""
            if not event.attempt:
                yield f"{_owner(event.step_ref, event.item_index)} may have acted"
                return
            yield f"inverse of {_owner(event.step_ref, event.item_index)}#{event.attempt} registered{late}"
        case InversesHandedOver():
            names = ", ".join(f"{_owner(r.step_ref, r.item_index)}#{r.attempt}" for r in event.inverses)
            yield f"inverses of {names} handed over to {event.run_id} by {event.request_id}"
        case CompensationPlanned():
            for entry in event.entries:
                yield f"{_inverse(entry)} {word(entry.status)}{because(entry.fault)}"
        case InverseEnded():
            by = f" by {event.request_id}" if event.request_id else ""
            what = "owed again" if event.status is InverseStatus.OWED else word(event.status)
            yield f"entry {event.position} of {event.step_ref} is {what}{by}{because(event.fault)}"
        case CompensationEnded():
            yield f"compensation {word(event.status)}"
        case AttemptCreated():
            held = f", held until {since_start(event.due_time)}" if event.due_time else ""
            yield f"{task_name(event.step_ref, event.kind, event.item_index)}#{event.attempt} queued{held}"
        case AttemptEnded():
            spent = "" if event.spent or event.outcome is Outcome.SUCCEEDED else ", costs no retry"
            name = task_name(event.step_ref, event.kind, event.item_index)
            yield f"{name}#{event.attempt} {word(event.outcome)}{because(event.fault)}{spent}"
        case RaceLost():
            yield f"{event.step_ref} has lost a race"
        case NodeParked():
            yield f"{event.step_ref} waits ({waits(event.waiting)})"
        case WaitChanged():
            yield f"{event.step_ref} goes on waiting ({waits(event.waiting)})"
        case EventsReceived():
            yield f"{event.step_ref} received {', '.join(received(one) for one in event.received)}"
        case NodeEnded():
            reason = f" ({event.skip_reason})" if event.skip_reason else ""
            yield f"{event.step_ref} is {word(event.status)}{reason}{because(event.fault)}"
        case NodeCancelRequested():
            yield f"{event.step_ref} is asked to stop"
        case EdgesResolved():
            for number, state in event.edges:
                edge = manifest.edges[number]
                yield f"{event.step_ref} -{edge.type}-> {manifest.steps[edge.target].ref} {_EDGE_WORDS[state]}"
        case CheckpointReached():
            yield f"checkpoint {event.name} reached"
        case CheckpointUnreachable():
            yield f"checkpoint {event.name} unreachable"
        case RunStopping():
            stop = event.stop
            by = f" after {stop.step_ref}" if stop.step_ref else ""
            goes_on = manifest.fail_policy is FailPolicy.RUN_ALL and not stop.emptied
            until = f", grace until {since_start(stop.deadline)}" if stop.deadline else ""
            what = "goes on" if goes_on else "is stopping"
            by = f" by {stop.request_id}" if stop.request_id and not by else by
            end = "continued as new" if stop.continuation is not None else word(stop.cause)
            yield f"run {what}{by}, to be {end}{because(stop.fault)}{until}"
        case RunEnded():
            errors = ", has errors" if event.has_errors else ""
            successor = f", continued as {event.continued_to_run_id}" if event.continued_to_run_id else ""
            merged = f" into {event.merged_into_run_id}" if event.merged_into_run_id else ""
            yield f"run {word(event.status)}{merged}{errors}{successor}{because(event.fault)}"
            if event.output_fault is not None:
                yield f"no output{because(event.output_fault)}"
        case _:
            yield fan_event(event)


def _owner(step_ref: str, item_index: int) -> str:
    return f"{step_ref}[{item_index}]" if item_index >= 0 else step_ref


def _node(node: Node) -> str:
    words = [word(node.status)]
    if node.waiting is not None:
        words.append(f" ({waits(node.waiting)})")
    if node.skip_reason:
        words.append(f" ({node.skip_reason})")
    if node.attempt > 1 or (node.attempt and node.status is NodeStatus.RUNNING):
        words.append(f", attempt {node.attempt}")
    if node.fan is not None:
        words.append(fan(node.fan))
    if node.cancelling:
        words.append(", asked to stop")
    if node.paused:
        words.append(", paused")
    words.append(because(node.fault))
    return "".join(words)


def _listening(of: Listening) -> str:
    pattern = of.pattern
    key = " with any key" if pattern.any_key else (f"/{pattern.correlation_key}" if pattern.correlation_key else "")
    requirement = f" for {pattern.requirement}" if pattern.requirement else ""
    condition = f" if {pattern.filter}" if pattern.filter else ""
    return f"{of.step_ref}#{of.attempt} listens to {pattern.event_name}{key}{requirement}{condition}"


def _kept(of: Signal) -> str:
    return f"{_SAYS[of.verb]} {of.step_ref} {SignalStatus.KEPT} ({of.request_id})"


def _open_task(of: OpenTask) -> str:
    held = f" until {since_start(of.due_time)}" if of.state == "held" else ""
    return f"{of.step_ref}#{of.attempt} {of.state}{held}{', asked to stop' if of.asked else ''}"
