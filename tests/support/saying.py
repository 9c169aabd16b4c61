"""The words that transcripts are made of: instants, faults, waits, and runs by number instead of ids."""

import json
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from ductord.model.enums import WaitingType
from ductord.model.fault import Fault
from ductord.model.run import Received, Waiting
from tests.support.world import START


def since_start(at: datetime) -> str:
    """An instant as seconds since the story began: `+90s`."""
    seconds = (at - START).total_seconds()
    return f"+{seconds:.3f}".rstrip("0").rstrip(".") + "s"


_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Names:
    """Runs by number, in the order in which a story meets them: a transcript holds no ids."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._called: dict[str, str] = {}

    def call(self, id_: str, name: str) -> None:
        """Tell an id that is none of a run by this name; of a run in it by its number."""
        self._called.setdefault(id_, _ID.sub(lambda match: f"run {self._number(match.group())}", name))

    def told(self, lines: Iterable[str], run_id: str) -> list[str]:
        """The lines with every id as `run N`; `run_id` is the one that they are about."""
        self._number(run_id)
        return [_ID.sub(lambda match: self._name(match.group()), line) for line in lines]

    def number(self, run_id: str) -> int:
        """Its number."""
        return self._number(run_id)

    def _name(self, id_: str) -> str:
        return self._called.get(id_) or f"run {self._number(id_)}"

    def id_of(self, number: int) -> str:
        """The run that a story calls so."""
        return list(self._numbers)[number - 1]

    def _number(self, run_id: str) -> int:
        return self._numbers.setdefault(run_id, len(self._numbers) + 1)


def waits(of: Waiting) -> str:
    """What a node waits for."""
    words = [word(of.type)]
    if of.event_name or of.type in (WaitingType.EVENT, WaitingType.EVENT_SET):
        words.append(f" {of.event_name}{'/' if of.event_name and of.correlation_key else ''}{of.correlation_key}")
    if of.signal:
        words.append(f" {of.signal}")
    if of.case_status:
        words.append(f", case {of.case_status}")
    if of.window_id:
        words.append(" as leader" if of.leads else " as follower")
    if of.due_time is not None:
        words.append(f" until {since_start(of.due_time)}")
    if of.timeout_time is not None:
        words.append(f", time-out at {since_start(of.timeout_time)}")
    if of.votes:
        words.append(f", approved by {' and '.join(vote.approver_id or 'anonymous' for vote in of.votes)}")
    if of.received:
        words.append(f", received {', '.join(received(one) for one in of.received)}")
    return "".join(words)


def received(of: Received) -> str:
    """An event that was received."""
    return f"{of.event_id}{f' for {of.requirement}' if of.requirement else ''}"


def because(fault: Fault | None) -> str:
    """A fault behind what it is the reason of."""
    if fault is None:
        return ""
    return f": {fault.code}{f' ({fault.message})' if fault.message else ''}"


def word(status: str) -> str:
    """A status in words."""
    return str(status).replace("_", " ")


def as_json(value: Any) -> str:
    """A value as JSON in one line."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True)
