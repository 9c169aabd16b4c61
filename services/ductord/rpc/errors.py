"""A `Refusal` as `google.rpc.Status` and back (contract, «Errors»).

A status travels in the trailing metadata, which clients bound at 8 KiB by default: details are cut to fit, and say so by `violation_count`. A
client that can take more says how much (`channels` does). Nothing here quotes a payload, a statement or a traceback.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import code_pb2, error_details_pb2, status_pb2

from ductord.model.errors import PayloadInvalid, Refusal, Violation
from ductord.model.jsonvalue import storable_text
from ductord.rpc.reasons import CODES

DOMAIN: Final = "ductor"
DETAILS_KEY: Final = "grpc-status-details-bin"
BUDGET_KEY: Final = "x-ductor-status-bytes"
"""Metadata in which a client says how large a status it takes."""
BUDGET: Final = 4_500
"""Bytes of a status that fit a client's default 8 KiB: base64 makes 6,000 of them, the message travels twice."""
LARGEST_BUDGET: Final = 512 << 10
MAX_MESSAGE: Final = 400

_log = logging.getLogger("ductor.errors")


def refused(
    reason: str,
    message: str,
    *,
    violations: Sequence[Violation] = (),
    retry_after_ms: int | None = None,
    **metadata: str | int,
) -> Refusal:
    """A refusal with the code that belongs to `reason`: `raise refused("RUN_NOT_FOUND", "there is no such run")`. KeyError: no such reason."""
    texts = {key: str(value) for key, value in metadata.items()}
    return Refusal(CODES[reason], reason, message, metadata=texts, violations=violations, retry_after_ms=retry_after_ms)


def field_invalid(field: str, message: str) -> Refusal:
    """A field has a value that it may not have; `message` goes on after the field's name: «must be positive»."""
    return _about(field, "FIELD_INVALID", f"{field} {message}")


def field_required(field: str) -> Refusal:
    """A field that must be given is missing."""
    return _about(field, "FIELD_REQUIRED", f"{field} is required")


def fields_exclusive(field: str, other: str) -> Refusal:
    """Two fields of which at most one may be given are both given."""
    return _about(field, "FIELDS_EXCLUSIVE", f"{field} and {other} are both given; give one", other_field=other)


def not_supported(field: str, message: str) -> Refusal:
    """Something that is part of the contract and not built yet."""
    return refused("FEATURE_NOT_SUPPORTED", message, field=field)


def draining() -> Refusal:
    """What a long wait tells its caller when the process stops."""
    return refused("SERVICE_DRAINING", "the process is shutting down; the call may be repeated", retry_after_ms=500)


def of_payload(error: PayloadInvalid) -> Refusal:
    """The refusal of a payload that cannot be carried."""
    field = error.path.split(".", 1)[0].split("[", 1)[0]
    violation = Violation(code=error.reason.upper(), message=error.message, path=error.path)
    if error.reason == "too_large":
        return refused(
            "PAYLOAD_TOO_LARGE", error.message, violations=[violation], field=field, limit_bytes=error.limit_bytes or 0
        )
    return refused(
        "PAYLOAD_INVALID", error.message, violations=[violation], field=field, path=error.path, problem=error.reason
    )


def internal() -> Refusal:
    """What a caller is told of something unexpected: nothing but where to look."""
    return refused("INTERNAL", "an unexpected error; the server's logs hold the cause under the request id")


def to_status(refusal: Refusal, *, request_id: str = "", budget: int = BUDGET) -> status_pb2.Status:
    """The status that carries a refusal, at most about `budget` bytes."""
    code = code_pb2.Code.Value(refusal.code)
    if refusal.reason not in CODES:
        _log.error("reason %s is not in the contract", refusal.reason)
    status = status_pb2.Status(code=code, message=_cut(refusal.message))
    info = error_details_pb2.ErrorInfo(
        reason=refusal.reason, domain=DOMAIN, metadata={k: _cut(v) for k, v in refusal.metadata.items()}
    )
    _add(status, info)
    if refusal.retry_after_ms is not None:
        seconds, ms = divmod(refusal.retry_after_ms, 1000)
        _add(status, error_details_pb2.RetryInfo(retry_delay=Duration(seconds=seconds, nanos=ms * 1_000_000)))
    if request_id:
        _add(status, error_details_pb2.RequestInfo(request_id=request_id))
    if refusal.violations:
        room = budget - status.ByteSize()
        if refusal.code == "FAILED_PRECONDITION":
            _add(status, _preconditions(refusal.violations, room))
        else:
            _add(status, _bad_request(refusal.violations, room))
    return status


