"""What a JSON Schema may ask of a value: how often it judges one and the same place of it, at most (CE-05, PL-06).

A schema of a few lines whose definitions refer to each other twice, twenty-odd levels deep, judges a single value millions of times, and nothing can
interrupt it. So the number is known before a value is judged. It is a bound and no measurement: it never looks at a value, and never follows a `$ref` out of
the document.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

CEILING: Final = 10**12
"""What is more than this is this: the numbers may have thousands of digits."""

_IN_PLACE: Final = ("allOf", "anyOf", "oneOf")
_IN_PLACE_ONE: Final = ("not", "if", "then", "else")
_BY_NAME: Final = ("dependentSchemas", "dependencies")
_ANY_NAME: Final = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_ELEMENTS: Final = ("items", "additionalItems", "contains", "unevaluatedItems", "prefixItems")
_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_UNEVALUATED: Final = 4
"""`unevaluated…` judges what stands beside it anew, to see what it has covered."""
_BACKTRACKING: Final = re.compile(r"\(\?[=!<>]|\\[1-9k]")
_COMPARED: Final = 32
"""Values of an `enum` that are compared in the time of one judgement."""
_PATTERN: Final = 2_000
"""What a pattern costs that is tried by going back and forth."""
_ANY: Final = "*"
_ELEMENT: Final = 0

Below = Counter[str | int]
"""How often one part of a value is judged, by its name; `_ANY`: each of its parts, `_ELEMENT`: each of its elements."""


def most_judged(schema: Any) -> int:
    """How often the schema judges one place of a value, at most; never more than `CEILING`."""
    try:
        return _Bound(schema).at(schema)
    except RecursionError:
        return CEILING


def places(value: Any) -> int:
    """How many places a checked JSON value has: itself, and what is in it, however deep."""
    count, waiting = 1, [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict | list):
            count += len(part)
            waiting += part.values() if isinstance(part, dict) else part
    return count


class _Bound:
    """Every subschema is looked at once. One that leads back to itself counts once on the way: the validator remembers what it has judged there."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._named: dict[str, Any] = {}
        self._known: dict[int, tuple[int, Below, int]] = {}
        self._open: set[int] = set()
        for part in _parts(root):
            for key in ("$anchor", "$dynamicAnchor", "$id", "id"):
                if isinstance(part.get(key), str):
                    self._named.setdefault(part[key].removeprefix("#"), part)

    def at(self, schema: Any) -> int:
        """How often a place that is given to this schema, or one below it, is judged."""
        return self._of(schema)[2]

    def _of(self, schema: Any) -> tuple[int, Below, int]:
        """How often the place itself is judged, its parts, and the most of any place."""
        if not isinstance(schema, dict):
            return 1, Counter(), 1
        known = self._known.get(id(schema))
        if known is not None:
            return known
        if id(schema) in self._open:
            return 1, Counter(), 1
        self._open.add(id(schema))
        here, below = self._own(schema)
        for part in self._in_place(schema):
            judged, parts, _ = self._of(part)
            here += judged
            below.update(parts)
        if any(name.startswith("unevaluated") for name in schema):
            here *= _UNEVALUATED
            below = Counter({name: count * _UNEVALUATED for name, count in below.items()})
        self._open.remove(id(schema))
        here = min(here, CEILING)
        below = Counter({name: min(count, CEILING) for name, count in below.items()})
        every = below[_ANY]
        most = max(
            here, every, *(count + (every if name not in (_ANY, _ELEMENT) else 0) for name, count in below.items()), 1
        )
        self._known[id(schema)] = found = (here, below, min(most, CEILING))
        return found

    def _own(self, schema: Mapping[str, Any]) -> tuple[int, Below]:
        here, below = 1, Counter[str | int]()
        if isinstance(schema.get("enum"), list):
            here += len(schema["enum"]) // _COMPARED
        here += _price(schema.get("pattern"))
        for name, part in _members(schema.get("properties")):
            below["." + name] += self.at(part)
        for pattern, part in _members(schema.get("patternProperties")):
            below[_ANY] += self.at(part) + _price(pattern)
        for keyword in _ANY_NAME:
            if keyword in schema:
                below[_ANY] += self.at(schema[keyword])
        for keyword in _ELEMENTS:
            given = schema.get(keyword)
            for part in given if isinstance(given, list) else [given] if given is not None else []:
                below[_ELEMENT] += self.at(part)
        return here, below

    def _in_place(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        for keyword in _IN_PLACE:
            given = schema.get(keyword)
            yield from given if isinstance(given, list) else ()
        for keyword in _IN_PLACE_ONE:
            if keyword in schema:
                yield schema[keyword]
        for keyword in _BY_NAME:
            yield from (part for _, part in _members(schema.get(keyword)))
        for keyword in _REFERENCES:
            if isinstance(schema.get(keyword), str):
                yield self._resolved(schema[keyword])

    def _resolved(self, reference: str) -> Any:
        """What a reference names; the whole document where it cannot be told."""
        document, _, fragment = reference.partition("#")
        base = self._named.get(document, self._root) if document else self._root
        if fragment and not fragment.startswith("/"):
            return self._named.get(fragment, base)
        found = base
        for step in fragment.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            try:
                found = found[int(name)] if isinstance(found, list) else found[name]
            except (KeyError, IndexError, ValueError, TypeError):
                return base
        return found


def _parts(root: Any) -> Iterator[dict[str, Any]]:
    """All maps in a document."""
    waiting = [root]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += part.values()
        elif isinstance(part, list):
            waiting += part


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    yield from value.items() if isinstance(value, dict) else ()


def _price(pattern: Any) -> int:
    return _PATTERN if isinstance(pattern, str) and _BACKTRACKING.search(pattern) else 0
