"""What workers say, made fit to be stored: a report per completion, whatever is in it.

A worker's bad output fails its attempt and nothing else (rulings L5, L6, L7): it becomes a failure `payload_invalid` or `payload_too_large` that is
never tried again. Error text is escaped and cut, so that recording a failure cannot fail. Pure: no row, no clock.
"""

from hashlib import sha256
from typing import Final

import msgspec

from ductor.workflow.v1 import task_service_pb2 as api
from ductord.dispatch.token import LeaseKey
from ductord.model import jsonvalue
from ductord.model.enums import Outcome
from ductord.model.errors import PayloadInvalid
from ductord.rpc.errors import field_invalid, field_required
from ductord.rpc.payloads import note_size

UNKNOWN_CODE: Final = "UNKNOWN"
PAYLOAD_CODES: Final = ("payload_invalid", "payload_too_large")
_MAX_CODE: Final = 128


class Report(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The outcome of one attempt as its row holds it. `output` is checked JSON text, kept as the worker wrote it; size in bytes, a short hash."""

    outcome: Outcome
    output: str | None = None
    output_size: int | None = None
    output_hash: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    non_retryable: bool = False
    retry_after_ms: int | None = None

    @property
    def payload_refused(self) -> bool:
        """Whether the worker meant a success whose output cannot be carried."""
        return self.error_code in PAYLOAD_CODES and self.non_retryable


class KeyedReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A report about the lease `key`; `number` is its place in the request."""

    number: int
    key: LeaseKey
    report: Report


def of_completion(completion: api.TaskCompletion, number: int, payload_max_bytes: int) -> Report:
    """The report that a completion makes. Raises `Refusal` for one that says nothing or asks for what is not built."""
    match completion.WhichOneof("outcome"):
        case "success":
            return success(completion.success.output_json or "null", payload_max_bytes)
        case "failure":
            return _failure(completion.failure, f"completions[{number}].failure")
        case "release":
            message = jsonvalue.storable_text(completion.release.reason, max_chars=400)
            return Report(outcome=Outcome.RELEASED, error_message=message or None)
    raise field_required(f"completions[{number}].outcome")


def success(output: str, payload_max_bytes: int) -> Report:
    """The report of an output, which fails the attempt where it cannot be carried exactly."""
    try:
        jsonvalue.parse(output, root="output", max_bytes=payload_max_bytes)
        encoded = output.encode()
    except PayloadInvalid as error:
        return refused_payload(error)
    note_size("output", len(encoded))
    return Report(
        outcome=Outcome.SUCCEEDED, output=output, output_size=len(encoded), output_hash=sha256(encoded).hexdigest()[:16]
    )


def refused_payload(error: PayloadInvalid) -> Report:
    """The failure that stands for an output which cannot be carried (PL-01, PL-03, PL-04, PL-06)."""
    code = "payload_too_large" if error.reason == "too_large" else "payload_invalid"
    message = jsonvalue.storable_text(error.message)
    return Report(outcome=Outcome.FAILED, error_code=code, error_message=message, non_retryable=True)


def _failure(failure: api.TaskFailure, field: str) -> Report:
    retry_after = failure.retry_after_ms if failure.HasField("retry_after_ms") else None
    if retry_after is not None and retry_after < 0:
        raise field_invalid(f"{field}.retry_after_ms", "must not be negative")
    return Report(
        outcome=Outcome.FAILED,
        error_code=jsonvalue.storable_text(failure.code, max_chars=_MAX_CODE) or UNKNOWN_CODE,
        error_message=jsonvalue.storable_text(failure.message),
        non_retryable=failure.non_retryable,
        retry_after_ms=retry_after,
    )
