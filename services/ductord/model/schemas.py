"""JSON Schema as the product speaks it: compile once, check values, and name what is wrong without quoting the value.

For inputs of runs and args of actions, so that publish and trigger judge with one engine (2020-12 unless `$schema` says otherwise). A schema
is an author's text and a value a stranger's: patterns run with a bounded number of steps, and a `$ref` never leaves the document, so that
neither can hold up or misuse the process.
"""

from itertools import islice
from typing import Any, Final

import jsonschema_rs
import msgspec

from ductord.model.jsonvalue import storable_text

MAX_FAULTS: Final = 20
"""A value may be wrong in ten thousand places; so many are named."""
_BACKTRACK_LIMIT: Final = 100_000
_REGEX_BYTES: Final = 1 << 20
_MAX_MESSAGE: Final = 300


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

    __slots__ = ("_validator",)

    def __init__(self, source: Any) -> None:
        if not isinstance(source, dict | bool):
            raise SchemaInvalid("", "a schema is an object or a boolean")
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

    def faults(self, value: Any, *, root: str = "") -> tuple[SchemaFault, ...]:
        """What is wrong with a checked JSON value, at most `MAX_FAULTS`; empty when it meets the schema. Paths begin with `root`."""
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
