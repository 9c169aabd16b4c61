"""A `google.rpc.Status` as each door shows it: AIP-193 for REST, Connect's own error for Connect and gRPC-Web (contract, «Errors»).

What a service said passes through; of what gRPC or this process says by itself (addresses, exception texts) only the code does. Where the gateway
sent a payload by its twin, the status is told back in the name that the caller wrote.
"""

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import grpc
import orjson
from connectrpc.code import Code
from connectrpc.errors import ConnectError, ErrorDetail
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from protobuf.wkt import Any as WireAny

from ductor.workflow.v1.workflow_trigger_service_pb2 import BatchTriggerWorkflowResponse
from ductord.model.errors import Refusal
from ductord.rpc import errors

HTTP: Final = {
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 400,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}
"""google.rpc's own table (AP-06)."""

_CONNECT: Final = {name: Code["CANCELED" if name == "CANCELLED" else name] for name in HTTP}
_TYPES: Final = {
    message.DESCRIPTOR.full_name: message
    for message in (
        error_details_pb2.ErrorInfo,
        error_details_pb2.BadRequest,
        error_details_pb2.PreconditionFailure,
        error_details_pb2.RetryInfo,
        error_details_pb2.RequestInfo,
    )
}

_TWIN_PATH: Final = re.compile(r"(?<![\w.\]])[\w.\[\]]*?_json(?!\w)")
"""The first part of a path that ends like a twin: a user's own key may be called so too, further on."""


def of_call(error: grpc.aio.AioRpcError, service: str, request_id: str) -> status_pb2.Status:
    """The status of a failed call to `service` (`reads`): as the service gave it, else a safe one for the code that gRPC made."""
    metadata: Any = error.trailing_metadata() or ()
    if any(key == errors.DETAILS_KEY for key, _ in metadata):
        return errors.status_from(error)
    return errors.to_status(_unsaid(error.code(), service), request_id=request_id)


def in_callers_words(status: status_pb2.Status, twins: Mapping[str, str]) -> status_pb2.Status:
    """`status` with the path of each twin replaced by the path of the payload that the caller wrote, in fields and messages."""
    if not twins:
        return status
    told = _telling(twins)
    answer = status_pb2.Status(code=status.code, message=told(status.message))
    for detail in status.details:
        kept = answer.details.add()
        kept.CopyFrom(detail)
        info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        if kept.Unpack(info):
            for key, value in dict(info.metadata).items():
                info.metadata[key] = told(value)
            kept.Pack(info)
        elif kept.Unpack(bad):
            for violation in bad.field_violations:
                violation.field, violation.description = told(violation.field), told(violation.description)
            kept.Pack(bad)
    return answer


def items_in_callers_words(answer: Message, twins: Mapping[str, str]) -> None:
    """The same for the errors of a batch's items, which stand in its answer and name fields within their item."""
    if not twins or not isinstance(answer, BatchTriggerWorkflowResponse):
        return
    for index, result in enumerate(answer.results):
        item = f"items[{index}]."
        own = {
            twin.removeprefix(item): path.removeprefix(item) for twin, path in twins.items() if twin.startswith(item)
        }
        if own and result.HasField("error"):
            told = _telling(own)
            result.error.message = told(result.error.message)
            for key, value in dict(result.error.metadata).items():
                result.error.metadata[key] = told(value)


def name_of(status: status_pb2.Status) -> str:
    """The name of the code, `INVALID_ARGUMENT`."""
    return code_pb2.Code.Name(status.code) if status.code in code_pb2.Code.values() else "UNKNOWN"


def reason_of(status: status_pb2.Status) -> str:
    """The `ErrorInfo`'s reason; empty without one."""
    return errors.refusal_of_status(status).reason


def as_rest(status: status_pb2.Status) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """(HTTP status, headers, body) of an AIP-193 error. Details stand in snake_case, as everything in REST."""
    name = name_of(status)
    http = HTTP[name]
    headers: list[tuple[bytes, bytes]] = []
    details = _details(status)
    for detail in details:
        if detail.get("reason") == "METHOD_NOT_ALLOWED":
            http = 405
            headers.append((b"allow", detail["metadata"]["allow"].encode()))
        if "retry_delay" in detail:
            headers.append((b"retry-after", str(-int(-float(detail["retry_delay"].rstrip("s")) // 1)).encode()))
    if http == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    error = {"code": http, "status": name, "message": status.message, "details": details}
    return http, headers, orjson.dumps({"error": error})


class Told(ConnectError):
    """An error that connectrpc writes, in whichever protocol the caller speaks. `grpc_code` is the code's gRPC name."""

    def __init__(self, status: status_pb2.Status) -> None:
        self.grpc_code = name_of(status)
        self.reason = reason_of(status)
        details = [ErrorDetail(WireAny(type_url=detail.type_url, value=detail.value)) for detail in status.details]
        super().__init__(_CONNECT[self.grpc_code], status.message, details)


def as_connect_body(status: status_pb2.Status) -> bytes:
    """A Connect unary error as JSON, for what never reaches connectrpc."""
    details = [
        {
            "type": detail.type_url.rpartition("/")[2],
            "value": base64.b64encode(detail.value).decode().rstrip("="),
        }
        for detail in status.details
    ]
    code = _CONNECT[name_of(status)].value
    return orjson.dumps({"code": code, "message": status.message, "details": details})


def _telling(twins: Mapping[str, str]) -> Callable[[str], str]:
    """Replaces the paths of twins in a text; what follows a path, or is none of them, stays."""
    return lambda text: _TWIN_PATH.sub(lambda match: twins.get(match.group(), match.group()), text)


def _details(status: status_pb2.Status) -> list[dict[str, Any]]:
    written = []
    for detail in status.details:
        kind = _TYPES.get(detail.type_url.rpartition("/")[2])
        if kind is not None:
            message = kind.FromString(detail.value)
            written.append({"@type": detail.type_url} | MessageToDict(message, preserving_proto_field_name=True))
    return written


def _unsaid(code: grpc.StatusCode, service: str) -> Refusal:
    """What is told of a call that no service answered; gRPC's text names addresses and stays here."""
    match code:
        case grpc.StatusCode.UNAVAILABLE | grpc.StatusCode.CANCELLED:  # the second: it stopped before it took the call
            message = f"the {service} service cannot be reached; the call may be repeated"
            return errors.refused("SERVICE_UNAVAILABLE", message, retry_after_ms=500, service=service)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.refused("DEADLINE_EXCEEDED", "the deadline passed before the answer was there")
        case grpc.StatusCode.UNIMPLEMENTED:
            return errors.refused("RPC_NOT_FOUND", f"the {service} service does not serve this RPC")
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return errors.refused("OVERLOADED", f"the {service} service takes no more; try again", retry_after_ms=500)
        case _:
            return errors.internal()
