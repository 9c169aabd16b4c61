"""Facts as lines: how events, tasks and snapshots read in a transcript. No ids, no wall clock: the same story gives the same lines."""

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, assert_never

from ductord.model.enums import EdgeState, FailPolicy, NodeStatus, Outcome
from ductord.model.events import (
    AttemptCreated,
    AttemptEnded,
    CheckpointReached,
    CheckpointUnreachable,
    EdgesResolved,
    Event,
    NodeCancelRequested,
    NodeEnded,
    RunEnded,
    RunStarted,
    RunStopping,
)
from ductord.model.manifest import Manifest
from ductord.model.run import Fault, Node
from tests.support.world import START, OpenTask, Snapshot, Task, Transition

_EDGE_WORDS = {
    EdgeState.TAKEN: "taken",
    EdgeState.DEAD_SKIP: "dead",
    EdgeState.DEAD_FAILURE: "dead by failure",
}


def since_start(at: datetime) -> str:
    """An instant as seconds since the story began: `+90s`."""
    seconds = (at - START).total_seconds()
    return f"+{seconds:.3f}".rstrip("0").rstrip(".") + "s"


def transition(manifest: Manifest, of: Transition) -> list[str]:
    """The lines of one transition: a head with its number and time, then one line per event."""
    return [f"#{of.seq} {since_start(of.at)}", *(f"  {line}" for e in of.events for line in _event(manifest, e))]


def task(of: Task, key: str) -> str:
    """A leased task. `key`: a short name of its idempotency key."""
    details = "" if of.details is None else f", last progress {_json(of.details)}"
    return f"{of.step_ref}#{of.attempt}: {of.action} {_json(of.input)}, {key}{details}"


def snapshot(of: Snapshot, manifest: Manifest) -> list[str]:
    """The lines of `show`."""
    if of.run is None:
        return ["run pending"]
    run = of.run
    errors = ", has errors" if run.has_errors else ""
    lines = [f"run {_word(run.status)}{errors}{_because(run.fault)}"]
    lines += [f"  {ref}: {_node(node)}" for ref, node in zip(of.refs, run.nodes, strict=True)]
    lines += [f"task {_open_task(t)}" for t in of.tasks]
    lines += [
        f"timer {t.kind}{f' of {t.step_ref}' if t.step_ref else ''} at {since_start(t.due_time)}" for t in of.timers
    ]
    for name, (status, outputs) in of.checkpoints.items():
        lines.append(f"checkpoint {name}: {status}{f' {_json(outputs)}' if outputs else ''}")
    if run.output_fault is not None:
        lines.append(f"no output{_because(run.output_fault)}")
    elif of.has_result:
        lines.append(f"output {_json(of.result)}")
    return lines


def _event(manifest: Manifest, event: Event) -> Iterable[str]:
    match event:
        case RunStarted():
            yield "run started"
        case AttemptCreated():
            held = f", held until {since_start(event.due_time)}" if event.due_time else ""
            yield f"{event.step_ref}#{event.attempt} queued{held}"
        case AttemptEnded():
            spent = "" if event.spent or event.outcome is Outcome.SUCCEEDED else ", costs no retry"
            yield f"{event.step_ref}#{event.attempt} {_word(event.outcome)}{_because(event.fault)}{spent}"
        case NodeEnded():
            reason = f" ({event.skip_reason})" if event.skip_reason else ""
            yield f"{event.step_ref} is {_word(event.status)}{reason}{_because(event.fault)}"
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
            goes_on = manifest.fail_policy is FailPolicy.RUN_ALL and not stop.out_of_time
            until = f", grace until {since_start(stop.deadline)}" if stop.deadline else ""
            what = "goes on" if goes_on else "is stopping"
            yield f"run {what}{by}, to be {_word(stop.cause)}{_because(stop.fault)}{until}"
        case RunEnded():
            errors = ", has errors" if event.has_errors else ""
            yield f"run {_word(event.status)}{errors}{_because(event.fault)}"
            if event.output_fault is not None:
                yield f"no output{_because(event.output_fault)}"
        case _:
            assert_never(event)


def _node(node: Node) -> str:
    words = [_word(node.status)]
    if node.skip_reason:
        words.append(f" ({node.skip_reason})")
    if node.attempt > 1 or (node.attempt and node.status is NodeStatus.RUNNING):
        words.append(f", attempt {node.attempt}")
    if node.cancelling:
        words.append(", asked to stop")
    words.append(_because(node.fault))
    return "".join(words)


def _open_task(of: OpenTask) -> str:
    held = f" until {since_start(of.due_time)}" if of.state == "held" else ""
    return f"{of.step_ref}#{of.attempt} {of.state}{held}{', asked to stop' if of.asked else ''}"


def _because(fault: Fault | None) -> str:
    if fault is None:
        return ""
    return f": {fault.code}{f' ({fault.message})' if fault.message else ''}"


def _word(status: str) -> str:
    return str(status).replace("_", " ")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