def trailing(status: status_pb2.Status) -> tuple[tuple[str, bytes], ...]:
    """The trailing metadata that carries a status."""
    return ((DETAILS_KEY, status.SerializeToString()),)


def budget_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> int:
    """How large a status the caller takes."""
    for key, value in metadata or ():
        if key == BUDGET_KEY and isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9:
            return max(BUDGET, min(int(value), LARGEST_BUDGET))
    return BUDGET


def status_from(error: grpc.aio.AioRpcError) -> status_pb2.Status:
    """The status that an RPC error carries; one made of code and details where it carries none (made by gRPC itself).

    A call that ends CANCELLED though its caller did not cancel it came to a server at the moment of its stop and was never begun: gRPC's core words what
    it has not handed to anybody like that (grpc/grpc#41785). It may be repeated like any other that was unavailable.
    """
    metadata: Iterable[tuple[str, str | bytes]] = error.trailing_metadata() or ()  # type: ignore[assignment]  # the stubs lack its iterator
    for key, value in metadata:
        if key == DETAILS_KEY and isinstance(value, bytes):
            status = status_pb2.Status()
            status.ParseFromString(value)
            return status
    refusal = _made_by_grpc(error.code(), error.details() or "")
    return to_status(refusal)


def refusal_from(error: grpc.aio.AioRpcError) -> Refusal:
    """The refusal behind an RPC error: what a client of ours (CLI, worker, gateway) judges by."""
    return refusal_of_status(status_from(error))


def refusal_of_status(status: status_pb2.Status) -> Refusal:
    """The refusal that a status carries. Lines and columns are part of the violations' messages."""
    reason, metadata, retry, violations = "", {}, None, []
    for detail in status.details:
        info, again = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        bad, unmet = error_details_pb2.BadRequest(), error_details_pb2.PreconditionFailure()
        if detail.Unpack(info):
            reason, metadata = info.reason, dict(info.metadata)
        elif detail.Unpack(again):
            retry = again.retry_delay.seconds * 1000 + again.retry_delay.nanos // 1_000_000
        elif detail.Unpack(bad):
            violations += [Violation(code=v.reason, message=v.description, path=v.field) for v in bad.field_violations]
        elif detail.Unpack(unmet):
            violations += [Violation(code=v.type, message=v.description, path=v.subject) for v in unmet.violations]
    code = code_pb2.Code.Name(status.code)
    return Refusal(
        code, reason or "INTERNAL", status.message, metadata=metadata, violations=violations, retry_after_ms=retry
    )


def _about(field: str, reason: str, message: str, **metadata: str) -> Refusal:
    violation = Violation(code=reason, message=message, path=field)
    return Refusal(CODES[reason], reason, message, metadata={"field": field, **metadata}, violations=[violation])


def _made_by_grpc(code: grpc.StatusCode, details: str) -> Refusal:
    if code is grpc.StatusCode.CANCELLED:
        return Refusal("UNAVAILABLE", "SERVICE_UNAVAILABLE", "the service stopped before it took the call")
    reason = {
        grpc.StatusCode.UNAVAILABLE: "SERVICE_UNAVAILABLE",
        grpc.StatusCode.DEADLINE_EXCEEDED: "DEADLINE_EXCEEDED",
        grpc.StatusCode.UNIMPLEMENTED: "RPC_NOT_FOUND",
        grpc.StatusCode.RESOURCE_EXHAUSTED: "OVERLOADED",
    }.get(code, "INTERNAL")
    return Refusal(code.name, reason, details)


def _bad_request(violations: Sequence[Violation], room: int) -> error_details_pb2.BadRequest:
    detail = error_details_pb2.BadRequest()
    for violation in violations:
        entry = detail.field_violations.add(
            field=_cut(violation.path), description=_described(violation), reason=violation.code
        )
        room -= entry.ByteSize() + 4
        if room < 0:
            del detail.field_violations[-1]
            break
    return detail


def _preconditions(violations: Sequence[Violation], room: int) -> error_details_pb2.PreconditionFailure:
    detail = error_details_pb2.PreconditionFailure()
    for violation in violations:
        entry = detail.violations.add(
            type=violation.code, subject=_cut(violation.path), description=_described(violation)
        )
        room -= entry.ByteSize() + 4
        if room < 0:
            del detail.violations[-1]
            break
    return detail


def _described(violation: Violation) -> str:
    where = "" if violation.line is None else f"line {violation.line}, column {violation.column or 1}: "
    return where + _cut(violation.message)


def _cut(text: str) -> str:
    return storable_text(text, max_chars=MAX_MESSAGE)


def _add(status: status_pb2.Status, detail: Any) -> None:
    packed = AnyMessage()
    packed.Pack(detail)
    status.details.append(packed)
