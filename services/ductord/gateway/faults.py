"""What is wrong with a request's shape, collected so that one answer names all of it, and made into one `Refusal`.

The first fault gives the reason; all of them stand in the BadRequest detail. A fault names fields and rules and never quotes a value.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from ductord.model.errors import Refusal, Violation
from ductord.rpc.errors import refused
from ductord.rpc.reasons import CODES

MAX_NAMED: Final = 100
STEP_TYPE_NOT_SUPPORTED: Final = "STEP_TYPE_NOT_SUPPORTED"

_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class _Nothing:
    """Stands for a value that was at fault; the fault is in the list."""


NOTHING: Final = _Nothing()


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong. `field` is the path in the contract's names (`steps[2].type`), `reason` an `ErrorReason`, or the violation code of a definition."""

    reason: str
    field: str
    message: str
    metadata: dict[str, str] = {}
    step_ref: str | None = None


class Reading:
    """What comes to light while one request is read."""

    __slots__ = ("faults", "twins")

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.twins: dict[str, str] = {}
        """Path of a twin that was set for a payload → path of the payload that the caller wrote."""

    def invalid(self, field: str, message: str) -> Any:
        """A field has a value that it may not have; `message` continues «`field` …». The answer is `NOTHING`."""
        self.faults.append(Fault(reason="FIELD_INVALID", field=field, message=f"{field} {message}"))
        return NOTHING

    def duplicate(self, field: str, message: str = "is given more than once") -> None:
        """A field is given twice."""
        self.faults.append(Fault(reason="FIELD_DUPLICATE", field=field, message=f"{field} {message}"))

    def exclusive(self, field: str, other: str) -> None:
        """Two fields are given of which at most one may be."""
        message = f"{field} and {other} are both given; at most one may be"
        self.faults.append(
            Fault(reason="FIELDS_EXCLUSIVE", field=field, message=message, metadata={"other_field": other})
        )

    def finish(self) -> None:
        """Raise the refusal of the faults, if there are any."""
        if self.faults:
            raise refusal(self.faults)


def refusal(faults: Sequence[Fault]) -> Refusal:
    """The one error for a request with these faults, at least one. A step type that is not built is judged before any field (ruling L1)."""
    unbuilt = [fault for fault in faults if fault.reason == STEP_TYPE_NOT_SUPPORTED]
    judged = unbuilt or faults
    first = judged[0]
    message = f"{first.message} (and {len(judged) - 1} more)" if len(judged) > 1 else first.message
    violations = [
        Violation(code=f.reason, message=f.message, path=f.field, step_ref=f.step_ref) for f in judged[:MAX_NAMED]
    ]
    if unbuilt:
        return refused("DEFINITION_INVALID", message, violations=violations, violation_count=len(unbuilt))
    metadata = {"field": first.field} | first.metadata
    return Refusal(CODES[first.reason], first.reason, message, metadata=metadata, violations=violations)


def malformed(message: str) -> Refusal:
    """A body that is not JSON."""
    return refused("BODY_MALFORMED", message)


def named(prefix: str, key: str) -> str:
    """The path of a key that the contract does not know: cut, and quoted unless it is a plain name."""
    if _PLAIN.fullmatch(key):
        return prefix + key
    return f"{prefix.removesuffix('.')}[{json.dumps(key[:64])}]"
