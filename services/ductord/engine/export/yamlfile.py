"""A definition as YAML text: the same definition always gives the same bytes, and reading them gives the same definition (YM-01).

Fields stand in the model's order, the keys of free JSON (args, variables, schemas) sorted, nulls left out where the model counts them as not
written. A string is plain only where every YAML reader, 1.1 or 1.2, takes it for that string; else it is quoted, or a literal block if it has
lines. Takes any tree, also an unfinished draft's.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from pydantic import BaseModel

from ductord.model.definition import DOCUMENT_TYPE, PARTS, Definition

_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_ .,;:/@()+=—–-]*")
_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null", "none"})
_ESCAPED: Final = re.compile('["\\\\\x00-\x1f\x7f-\xa0\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}
_NOT_IN_BLOCKS: Final = re.compile(
    "[^\n\x20-\x7e\xa1-\u2027\u2030-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
)
_IMPLICIT_KEY: Final = 120
"""YAML allows 1,024 characters for a key on the line of its value; longer ones are marked by `?`."""


def export_yaml(definition: dict[str, Any]) -> str:
    """The file of a definition's tree, with its envelope."""
    lines = [f"type: {DOCUMENT_TYPE}", *_entry("definition", definition, Definition, 0)]
    return "\n".join(lines) + "\n"


def _entry(key: str, value: Any, part: type[BaseModel] | None, indent: int) -> Iterator[str]:
    """The lines of one key and its value."""
    pad = "  " * indent
    written = _string(key)
    if len(written) > _IMPLICIT_KEY:
        yield f"{pad}? {written}"
        yield from _valued(f"{pad}:", value, part, indent)
    else:
        yield from _valued(f"{pad}{written}:", value, part, indent)


def _valued(head: str, value: Any, part: type[BaseModel] | None, indent: int) -> Iterator[str]:
    if isinstance(value, dict) and (entries := _ordered(value, part)):
        yield head
        for name, item, below in entries:
            yield from _entry(name, item, below, indent + 1)
    elif isinstance(value, list) and value:
        yield head
        for item in value:
            yield from _item(item, part, indent + 1)
    elif isinstance(value, str) and _is_block(value):
        yield f"{head} {'|' if value.endswith(chr(10)) else '|-'}"
        yield from _block(value, indent + 1)
    else:
        yield f"{head} {_scalar(value)}"


def _item(value: Any, part: type[BaseModel] | None, indent: int) -> Iterator[str]:
    """The lines of one list item: its own lines, one level in, with the dash put before the first."""
    pad = "  " * indent
    if isinstance(value, dict) and (entries := _ordered(value, part)):
        lines = [line for name, item, below in entries for line in _entry(name, item, below, indent + 1)]
    elif isinstance(value, list) and value:
        lines = [line for item in value for line in _item(item, None, indent + 1)]
    else:
        yield from _valued(f"{pad}-", value, None, indent)
        return
    yield f"{pad}- {lines[0].lstrip(' ')}"
    yield from lines[1:]


def _ordered(value: dict[str, Any], part: type[BaseModel] | None) -> list[tuple[str, Any, type[BaseModel] | None]]:
    """Entries in the order they are written, each with the part it holds. A part's null fields are not written."""
    if part is None:
        return [(key, value[key], None) for key in sorted(value)]
    known = [field.alias or name for name, field in part.model_fields.items()]
    unknown = sorted(set(value) - set(known))
    parts = PARTS.get(part, {})
    return [(key, value[key], parts.get(key)) for key in (*known, *unknown) if value.get(key) is not None]


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        return _string(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        text = repr(value)
        return text if "." in text or "e" not in text else text.replace("e", ".0e")  # YAML 1.1 wants a dot in a float
    if isinstance(value, dict | list):  # an empty one: the others have lines of their own
        return "{}" if isinstance(value, dict) else "[]"
    return str(value)


def _string(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    if plain and ": " not in text and not text.endswith((":", " ")):
        return text
    return '"' + _ESCAPED.sub(_escape, text) + '"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04x}"


def _is_block(text: str) -> bool:
    """Whether the text can stand as a literal block and come back as it is."""
    if "\n" not in text.rstrip("\n") or text.endswith("\n\n") or _NOT_IN_BLOCKS.search(text):
        return False
    lines = text.removesuffix("\n").split("\n")
    return not lines[0].startswith(" ") and lines[0] != "" and not any(line.endswith(" ") for line in lines)


def _block(text: str, indent: int) -> Iterator[str]:
    pad = "  " * indent
    return (pad + line if line else "" for line in text.removesuffix("\n").split("\n"))
