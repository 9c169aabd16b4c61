"""What a step waits for, in words for people: of a step as the reads show it, and of an event of a history, which spells it a little differently."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from ductor.workflow.v1 import run_pb2 as model
from ductord.cli.output import counted
from ductord.cli.words import plain

Wait = Mapping[str, Any]
_SHORT = 120


def wait_text(wait: model.WaitState) -> str:
    """`waits for event paid, key order-1, until 2026-01-31 12:00:00`, in the time of the reader's own clock."""
    return waits_for(plain(wait), _local)


def waits_for(wait: Wait, written: Callable[[str], str]) -> str:
    """The same of a wait as JSON. `written`: how an RFC 3339 time is shown."""
    if wait.get("condition"):
        parts = [f"waits until {_shortened(wait['condition'])}"]
    elif wait.get("type") == "timer":
        parts = [f"waits until {written(wait['due_time'])}"]
    else:
        parts = [f"waits for {_what(wait)}", *_so_far(wait)]
        if wait.get("due_time"):
            parts.append(f"until {written(wait['due_time'])}")
    if wait.get("timeout_time"):
        parts.append(f"{'or ' if wait.get('type') == 'timer' else ''}until {written(wait['timeout_time'])}")
    return ", ".join(parts)


def _what(wait: Wait) -> str:
    key = f", key {wait['correlation_key']}" if wait.get("correlation_key") else ""
    match wait.get("type"):
        case "approval":
            return "approval"
        case "interaction":
            status = f" ({wait['case_status']})" if wait.get("case_status") else ""
            return f"case {wait.get('case_id', '')}{status}"
        case "signal":
            return f"signal {wait.get('signal', '')}"
        case "event":
            return f"event {wait.get('event_name', '')}{key}"
        case "event_set":
            return f"a set of events{key}"
        case "digest":
            leader = wait.get("digest_leader_run_id")
            if wait.get("leads"):
                return "a digest that it leads"
            return f"a digest, led by {leader}" if leader else "a digest"
        case other:
            return str(other).replace("_", " ")


def _so_far(wait: Wait) -> list[str]:
    """Who has approved, which events count."""
    people = wait.get("approvers") or [vote["approver_id"] for vote in wait.get("votes", ())]
    events = wait.get("receipts") or wait.get("received") or ()
    met = dict.fromkeys(event.get("requirement") or event["event_name"] for event in events)
    return [
        *([f"approved by {' and '.join(people)} so far"] if people else []),
        *([f"{counted(len(events), 'event')} so far ({', '.join(met)})"] if events else []),
    ]


def _shortened(text: str) -> str:
    """A condition, as far as a line has room for it."""
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}…"


def _local(text: str) -> str:
    return str(datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M:%S"))
