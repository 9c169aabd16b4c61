"""Definition files as texts: reading them, and telling what is wrong with them as compilers do, `file:line:column: message`."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TextIO

import msgspec
from rich.text import Text as Line

from ductord.cli.ending import CommandFailed
from ductord.cli.output import clean, console
from ductord.model.errors import Violation

SUFFIXES = (".yaml", ".yml", ".json")
LARGEST = 16 << 20


class Text(msgspec.Struct, frozen=True, kw_only=True):
    """A definition file that was read. `door`: the language that its name promises."""

    name: str
    content: str
    door: Literal["yaml", "json"]


def is_file(what: str) -> bool:
    """Whether an argument means a file; else it is a slug or an id."""
    return what == "-" or what.endswith(SUFFIXES) or "/" in what or Path(what).is_file()


def read(name: str) -> Text:
    """The text of a file, of standard input for `-`. Raises `CommandFailed`."""
    try:
        with sys.stdin.buffer if name == "-" else open(name, "rb") as source:
            content = source.read(LARGEST)
        return Text(
            name="<stdin>" if name == "-" else name,
            content=content.decode(),
            door="json" if name.endswith(".json") else "yaml",
        )
    except OSError as error:
        raise CommandFailed(f"{name}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{name}: not UTF-8 at byte {error.start}") from None


def told(name: str, violations: Iterable[Violation], stream: TextIO) -> None:
    """Tell violations in the order of the lines."""
    for violation in sorted(violations, key=lambda v: (v.line or 0, v.column or 0)):
        console(stream).print(line(name, violation))


def line(name: str, violation: Violation) -> Line:
    """One violation: where, what, its code and its path."""
    where = name if violation.line is None else f"{name}:{violation.line}:{violation.column or 1}"
    kind = ("warning: ", "bold yellow") if violation.warning else ("error: ", "bold red")
    path = f" at {clean(violation.path)}" if violation.path else ""
    return Line.assemble(
        (f"{clean(where)}: ", "bold"), kind, clean(violation.message), (f" [{violation.code}]{path}", "dim")
    )
