"""What a node's retry policy and time-outs are changed to: which fields count, and their ranges, which are those of a definition (ruling A1, A3).

Without a mask the fields that are given count. A field that the mask names and the request does not give goes back to its default: none for a time-out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.message import Message
from msgspec.structs import replace
from pydantic import ValidationError

from ductor.workflow.v1 import workflow_run_control_service_pb2 as api
from ductord.model.control import ControlBody
from ductord.model.definition import StepDefinition
from ductord.model.specs import RetryPolicy, Timeouts
from ductord.rpc.errors import field_invalid, field_required, fields_exclusive

_RETRY: Final = {
    "retry_max_attempts": "max_attempts",
    "retry_backoff_ms": "backoff_ms",
    "retry_backoff_coefficient": "coefficient",
    "retry_max_backoff_ms": "max_backoff_ms",
    "retry_jitter": "jitter",
    "retry_on": "retry_on",
    "non_retryable": "non_retryable",
}
"""Field of the contract, which is also the definition's → field of the policy."""
_TIMEOUTS: Final = {
    name: name for name in ("timeout_ms", "total_timeout_ms", "queue_timeout_ms", "heartbeat_timeout_ms")
}


def retry_policy(request: api.UpdateNodeRetryPolicyRequest) -> ControlBody:
    """The body of an update of the retry policy. Raises FIELD_REQUIRED, FIELD_INVALID, FIELDS_EXCLUSIVE."""
    counted = _counted(request, "retry_policy", _RETRY)
    if counted is None:
        return ControlBody(restore=True)
    given = {name: value for name in counted if (value := _given(request.retry_policy, name)) is not None}
    _in_range("retry_policy", given)
    values = {_RETRY[name]: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    return ControlBody(retry=replace(RetryPolicy(), **values), fields=_sorted(_RETRY[name] for name in counted))


def timeouts(request: api.UpdateNodeTimeoutRequest) -> ControlBody:
    """The body of an update of the time-outs; 0 removes one. Raises FIELD_REQUIRED, FIELD_INVALID, FIELDS_EXCLUSIVE."""
    counted = _counted(request, "timeouts", _TIMEOUTS)
    if counted is None:
        return ControlBody(restore=True)
    values = {name: value for name in counted if (value := _given(request.timeouts, name))}
    _in_range("timeouts", values)
    return ControlBody(timeouts=replace(Timeouts(), **values), fields=_sorted(counted))


def _counted(request: Any, field: str, known: Mapping[str, str]) -> Sequence[str] | None:
    """The fields that are changed; None when the definition's are restored."""
    masked = request.HasField("update_mask") and bool(request.update_mask.paths)
    if request.restore_original:
        for other, given in ((field, request.HasField(field)), ("update_mask", masked)):
            if given:
                raise fields_exclusive("restore_original", other)
        return None
    if masked:
        return _masked(request.update_mask, known)
    counted = [name for name in known if _given(getattr(request, field), name) is not None]
    if not counted:
        raise field_required(field)
    return counted


def _masked(mask: FieldMask, known: Mapping[str, str]) -> Sequence[str]:
    if list(mask.paths) == ["*"]:
        return list(known)
    for path in mask.paths:
        if path not in known:
            raise field_invalid("update_mask", f"names a field that there is not; there are {', '.join(known)}")
    return list(dict.fromkeys(mask.paths))


def _given(message: Message, name: str) -> Any:
    """The value of a field, None for one that is not given; a list is given when it is not empty."""
    field = message.DESCRIPTOR.fields_by_name[name]
    if field.is_repeated:
        return list(getattr(message, name)) or None
    return getattr(message, name) if message.HasField(name) else None


def _in_range(field: str, values: Mapping[str, Any]) -> None:
    """Raise FIELD_INVALID for the first value that no definition may have."""
    try:
        StepDefinition.model_validate({"ref": "any", "type": "action", **values})
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        name, *rest = fault["loc"]
        place = "".join(f"[{part}]" for part in rest if isinstance(part, int))
        raise field_invalid(f"{field}.{name}{place}", _told(fault["msg"])) from None


def _told(message: str) -> str:
    """Pydantic's words, to go on after the field's name."""
    for subject in ("Input", "String", "List"):
        message = message.removeprefix(f"{subject} should ")
    return f"must {message.removesuffix(' after validation')}"


def _sorted(names: Any) -> tuple[str, ...]:
    return tuple(sorted(names))
