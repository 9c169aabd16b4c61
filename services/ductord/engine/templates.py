"""`${{ … }}` in the strings of a JSON tree (ruling L3, PL-07).

One pass over the parsed tree at publish finds them and one pass at run time fills them; what an expression gives is data and is never
scanned again. A string that is exactly one `${{ }}` keeps the value's type; inside text a string stands as it is, a bool or a number as
JSON writes it, a list or a map as compact JSON, and null is an error: `default(x, "…")` says what stands for it. A literal `${{` is
written `${{ "${{" }}`. Keys of maps are never templates.
"""

from typing import Any, Final, NamedTuple

OPEN: Final = "${{"
_CLOSE: Final = "}}"


class Part(NamedTuple):
    """A stretch of a template string: literal `text`, or the CEL `source` between the braces, which starts at `offset` in the string."""

    text: str
    source: str | None
    offset: int


class Unterminated(Exception):
    """A `${{` without its `}}`; `offset` is where it opens."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def scan(string: str) -> tuple[Part, ...] | None:
    """The parts of a template string, or None for a string without `${{`. Linear. Raises `Unterminated`."""
    start = string.find(OPEN)
    if start < 0:
        return None
    parts: list[Part] = []
    position = 0
    while start >= 0:
        if start > position:
            parts.append(Part(string[position:start], None, position))
        begin = start + len(OPEN)
        end = _end_of_source(string, begin)
        if end < 0:
            raise Unterminated(start)
        inner = string[begin:end]
        parts.append(Part("", inner.strip(), begin + len(inner) - len(inner.lstrip())))
        position = end + len(_CLOSE)
        start = string.find(OPEN, position)
    if position < len(string):
        parts.append(Part(string[position:], None, position))
    return tuple(parts)


def is_static(tree: Any) -> bool:
    """Whether no string of a JSON tree holds a `${{`."""
    if isinstance(tree, str):
        return OPEN not in tree
    if isinstance(tree, dict):
        return all(is_static(value) for value in tree.values())
    if isinstance(tree, list):
        return all(is_static(item) for item in tree)
    return True


def _end_of_source(string: str, position: int) -> int:
    """Where the `}}` stands that ends the CEL at `position`: outside its strings, comments and map braces. -1 without one."""
    depth = 0
    while position < len(string):
        character = string[position]
        if character in "\"'":
            position = _end_of_literal(string, position, raw=_is_raw(string, position))
            continue
        if character == "/" and string.startswith("//", position):
            position = _line_end(string, position)
            continue
        if character == "{":
            depth += 1
        elif character == "}":
            if depth == 0:
                return position if string.startswith(_CLOSE, position) else -1
            depth -= 1
        position += 1
    return -1


def _is_raw(string: str, quote: int) -> bool:
    """Whether the CEL string opening at `quote` has an `r` before it (`r"…"`, `br"…"`), so that a backslash escapes nothing."""
    prefix = string[max(0, quote - 2) : quote].lower()
    return prefix.endswith("r") and (
        len(prefix) < 2 or prefix[0] == "b" or not (prefix[0].isalnum() or prefix[0] == "_")
    )


def _end_of_literal(string: str, position: int, *, raw: bool) -> int:
    """The position after the CEL string that opens at `position`; the end of the text for one that never closes."""
    quote = string[position]
    if string.startswith(quote * 3, position):
        quote *= 3
    position += len(quote)
    while position < len(string):
        if string[position] == "\\" and not raw:
            position += 2
        elif string.startswith(quote, position):
            return position + len(quote)
        else:
            position += 1
    return len(string)


def _line_end(string: str, position: int) -> int:
    newline = string.find("\n", position)
    return len(string) if newline < 0 else newline
