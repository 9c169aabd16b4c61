"""The errors of the REST door (AIP-193): one schema for all, and which HTTP statuses an operation may answer with, each with the reasons that lead to it."""

from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor

from ductor.workflow.v1 import error_reason_pb2
from ductord.gateway.openapi.comments import Comments
from ductord.gateway.openapi.schemas import Schema
from ductord.gateway.statuses import HTTP
from ductord.rpc.reasons import CODES

_NAMES: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    429: "TooManyRequests",
    500: "InternalServerError",
    503: "ServiceUnavailable",
    504: "GatewayTimeout",
}
_WORDS: Final = {
    400: "The request is not what it must be, or what it asks for cannot be done as things stand.",
    401: "No credential, or one that does not count.",
    403: "The credential does not reach so far.",
    404: "What the request names is not there, for this tenant.",
    409: "Somebody else came first, or the name is taken.",
    429: "Too much at once; `Retry-After` says when to try again.",
    500: "The server met something that it did not expect.",
    503: "Not now; the call may be repeated.",
    504: "The deadline passed before the answer was there.",
}
_ALWAYS: Final = (400, 401, 403, 429, 500, 503, 504)
_NAMING: Final = {"id", "run_id", "source_run_id", "definition_id", "workflow_id", "schedule_id", "key_id"}
"""Fields of a request that name what may not be there."""
_NOT_PER_OPERATION: Final = {"METHOD_NOT_ALLOWED", "RPC_NOT_FOUND", "FEATURE_NOT_SUPPORTED", "CANCELLED"}
_READS: Final = 1
"""MethodOptions.IdempotencyLevel.NO_SIDE_EFFECTS."""


def answers(rpc: MethodDescriptor) -> dict[str, Schema]:
    """The error answers of an operation, by HTTP status; `default` is any other."""
    statuses = set(_ALWAYS)
    if _NAMING & set(rpc.input_type.fields_by_name):
        statuses.add(404)
    if rpc.GetOptions().idempotency_level != _READS:
        statuses.add(409)
    refs = {str(status): {"$ref": f"#/components/responses/{_NAMES[status]}"} for status in sorted(statuses)}
    return refs | {"default": {"$ref": "#/components/responses/Error"}}


def responses(comments: Comments) -> dict[str, Schema]:
    """The components that `answers` refers to."""
    found = {
        _NAMES[status]: _response("\n".join([_WORDS[status], "", *_reasons(status, comments)]), status)
        for status in _NAMES
    }
    return found | {"Error": _response("Any other error.", 0)}


def schemas() -> dict[str, Schema]:
    """The body of an error and its parts."""
    reasons = [name.removeprefix("ERROR_REASON_") for name in error_reason_pb2.ErrorReason.keys()[1:]]
    details = {
        "ErrorInfo": {"reason": _text("Why, by its short name.") | {"enum": reasons}, "domain": _text("`ductor`."),
                      "metadata": {"type": "object", "additionalProperties": {"type": "string"}, "description": "What belongs to the reason."}},
        "BadRequest": {"field_violations": _list(field=_text("The path of the field, as `steps[2].type`."), description=_text("What is wrong with it."),
                                                 reason=_text("The short name of a reason, or the code of a violation of a definition."))},
        "PreconditionFailure": {"violations": _list(type=_text("The kind of what is not met."), subject=_text("What it is about."),
                                                    description=_text("What is not met."))},
        "RetryInfo": {"retry_delay": _text("How long to wait, as `0.500s`.")},
        "RequestInfo": {"request_id": _text("The id of the call, as in the logs."), "serving_data": _text("Not given to callers.")},
    }  # fmt: skip
    parts: dict[str, Any] = {name: _detail(name, properties) for name, properties in details.items()}
    error = {
        "code": {"type": "integer", "description": "The HTTP status."},
        "status": _text("The name of the gRPC code.") | {"enum": list(HTTP)},
        "message": _text("What went wrong, for people; it never decides anything."),
        "details": {"type": "array", "items": {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in parts]},
                    "description": "Of each kind at most one; an ErrorInfo is always there."},
    }  # fmt: skip
    inner = {"type": "object", "required": list(error), "properties": error}
    body = {
        "type": "object",
        "description": "An error.",
        "required": ["error"],
        "properties": {"error": inner},
    }
    return {"Error": body, **parts}


def _reasons(status: int, comments: Comments) -> list[str]:
    return [
        f"- `{reason}`: {comments.of(f'ductor.workflow.v1.ErrorReason.ERROR_REASON_{reason}')}"
        for reason, code in CODES.items()
        if HTTP[code] == status and reason not in _NOT_PER_OPERATION
    ]


def _response(description: str, status: int) -> Schema:
    headers = {"X-Request-Id": {"$ref": "#/components/headers/RequestId"}}
    if status in (429, 503):
        headers["Retry-After"] = {"$ref": "#/components/headers/RetryAfter"}
    if status == 401:
        headers["WWW-Authenticate"] = {"$ref": "#/components/headers/Authenticate"}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    return {"description": description, "headers": headers, "content": content}


def _detail(name: str, properties: dict[str, Schema]) -> Schema:
    kind = {"@type": {"const": f"type.googleapis.com/google.rpc.{name}"}}
    required = ["@type", "reason", "domain"] if name == "ErrorInfo" else ["@type"]
    description = f"A `google.rpc.{name}`; fields that are empty are left out."
    return {"type": "object", "description": description, "required": required, "properties": kind | properties}


def _text(description: str) -> Schema:
    return {"type": "string", "description": description}


def _list(**properties: Schema) -> Schema:
    return {"type": "array", "items": {"type": "object", "properties": properties}}
