"""A run's history as lines for people. What a newer server records and this build does not know is shown as it came."""

from collections.abc import Callable
from typing import Any, Final

from ductor.workflow.v1 import run_pb2 as model
from ductord.cli.output import compact, counted
from ductord.cli.waits import waits_for
from ductord.cli.words import moment, plain

Detail = dict[str, Any]
_SHOWN: Final = 12
"""Ranges of indexes that are written out."""


def event_line(entry: model.TimelineEntry) -> str:
    """An event, a control or a signal on one line: time, transition, step, what happened."""
    detail: Detail = plain(entry)["detail"] or {}
    time = moment(entry.event_time)[11:23]
    said = _SAID.get(entry.type, _as_it_came)(entry, detail)
    return f"{time} {entry.seq:>4}  {entry.step_ref or 'run':<20} {said}"


def _attempt_created(entry: model.TimelineEntry, detail: Detail) -> str:
    due = f", not before {str(detail['due_time'])[11:23]}" if detail.get("due_time") else ""
    return f"{_attempt(entry, detail)} queued{due}"


def _attempt_ended(entry: model.TimelineEntry, detail: Detail) -> str:
    return f"{_attempt(entry, detail)} {detail.get('outcome', '')}{_fault(detail)}"


def _attempt(entry: model.TimelineEntry, detail: Detail) -> str:
    kind = {"compensation": "inverse ", "finally": "final action "}.get(detail.get("kind", ""), "")
    return f"{kind}attempt {entry.attempt}"


def _ended(entry: model.TimelineEntry, detail: Detail) -> str:
    reason = f" ({detail['skip_reason']})" if detail.get("skip_reason") else ""
    successor = f", continued by {detail['continued_to_run_id']}" if detail.get("continued_to_run_id") else ""
    other = f", its event goes on in {detail['merged_into_run_id']}" if detail.get("merged_into_run_id") else ""
    return f"{detail.get('status', '')}{reason}{successor}{other}{_fault(detail)}"


def _edges_resolved(entry: model.TimelineEntry, detail: Detail) -> str:
    edges = detail.get("edges", [])
    return "→ " + ", ".join(f"{e['target_ref']} {'taken' if e['state'] == 'taken' else 'dead'}" for e in edges)


def _checkpoint(entry: model.TimelineEntry, detail: Detail) -> str:
    return f"checkpoint {detail.get('name', '')} {entry.type.removeprefix('checkpoint_')}"


def _run_stopping(entry: model.TimelineEntry, detail: Detail) -> str:
    stop = detail.get("stop", {})
    going_on = stop.get("continuation")
    if going_on:
        return f"stopping, to go on as {going_on.get('new_run_id', '')}"
    if stop.get("merged_into_run_id"):
        return f"stopping, its event goes on in {stop['merged_into_run_id']}"
    where = f" at {stop['step_ref']}" if stop.get("step_ref") else ""
    return f"stopping: {stop.get('cause', '')}{where}{_fault(stop)}"


def _redriven(entry: model.TimelineEntry, detail: Detail) -> str:
    again = f", {', '.join(detail['reevaluated'])} judged again" if detail.get("reevaluated") else ""
    return f"running again: {', '.join(detail.get('steps', [])) or 'no step'} from the start{again}"


def _forked(entry: model.TimelineEntry, detail: Detail) -> str:
    return f"takes over from {detail.get('source_run_id', '')} after its transition {detail.get('source_seq', '')}"


def _parked(entry: model.TimelineEntry, detail: Detail) -> str:
    return waits_for(_wait(detail), _stamp)


def _wait_changed(entry: model.TimelineEntry, detail: Detail) -> str:
    return f"still {waits_for(_wait(detail), _stamp)}"


def _wait(detail: Detail) -> Detail:
    return {**detail.get("waiting", {}), "condition": detail.get("condition", "")}


def _received(entry: model.TimelineEntry, detail: Detail) -> str:
    events = [
        f"{e['event_name']} ({e['event_id']}){' as ' + e['requirement'] if e.get('requirement') else ''}"
        for e in detail.get("received", [])
    ]
    return f"received {', '.join(events)}"


def _policy(entry: model.TimelineEntry, detail: Detail) -> str:
    changed = [f"{name} {compact(detail[name])}" for name in ("retry", "timeouts") if detail.get(name)]
    return f"policy changed: {', '.join(changed)}" if changed else "policy is the definition's again"


def _registered(entry: model.TimelineEntry, detail: Detail) -> str:
    return f"attempt {entry.attempt} can be undone{', though it came late' if detail.get('late') else ''}"


def _planned(entry: model.TimelineEntry, detail: Detail) -> str:
    planned = detail.get("entries", [])
    return f"{counted(len(planned), 'action')} owed: " + ", ".join(f"{e['step_ref']} {e['block']}" for e in planned)


def _inverse_ended(entry: model.TimelineEntry, detail: Detail) -> str:
    return f"compensation {str(detail.get('status', '')).replace('_', ' ')}{_fault(detail)}"


def _accepted(entry: model.TimelineEntry, detail: Detail) -> str:
    reason = f": {detail['reason']}" if detail.get("reason") else ""
    return f"{_verb(detail)} asked for by {detail.get('actor', '')}{reason} ({detail.get('request_id', '')})"


def _settled(entry: model.TimelineEntry, detail: Detail) -> str:
    said = [detail[name] for name in ("code", "message") if detail.get(name)]
    said += [f"{name}={value}" for name, value in detail.get("result", {}).items()]
    return f"{_verb(detail)} {entry.type.removeprefix('control_')}{': ' + ', '.join(said) if said else ''}"


def _expanded(entry: model.TimelineEntry, detail: Detail) -> str:
    version = f", version {detail['version']}" if detail.get("version") else ""
    return f"{_many(int(detail.get('expected', 0)))} to begin{version}"


