"""The state diagrams of the documentation, printed from the transition tables. A test keeps docs/state-machines.md equal to `document()`."""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import TypeVar

from ductord.engine.transitions import NODE, RUN
from ductord.model.enums import NodeStatus, RunStatus

Status = TypeVar("Status", bound=StrEnum)

_HEAD = """\
# State machines

Generated from the transition tables in `services/ductord/engine/transitions.py` (`pytest tests/engine/test_transitions.py --rewrite`).
An arrow is labelled with the event that makes the change; a status without an arrow out of it is terminal. `evolve` refuses everything else.
What the events mean is told in [semantics.md](semantics.md).
"""


def document() -> str:
    """The whole text of docs/state-machines.md."""
    return "\n".join(
        [_HEAD, *_section("Run", RunStatus.PENDING, RUN), "", *_section("Node", NodeStatus.PENDING, NODE), ""]
    )


def _section(title: str, first: Status, table: Mapping[Status, Mapping[type, Iterable[Status]]]) -> list[str]:
    lines = [f"## {title}", "", "```mermaid", "stateDiagram-v2", f"    [*] --> {first}"]
    ends: set[Status] = set()
    for status, row in table.items():
        for event, targets in row.items():
            ends.update(targets)
            lines += [f"    {status} --> {target}: {event.__name__}" for target in sorted(targets)]
    lines += [f"    {status} --> [*]" for status in sorted(ends - set(table))]
    return [*lines, "```"]
