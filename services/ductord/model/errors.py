"""Coded errors of the product: what a caller is told, before any transport gives it a shape.

A `Refusal` carries the reason (a name of `ErrorReason` in the contract), the gRPC code's name, a message for people, metadata for
machines and the violated fields. `rpc.errors` turns it into `google.rpc.Status`; the CLI prints it. Messages never hold payloads or SQL.
"""

from collections.abc import Mapping, Sequence

import msgspec


class Violation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing wrong with a document or request.

    `code` is stable (`UNKNOWN_STEP_REF` …), `path` the field in dotted form (`steps[2].run_if`), `line`/`column` 1-based where the text is known,
    `step_ref` the step it belongs to, `warning` True when it does not stop a publish.
    """

    code: str
    message: str
    path: str = ""
    line: int | None = None
    column: int | None = None
    step_ref: str | None = None
    warning: bool = False


class Refusal(Exception):
    """A coded refusal. `code` is a canonical gRPC code name (`INVALID_ARGUMENT`), `reason` an `ErrorReason` name without prefix."""

    def __init__(
        self,
        code: str,
        reason: str,
        message: str,
        *,
        metadata: Mapping[str, str] | None = None,
        violations: Sequence[Violation] = (),
        retry_after_ms: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.metadata = dict(metadata or {})
        self.violations = tuple(violations)
        self.retry_after_ms = retry_after_ms


class PayloadInvalid(Exception):
    """A payload that cannot be carried exactly (rulings L5, L6, L7). `path` is dotted, `reason` stable: `nul`, `nan`, `surrogate`,
    `duplicate_key`, `too_deep`, `integer_range`, `too_large` (then `limit_bytes` is the limit), `not_json`."""

    def __init__(self, reason: str, path: str, message: str, *, limit_bytes: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.path = path
        self.message = message
        self.limit_bytes = limit_bytes
