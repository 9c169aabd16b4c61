"""Where in a text the parts of a document stand, so that a violation can name line and column.

The doors (`yamltext`, `jsontext`) build a tree of `TextNode`s beside the plain values; `Positions` finds the place of a path in it, and of a
character inside a string. Lines and columns count from 1, columns in code points.
"""

from typing import NamedTuple

Key = str | int
Path = tuple[Key, ...]


class Place(NamedTuple):
    """A line and a column, both from 1."""

    line: int
    column: int


class TextNode:
    """A value in a text: `start` and `end` are its code points, `children` by key or index, `keys` the places of a mapping's keys.

    `size` and `depth` count the value with all it holds, aliases expanded; a scalar's depth is 0.
    """

    __slots__ = ("children", "column", "depth", "end", "keys", "line", "size", "start")

    def __init__(self, line: int, column: int, start: int, end: int) -> None:
        self.line = line
        self.column = column
        self.start = start
        self.end = end
        self.children: dict[Key, TextNode] = {}
        self.keys: dict[str, TextNode] = {}
        self.size = 1
        self.depth = 0

    @property
    def place(self) -> Place:
        return Place(self.line, self.column)


class Positions:
    """The places of one document's parts. `under` narrows it to a part, whose paths then begin there."""

    def __init__(self, text: str, root: TextNode) -> None:
        self._text = text
        self._root = root

    def under(self, *path: Key) -> "Positions":
        """The positions of what stands at `path`, or the nearest thing above it."""
        return Positions(self._text, self._nearest(path)[0])

    def key(self, path: Path) -> Place:
        """Where the last key of `path` is written; for a list index, or a path that is not in the text, the nearest place."""
        if not path:
            return self._root.place
        parent, found = self._nearest(path[:-1])
        key = parent.keys.get(path[-1]) if found and isinstance(path[-1], str) else None
        return key.place if key is not None else self.value(path)

    def value(self, path: Path) -> Place:
        """Where the value at `path` begins, or the nearest thing above it."""
        return self._nearest(path)[0].place

    def written(self, path: Path) -> str:
        """The text of the value at `path`, empty for one that is not in the text."""
        node, found = self._nearest(path)
        return self._text[node.start : node.end] if found else ""

    def inside(self, path: Path, value: str, offset: int) -> Place:
        """Where the character `offset` of the string at `path` stands. Exact where the text spells the string as it is (plain, quoted without
        escapes, literal block); else the place where the string begins."""
        node, found = self._nearest(path)
        if not found:
            return node.place
        written = self._text[node.start : node.end]
        for opening in (0, 1):  # plain, quoted
            if written[opening : len(written) - opening] == value:
                return self._place(node.start + opening + offset)
        if written.startswith("|"):
            return self._inside_block(node, written, value, offset)
        return node.place

    def _inside_block(self, node: TextNode, written: str, value: str, offset: int) -> Place:
        before = value[:offset]
        line = before.count("\n")
        lines = written.split("\n")[1:]
        if line >= len(lines):
            return node.place
        content = value.split("\n")[line]
        indent = lines[line].find(content)
        return Place(node.line + 1 + line, 1 + max(indent, 0) + offset - (before.rfind("\n") + 1))

    def _place(self, index: int) -> Place:
        return Place(self._text.count("\n", 0, index) + 1, index - self._text.rfind("\n", 0, index))

    def _nearest(self, path: Path) -> tuple[TextNode, bool]:
        node = self._root
        for key in path:
            child = node.children.get(key)
            if child is None:
                return node, False
            node = child
        return node, True


def dotted(path: Path) -> str:
    """A path as violations write it: `steps[2].args["a b"]`."""
    parts: list[str] = []
    for key in path:
        if isinstance(key, int):
            parts.append(f"[{key}]")
        elif key.replace("_", "a").replace("-", "a").isalnum():
            parts.append(f".{key}")
        else:
            shown = key[:64].encode("unicode_escape").decode().replace('"', '\\"')
            parts.append(f'["{shown}"]')
    return "".join(parts).removeprefix(".")
