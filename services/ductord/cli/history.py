"""A run's history as lines for people. What a newer server records and this build does not know is shown as it came."""

from typing import Any

from ductor.workflow.v1 import run_pb2 as model
from ductord.cli.output import compact
from ductord.cli.words import moment, plain

Detail = dict[str, Any]


def event_line(entry: model.TimelineEntry) -> str:
    """An event on one line: time, transition, step, what happened."""
    detail: Detail = plain(entry)["detail"] or {}
    time = moment(entry.event_time)[11:23]
    return f"{time} {entry.seq:>4}  {entry.step_ref or 'run':<20} {_said(entry, detail)}"


def _said(entry: model.TimelineEntry, detail: Detail) -> str:
    match entry.type:
        case "attempt_created":
            due = f", not before {str(detail['due_time'])[11:23]}" if detail.get("due_time") else ""
            return f"attempt {entry.attempt} queued{due}"
        case "attempt_ended":
            return f"attempt {entry.attempt} {detail.get('outcome', '')}{_fault(detail)}"
        case "node_ended" | "run_ended":
            reason = f" ({detail['skip_reason']})" if detail.get("skip_reason") else ""
            return f"{detail.get('status', '')}{reason}{_fault(detail)}"
        case "edges_resolved":
            edges = detail.get("edges", [])
            return "→ " + ", ".join(f"{e['target_ref']} {'taken' if e['state'] == 'taken' else 'dead'}" for e in edges)
        case "checkpoint_reached" | "checkpoint_unreachable":
            return f"checkpoint {detail.get('name', '')} {entry.type.removeprefix('checkpoint_')}"
        case "run_started":
            return "running"
        case "run_stopping":
            stop = detail.get("stop", {})
            where = f" at {stop['step_ref']}" if stop.get("step_ref") else ""
            return f"stopping: {stop.get('cause', '')}{where}{_fault(stop)}"
        case _:
            words = [entry.type.replace("_", " ")]
            return " ".join(words + [f"{k}={v if isinstance(v, str) else compact(v)}" for k, v in detail.items()])


def _fault(detail: Detail) -> str:
    fault = detail.get("fault")
    if not fault:
        return ""
    message = fault.get("message", "")
    return f": {fault['code']}{': ' + message if message else ''}"
