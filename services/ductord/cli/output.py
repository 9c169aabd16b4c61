"""How commands speak: tables and lines for people, one JSON document for machines.

Results go to standard output, everything about them (progress, hints, errors) to standard error, so that a pipe carries nothing but the result. Text that
came from users is shown with its control characters escaped: a title must not be able to move the cursor.
"""

import json
import sys
from collections.abc import Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

WIDE = 10_000
"""Columns of an output that is not a terminal: nothing is wrapped or cut there."""

STATUS_STYLES = {
    "running": "cyan",
    "waiting": "cyan",
    "completed": "green",
    "succeeded": "green",
    "reached": "green",
    "published": "green",
    "failed": "red",
    "unreachable": "red",
    "completed_with_error": "yellow",
    "timed_out": "red",
    "terminated": "red",
    "cancelled": "magenta",
    "paused": "yellow",
    "pending": "dim",
    "active": "green",
    "started": "green",
    "broken": "bold red",
    "missed": "yellow",
    "dropped": "yellow",
    "retired": "dim",
    "skipped": "dim",
    "archived": "dim",
    "applied": "green",
    "rejected": "red",
    "owed": "cyan",
    "done": "green",
    "ignored": "yellow",
    "manual_repair": "bold yellow",
}
"""One colour per status word, the same in every table."""


def console(stream: TextIO) -> Console:
    """A console on `stream` that wraps on a terminal and nowhere else."""
    return Console(file=stream, highlight=False, soft_wrap=False, width=None if stream.isatty() else WIDE)


def clean(text: str) -> str:
    """`text` on one line, with what is not printable escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else {"\n": "\\n", "\t": "\\t"}.get(c, f"\\u{ord(c):04x}") for c in text)


def dumped(value: Any) -> str:
    """`value` as readable JSON text; integers of any size stay exact."""
    return json.dumps(value, ensure_ascii=False, indent=2)


def compact(value: Any) -> str:
    """`value` as JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def counted(count: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def print_json(value: Any) -> None:
    """The result of a command for machines."""
    sys.stdout.write(dumped(value) + "\n")
    sys.stdout.flush()


def say(text: str | Text, style: str = "") -> None:
    """A line beside the result: progress, a hint."""
    console(sys.stderr).print(text if isinstance(text, Text) else Text(clean(text), style=style))


def show(text: str | Text, style: str = "") -> None:
    """A line that is the result."""
    console(sys.stdout).print(text if isinstance(text, Text) else Text(clean(text), style=style))


def status_text(status: str) -> Text:
    """A status word in its colour."""
    return Text(status, style=STATUS_STYLES.get(status, ""))


def table(columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> None:
    """Rows for people; a first column never breaks, so that ids can be copied. Not on a terminal: aligned text, nothing cut, no blanks at the end."""
    if not sys.stdout.isatty():
        lines = [
            list(columns),
            *([cell.plain if isinstance(cell, Text) else clean(cell) for cell in row] for row in rows),
        ]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        sys.stdout.write("".join("  ".join(map(str.ljust, line, widths)).rstrip() + "\n" for line in lines))
        sys.stdout.flush()
        return
    grid = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, name in enumerate(columns):
        grid.add_column(name, no_wrap=number == 0, overflow="fold")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else Text(clean(cell)) for cell in row))
    console(sys.stdout).print(grid)


def facts(pairs: Sequence[tuple[str, str | Text]]) -> None:
    """Name and value, one pair a line; pairs without a value are left out."""
    width = max((len(name) for name, _ in pairs), default=0)
    paper = console(sys.stdout)
    for name, value in pairs:
        if value:
            paper.print(
                Text.assemble((f"{name:<{width}}  ", "dim"), value if isinstance(value, Text) else clean(value))
            )
