"""The tour's text as something that can be run: its blocks of commands, and what each must print."""

import re
from dataclasses import dataclass
from pathlib import Path

TOUR = Path(__file__).resolve().parents[2] / "docs" / "tour.md"

_FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Block:
    """Commands, the line of the document where they begin, and their output; None where the document shows none."""

    line: int
    commands: str
    output: str | None


def sections() -> dict[str, list[Block]]:
    """The blocks of each section that has any, by its title."""
    text = TOUR.read_text("utf-8")
    titles = list(_SECTION.finditer(text))
    ends = [title.start() for title in titles[1:]] + [len(text)]
    found = {title[1]: _blocks(text, title.end(), end) for title, end in zip(titles, ends, strict=True)}
    return {title: blocks for title, blocks in found.items() if blocks}


def _blocks(text: str, begin: int, end: int) -> list[Block]:
    fences = [m for m in _FENCE.finditer(text, begin, end) if m[1] in ("bash", "text")]
    assert all(m[1] == "bash" or fences[i - 1][1] == "bash" for i, m in enumerate(fences)), (
        "an output without its commands"
    )
    blocks = []
    for i, fence in enumerate(fences):
        if fence[1] == "bash":
            follows = i + 1 < len(fences) and fences[i + 1][1] == "text"
            line = text.count("\n", 0, fence.start()) + 2
            blocks.append(Block(line=line, commands=fence[2], output=fences[i + 1][2] if follows else None))
    return blocks


def matches(shown: str, printed: str) -> bool:
    """Whether `printed` is what the document shows, `…` standing for anything."""
    parts = (re.escape(part) for part in shown.strip().split("…"))
    return re.fullmatch(".*".join(parts), printed.strip(), re.DOTALL) is not None
