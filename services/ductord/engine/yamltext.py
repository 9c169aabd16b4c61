"""The YAML door: text to plain JSON values and their places (ruling L1; YM-01, YM-02, YM-03).

YAML 1.2 core schema and no more: words are null, booleans and numbers only where that schema says so, so `no` is a string and so is a date.
Tags, merge keys, keys that are no strings, duplicate keys and aliases to what is still open are violations. Built from the parser's
events, so that nothing is expanded or constructed before it has been counted: an alias costs its target's size. ruamel parses, and
decides nothing.
"""

import re
from typing import Any, Final, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from ductord.engine.positions import Place, TextNode
from ductord.model.errors import PayloadInvalid, Violation
from ductord.model.jsonvalue import integer_of, number_of, storable_text

MAX_NODES: Final = 60_000
"""Values in a document, aliases expanded: 500 steps and 5,000 edges have about 40,000."""
MAX_DEPTH: Final = 40

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_TRUE: Final = frozenset({"true", "True", "TRUE"})
_FALSE: Final = frozenset({"false", "False", "FALSE"})
_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_FINITE: Final = re.compile(r"[-+]?(\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN")


class YamlText(NamedTuple):
    """`value` and `root` are None when the text could not be read to its end; else violations may still stand beside a value."""

    value: Any
    root: TextNode | None
    violations: tuple[Violation, ...]


def read_yaml(text: str) -> YamlText:
    """Read one YAML document. Never raises for what the text says."""
    reader = _Reader()
    try:
        return reader.read(text)
    except _Stop as stop:
        return YamlText(None, None, (*reader.violations, stop.violation))


class _Stop(Exception):
    """Reading ends here: the rest of the text has no certain meaning, or is too much."""

    def __init__(self, code: str, message: str, place: Place) -> None:
        super().__init__(code)
        self.violation = Violation(code=code, message=message, line=place.line, column=place.column)


class _Open:
    """A collection whose end has not come yet. `key`: the key of a mapping that waits for its value."""

    __slots__ = ("anchor", "key", "mapping", "node", "value", "waiting")

    def __init__(self, node: TextNode, *, mapping: bool, anchor: str | None) -> None:
        self.node = node
        node.depth = 1
        self.mapping = mapping
        self.anchor = anchor
        self.value: Any = {} if mapping else []
        self.waiting = False
        self.key: str | None = None


