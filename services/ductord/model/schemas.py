"""JSON Schema as the product speaks it: compile once, check values, and name what is wrong without quoting the value.

For inputs of runs and args of actions, so that publish and trigger judge with one engine (2020-12 unless `$schema` says otherwise). A schema
is an author's text and a value a stranger's: patterns run with a bounded number of steps, a `$ref` never leaves the document, and what would be judged too
often is not judged at all, so that neither can hold up or misuse the process.
"""

from itertools import islice
from typing import Any, Final

import msgspec

from ductord.model.jsonvalue import storable_text
from ductord.model.schema_cost import most_judged, places

MAX_FAULTS: Final = 20
"""A value may be wrong in ten thousand places; so many are named."""
_BACKTRACK_LIMIT: Final = 100_000
_REGEX_BYTES: Final = 1 << 20
_MAX_MESSAGE: Final = 300
_MOST_JUDGED: Final = 20_000_000
"""Judgements of one value, about a second of the process's time."""
_ALWAYS_FEW: Final = 16
"""The largest payload has about a million places: a schema that judges none of them more often needs no count."""


class SchemaInvalid(Exception):
    """A schema that is none, or that refers to something outside itself. `path` is dotted and begins inside the schema."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        self.message = message


class SchemaFault(msgspec.Struct, frozen=True, kw_only=True):
    """One place where a value does not meet its schema. `keyword`: the rule (`required`, `type` …). The message names the rule and never the value."""

    path: str
    keyword: str
    message: str


class Schema:
    """A compiled schema. Raises `SchemaInvalid` when `source` is not a schema or has a `$ref` that leads out of it."""

    __slots__ = ("_most", "_validator")

    def __init__(self, source: Any) -> None:
        if not isinstance(source, dict | bool):
            raise SchemaInvalid("", "a schema is an object or a boolean")
        import jsonschema_rs  # 3 MB that a process which meets no schema need not hold

        try:
            self._validator = jsonschema_rs.validator_for(
                source,
                mask="the value",
                retriever=_nowhere,
                pattern_options=jsonschema_rs.FancyRegexOptions(
                    backtrack_limit=_BACKTRACK_LIMIT, size_limit=_REGEX_BYTES, dfa_size_limit=_REGEX_BYTES
                ),
            )
        except jsonschema_rs.ValidationError as error:
            raise SchemaInvalid(_dotted("", error.instance_path), _told(error.message)) from None
        except ValueError as error:
            raise SchemaInvalid("", _told(str(error))) from None
        self._most = most_judged(source)

    @property
    def endless(self) -> bool:
        """Whether it may have to judge any value too often, however small: it never says that one meets it."""
        return self._most > _MOST_JUDGED

    def faults(self, value: Any, *, root: str = "") -> tuple[SchemaFault, ...]:
        """What is wrong with a checked JSON value, at most `MAX_FAULTS`; empty when it meets the schema. Paths begin with `root`. A value with so much in
        it that the schema might judge for ever does not meet it (CE-05)."""
        if self._most > _ALWAYS_FEW and self._most * places(value) > _MOST_JUDGED:
            message = f"there is too much to judge: the schema may look at one place {self._most:,} times"
            return (SchemaFault(path=root, keyword="size", message=message),)
        if self._validator.is_valid(value):
            return ()
        return tuple(
            SchemaFault(path=_dotted(root, error.instance_path), keyword=error.kind.name, message=_told(error.message))
            for error in islice(self._validator.iter_errors(value), MAX_FAULTS)
        )


def _nowhere(uri: str) -> Any:
    raise ValueError(f"a $ref stays inside its schema, {uri[:100]!r} does not")


def _told(message: str) -> str:
    return storable_text(message, max_chars=_MAX_MESSAGE)


def _dotted(root: str, path: list[str | int]) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{storable_text(part, max_chars=64)}" for part in path)
    return (root + "".join(parts)).removeprefix(".")
