"""Scenario files: how they are read and played. The language is in tests/scenarios/README.md.

A file is prose (`#` lines), commands, a line of dashes, and the transcript that the commands give. Playing a story knows only the `World`
protocol, so the same file tells the same story in every world.
"""

from pathlib import Path

import msgspec

from tests.support.stage import Command, Stage
from tests.support.words import parse_definition
from tests.support.world import World

__all__ = ["Command", "Story", "parse_definition", "play", "read"]

_DASHES = "----"


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario file. `head` is everything above the dashes, as text."""

    path: Path
    head: str
    commands: tuple[Command, ...]
    expected: str

    def text(self, played: str) -> str:
        """The file with this transcript."""
        return f"{self.head}{_DASHES}\n{played}"


def read(path: Path) -> Story:
    """Read a scenario file."""
    head, _, expected = path.read_text().partition(f"\n{_DASHES}\n")
    head = head.rstrip("\n") + "\n\n"
    commands: list[Command] = []
    for line in head.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if line[0].isspace():
            last = commands.pop()
            commands.append(Command(line=last.line, block=(*last.block, line.strip())))
        else:
            commands.append(Command(line=line.strip()))
    return Story(path=path, head=head, commands=tuple(commands), expected=expected)


async def play(story: Story, world: World) -> str:
    """Play a story in a world; the transcript."""
    stage = Stage(world, story.path.stem)
    lines: list[str] = []
    for command in story.commands:
        if command.line != "define":
            lines.append(f"> {command.line}")
        lines += [f"  {line}" for line in await stage.play(command)]
    return "".join(f"{line.rstrip()}\n" for line in lines)