class _Reader:
    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, TextNode]] = {}
        self._result: tuple[Any, TextNode] | None = None
        self._documents = 0
        self._nodes = 0

    def read(self, text: str) -> YamlText:
        try:
            for event in YAML(typ="safe", pure=True).parse(text):
                self._event(type(event).__name__, event)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            place = Place(mark.line + 1, mark.column + 1) if mark is not None else Place(1, 1)
            raise _Stop("YAML_SYNTAX", storable_text(error.problem or "not YAML", max_chars=300), place) from None
        except YAMLError:
            raise _Stop("YAML_SYNTAX", "text holds a character that YAML does not allow", _first_bad(text)) from None
        except RecursionError:
            raise _Stop("DOCUMENT_TOO_DEEP", "document is nested too deep", Place(1, 1)) from None
        if self._result is None:
            raise _Stop("DOCUMENT_EMPTY", "document is empty", Place(1, 1))
        value, root = self._result
        return YamlText(value, root, tuple(self.violations))

    def _event(self, kind: str, event: Any) -> None:
        place = Place(event.start_mark.line + 1, event.start_mark.column + 1)
        match kind:
            case "DocumentStartEvent":
                self._documents += 1
                if self._documents > 1:
                    raise _Stop("MULTIPLE_DOCUMENTS", "text holds more than one document", place)
                if event.version not in (None, (1, 2)):
                    raise _Stop("YAML_SYNTAX", "only YAML 1.2 is read", place)
            case "ScalarEvent":
                node = self._node(event, place)
                self._refuse_tag(event, place)
                plain = event.style is None and event.tag is None
                self._add_scalar(event.value, node, place, plain=plain, anchor=event.anchor)
            case "AliasEvent":
                self._alias(str(event.anchor), place)
            case "MappingStartEvent" | "SequenceStartEvent":
                node = self._node(event, place)
                self._refuse_tag(event, place)
                if len(self._open) == MAX_DEPTH:
                    raise _Stop("DOCUMENT_TOO_DEEP", f"document is nested more than {MAX_DEPTH} deep", place)
                self._open.append(_Open(node, mapping=kind == "MappingStartEvent", anchor=event.anchor))
            case "MappingEndEvent" | "SequenceEndEvent":
                closed = self._open.pop()
                closed.node.end = event.end_mark.index
                self._keep_anchor(closed.anchor, closed.value, closed.node)
                self._add(closed.value, closed.node)

    def _node(self, event: Any, place: Place) -> TextNode:
        self._count(1, place)
        return TextNode(place.line, place.column, event.start_mark.index, event.end_mark.index)

    def _count(self, nodes: int, place: Place) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            message = f"document has more than {MAX_NODES:,} values, aliases expanded"
            raise _Stop("DOCUMENT_TOO_LARGE", message, place)

    def _keep_anchor(self, anchor: str | None, value: Any, node: TextNode) -> None:
        if anchor is not None:
            self._anchors[anchor] = (value, node)

    def _alias(self, anchor: str, place: Place) -> None:
        if any(collection.anchor == anchor for collection in self._open):
            raise _Stop("YAML_CYCLE", f"alias `{anchor[:64]}` stands inside what it names", place)
        if anchor not in self._anchors:
            raise _Stop("YAML_SYNTAX", f"alias `{anchor[:64]}` names nothing before it", place)
        value, node = self._anchors[anchor]
        self._count(node.size, place)
        if len(self._open) + node.depth > MAX_DEPTH:
            raise _Stop("DOCUMENT_TOO_DEEP", f"document is nested more than {MAX_DEPTH} deep", place)
        self._add(value, node, key_place=place)

    def _add_scalar(self, text: str, node: TextNode, place: Place, *, plain: bool, anchor: str | None) -> None:
        waiting_for_key = bool(self._open) and self._open[-1].mapping and not self._open[-1].waiting
        if plain and text == "<<" and waiting_for_key:
            self._refuse("YAML_MERGE_KEY", "merge keys are not read: write the fields out", place)
        value = self._resolved(text, place) if plain else _joined(text)
        self._keep_anchor(anchor, value, node)
        self._add(value, node, key_place=place, written=text)

    def _add(self, value: Any, node: TextNode, *, key_place: Place | None = None, written: str | None = None) -> None:
        """Put a finished value where it belongs: the result, the open list, or the open mapping as key or value."""
        if not self._open:
            self._result = (value, node)
            return
        parent = self._open[-1]
        if parent.mapping and not parent.waiting:
            parent.waiting = True
            parent.key = self._key(parent, value, node, key_place or node.place, written)
            return
        parent.waiting = False
        parent.node.size += node.size
        parent.node.depth = max(parent.node.depth, node.depth + 1)
        if not parent.mapping:
            parent.node.children[len(parent.value)] = node
            parent.value.append(value)
        elif parent.key is not None:
            parent.node.children[parent.key] = node
            parent.value[parent.key] = value

    def _key(self, parent: _Open, value: Any, node: TextNode, place: Place, written: str | None) -> str | None:
        """The key to file the coming value under; None for one that was refused."""
        if not isinstance(value, str):
            shown = f"`{written[:64]}`" if written else "this"
            self._refuse("YAML_KEY_NOT_STRING", f"key {shown} is not a string: quote it", place)
            return None
        earlier = parent.node.keys.get(value)
        if earlier is not None:
            message = f"key `{storable_text(value, max_chars=64)}` is given twice, first in line {earlier.line}"
            self._refuse("DUPLICATE_KEY", message, place)
            return None
        parent.node.keys[value] = TextNode(place.line, place.column, node.start, node.end)
        return value

    def _resolved(self, text: str, place: Place) -> Any:
        """The value of a plain scalar by the YAML 1.2 core schema."""
        if text in _NULL:
            return None
        if text in _TRUE or text in _FALSE:
            return text in _TRUE
        try:
            if _INTEGER.fullmatch(text):
                return integer_of(text)
            if _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
                return integer_of(text[2:], base=8 if text[1] == "o" else 16)
            if _FLOAT.fullmatch(text):
                return number_of(text)
        except PayloadInvalid as refused:
            self._refuse("NUMBER_OUT_OF_RANGE", refused.message, place)
            return 1
        if _NOT_FINITE.fullmatch(text):
            self._refuse("NUMBER_OUT_OF_RANGE", f"{text} is a number that JSON does not have", place)
            return 1
        return text

    def _refuse_tag(self, event: Any, place: Place) -> None:
        if event.tag is not None:
            tag = storable_text(str(event.tag).replace("tag:yaml.org,2002:", "!!"), max_chars=64)
            self._refuse("YAML_TAG", f"tags are not read: {tag}", place)

    def _refuse(self, code: str, message: str, place: Place) -> None:
        self.violations.append(Violation(code=code, message=message, line=place.line, column=place.column))


def _joined(text: str) -> str:
    """Surrogate pairs that were written as two escapes become the character they mean; lone ones stay for the JSON check to refuse."""
    if text.isascii():
        return text
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return text


def _first_bad(text: str) -> Place:
    """Where the first character stands that YAML's reader refuses."""
    found = re.search("[^\x09\x0a\x0d\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", text)
    index = found.start() if found else 0
    return Place(text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))