def _resumed(entry: model.TimelineEntry, detail: Detail) -> str:
    again = [_range(first, count) for first, count in detail.get("again", [])]
    return f"goes on{': ' + _some(again) + ' anew' if again else ''}"


def _begun(entry: model.TimelineEntry, detail: Detail) -> str:
    run = f" as {detail['run_id']}" if detail.get("run_id") else ""
    return f"{_range(detail.get('first', 0), detail.get('count', 1))} begun{run}"


def _succeeded(entry: model.TimelineEntry, detail: Detail) -> str:
    return f"{_indexes(detail)} succeeded"


def _cancelled(entry: model.TimelineEntry, detail: Detail) -> str:
    return f"{_indexes(detail)} cancelled"


def _child_failed(entry: model.TimelineEntry, detail: Detail) -> str:
    run = f" ({detail['run_id']})" if detail.get("run_id") else ""
    return f"[{detail.get('item_index', 0)}] failed{run}{_fault(detail)}"


def _fan_stopped(entry: model.TimelineEntry, detail: Detail) -> str:
    return f"no further child begins, the others are cancelled{_fault(detail)}"


def _child_run(entry: model.TimelineEntry, detail: Detail) -> str:
    said = f" {detail['status']}" if detail.get("status") else ""
    code = f": {detail['code']}" if detail.get("code") else ""
    verb = entry.type.removeprefix("child_")
    return f"[{detail.get('item_index', 0)}] run {entry.run_id} {verb}{said}{code}"


def _indexes(detail: Detail) -> str:
    """Pairs of index and attempt as ranges of indexes."""
    ranges: list[tuple[int, int]] = []
    for index in sorted(index for index, _ in detail.get("children", [])):
        first, count = ranges[-1] if ranges else (index, 0)
        if index == first + count:
            ranges[-1:] = [(first, count + 1)]
        else:
            ranges.append((index, 1))
    return _some([_range(*found) for found in ranges])


def _range(first: int, count: int) -> str:
    return f"[{first}]" if count == 1 else f"[{first}–{first + count - 1}]"


def _some(texts: list[str]) -> str:
    rest = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return " ".join(texts[:_SHOWN]) + rest


def _many(count: int) -> str:
    return "1 child" if count == 1 else f"{count:,} children"


def _told(entry: model.TimelineEntry, detail: Detail) -> str:
    status = f" {detail['case_status']}" if detail.get("case_status") else ""
    comment = f": {detail['comment']}" if detail.get("comment") else ""
    who = detail.get("approver_id") or detail.get("actor", "")
    return f"{_word(detail)}{status} by {who}{comment} ({detail.get('request_id', '')})"


def _taken(entry: model.TimelineEntry, detail: Detail) -> str:
    message = f": {detail['message']}" if detail.get("message") else ""
    return f"{_word(detail)} {entry.type.removeprefix('signal_')}{message}"


def _word(detail: Detail) -> str:
    verb = str(detail.get("verb", ""))
    return {"approve": "approval", "reject": "rejection", "resolve_interaction": "resolution"}.get(verb, verb)


def _verb(detail: Detail) -> str:
    return str(detail.get("verb", "")).replace("_", " ")


def _stamp(text: str) -> str:
    """A time of a history, as its lines begin: in UTC, with its day, since a wait may take long."""
    return f"{text[:10]} {text[11:19]}"


def _as_it_came(entry: model.TimelineEntry, detail: Detail) -> str:
    words = [entry.type.replace("_", " ")]
    return " ".join(words + [f"{k}={v if isinstance(v, str) else compact(v)}" for k, v in detail.items()])


def _always(words: str) -> Callable[[model.TimelineEntry, Detail], str]:
    return lambda entry, detail: words


def _fault(detail: Detail) -> str:
    fault = detail.get("fault")
    if not fault:
        return ""
    message = fault.get("message", "")
    return f": {fault['code']}{': ' + message if message else ''}"


_SAID: Final[dict[str, Callable[[model.TimelineEntry, Detail], str]]] = {
    "run_started": _always("running"),
    "run_forked": _forked,
    "run_paused": _always("paused"),
    "run_resumed": _always("resumed"),
    "run_redriven": _redriven,
    "run_stopping": _run_stopping,
    "run_ended": _ended,
    "attempt_created": _attempt_created,
    "attempt_ended": _attempt_ended,
    "node_ended": _ended,
    "node_paused": _always("paused"),
    "node_resumed": _always("resumed"),
    "node_reset": _always("starts anew"),
    "node_policy_changed": _policy,
    "node_cancel_requested": _always("asked to stop"),
    "node_parked": _parked,
    "wait_changed": _wait_changed,
    "events_received": _received,
    "race_lost": _always("called off: the race that it leads to is won"),
    "edges_resolved": _edges_resolved,
    "checkpoint_reached": _checkpoint,
    "checkpoint_unreachable": _checkpoint,
    "inverse_registered": _registered,
    "compensation_planned": _planned,
    "inverse_ended": _inverse_ended,
    "compensation_ended": _inverse_ended,
    "fan_expanded": _expanded,
    "fan_resumed": _resumed,
    "children_begun": _begun,
    "children_succeeded": _succeeded,
    "children_cancelled": _cancelled,
    "child_failed": _child_failed,
    "children_dropped": _always("open children are given up"),
    "fan_stopped": _fan_stopped,
    "child_started": _child_run,
    "child_ended": _child_run,
    "control_accepted": _accepted,
    "control_applied": _settled,
    "control_rejected": _settled,
    "signal_accepted": _told,
    "signal_applied": _taken,
    "signal_ignored": _taken,
    "signal_discarded": _taken,
}
"""What is said of an event, by its type."""
