"""The JSON door for files: text to plain values and their places, with every fault named where it stands (ruling L1; YM-02).

Requests come through `model.jsonvalue.parse`, which is faster and knows no lines; both read the same language, and a test holds them together.
"""

import json
import re
from typing import Any, Final, NamedTuple

from ductord.engine.positions import Place, TextNode
from ductord.model.errors import PayloadInvalid, Violation
from ductord.model.jsonvalue import integer_of, number_of, storable_text

MAX_DEPTH: Final = 40

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_WORDS: Final = {"null": None, "true": True, "false": False}
_strings: Final = json.JSONDecoder()
_NOT_FINITE: Final = re.compile(r"NaN|-?Infinity")


class JsonText(NamedTuple):
    """`value` and `root` are None when the text is not JSON; else violations may still stand beside a value."""

    value: Any
    root: TextNode | None
    violations: tuple[Violation, ...]


def read_json(text: str) -> JsonText:
    """Read one JSON document. Never raises for what the text says."""
    reader = _Reader(text)
    try:
        value, root, end = reader.value(reader.skip(0), 0)
        end = reader.skip(end)
        if end < len(text):
            raise _Stop("JSON_SYNTAX", "text goes on after the document", end)
    except _Stop as stop:
        reader.refuse(stop.code, stop.message, stop.index)
        return JsonText(None, None, tuple(reader.violations))
    return JsonText(value, root, tuple(reader.violations))


class _Stop(Exception):
    def __init__(self, code: str, message: str, index: int) -> None:
        super().__init__(code)
        self.code = code
        self.message = message
        self.index = index


class _Reader:
    """Reads values at an index. Newlines are counted as the reading goes on, never from the start again."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._line = 1
        self._line_start = 0
        self._counted = 0
        self.violations: list[Violation] = []

    def skip(self, index: int) -> int:
        found = _SPACE.match(self._text, index)
        assert found is not None  # it matches nothing too
        return found.end()

    def refuse(self, code: str, message: str, index: int) -> None:
        place = self._place(index)
        self.violations.append(Violation(code=code, message=message, line=place.line, column=place.column))

    def value(self, index: int, depth: int) -> tuple[Any, TextNode, int]:
        """The value at `index`, its node, and the index after it."""
        text = self._text
        first = text[index : index + 1]
        place = self._place(index)
        node = TextNode(place.line, place.column, index, index)
        value: Any
        if first in ("{", "["):
            if depth == MAX_DEPTH:
                raise _Stop("DOCUMENT_TOO_DEEP", f"document is nested more than {MAX_DEPTH} deep", index)
            value, end = (self._object if first == "{" else self._array)(index, depth + 1, node)
        elif first == '"':
            value, end = self._string(index)
        else:
            value, end = self._scalar(index)
        node.end = end
        return value, node, end

    def _object(self, index: int, depth: int, node: TextNode) -> tuple[dict[str, Any], int]:
        members: dict[str, Any] = {}
        index = self.skip(index + 1)
        if self._text.startswith("}", index):
            return members, index + 1
        while True:
            if not self._text.startswith('"', index):
                raise _Stop("JSON_SYNTAX", "expected a key in double quotes", index)
            place = self._place(index)
            key, end = self._string(index)
            earlier = node.keys.get(key)
            if earlier is not None:
                shown = storable_text(key, max_chars=64)
                self.refuse("DUPLICATE_KEY", f"key `{shown}` is given twice, first in line {earlier.line}", index)
            else:
                node.keys[key] = TextNode(place.line, place.column, index, end)
            index = self.skip(end)
            if not self._text.startswith(":", index):
                raise _Stop("JSON_SYNTAX", "expected `:` after a key", index)
            value, child, index = self.value(self.skip(index + 1), depth)
            if earlier is None:
                members[key] = value
                node.children[key] = child
            index, ended = self._next(index, "}")
            if ended:
                return members, index

    def _array(self, index: int, depth: int, node: TextNode) -> tuple[list[Any], int]:
        items: list[Any] = []
        index = self.skip(index + 1)
        if self._text.startswith("]", index):
            return items, index + 1
        while True:
            value, child, index = self.value(index, depth)
            node.children[len(items)] = child
            items.append(value)
            index, ended = self._next(index, "]")
            if ended:
                return items, index

    def _next(self, index: int, closing: str) -> tuple[int, bool]:
        """Past the comma to the next member, or past the closing bracket."""
        index = self.skip(index)
        if self._text.startswith(",", index):
            return self.skip(index + 1), False
        if self._text.startswith(closing, index):
            return index + 1, True
        raise _Stop("JSON_SYNTAX", f"expected `,` or `{closing}`", index)

    def _string(self, index: int) -> tuple[str, int]:
        try:
            text, end = _strings.raw_decode(self._text, index)
            return str(text), end
        except json.JSONDecodeError as error:
            raise _Stop("JSON_SYNTAX", error.msg.removesuffix(" at"), error.pos) from None

    def _scalar(self, index: int) -> tuple[Any, int]:
        for word, meaning in _WORDS.items():
            if self._text.startswith(word, index):
                return meaning, index + len(word)
        not_finite = _NOT_FINITE.match(self._text, index)
        if not_finite is not None:
            self.refuse("NUMBER_OUT_OF_RANGE", f"{not_finite.group()} is a number that JSON does not have", index)
            return 1, not_finite.end()
        number = _NUMBER.match(self._text, index)
        if number is None:
            raise _Stop("JSON_SYNTAX", "expected a value", index)
        try:
            read = integer_of if number.group(1) is None and number.group(2) is None else number_of
            return read(number.group()), number.end()
        except PayloadInvalid as refused:
            self.refuse("NUMBER_OUT_OF_RANGE", refused.message, index)
            return 1, number.end()

    def _place(self, index: int) -> Place:
        if index >= self._counted:
            newlines = self._text.count("\n", self._counted, index)
            if newlines:
                self._line += newlines
                self._line_start = self._text.rfind("\n", 0, index) + 1
            self._counted = index
            return Place(self._line, index - self._line_start + 1)
        return Place(self._text.count("\n", 0, index) + 1, index - self._text.rfind("\n", 0, index))
