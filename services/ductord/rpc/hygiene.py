"""What no field of any request may hold, whatever the RPC: a NUL in a string (L6), an enum number that the contract does not have (AP-02).

One plan per message type, made once. Struct and Value are left to `payloads`, which judges every value that is read. Fields whose faults belong
to one item of a batch, or fail an attempt and not the call, are left to the service that knows how to say so: it asks `fault_of` itself.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from ductord.model.errors import Refusal
from ductord.rpc.errors import field_invalid

PAYLOADS: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
SERVICES_OWN: Final = frozenset(
    {
        "ductor.workflow.v1.BatchTriggerItem",  # refuses the item alone
        "ductor.workflow.v1.TaskSuccess",  # fails the attempt as payload_invalid (L6)
        "ductor.workflow.v1.TaskFailure",  # error text is escaped, so that recording a failure cannot fail (L6)
        "ductor.workflow.v1.TaskRelease",
        "ductor.workflow.v1.TaskHeartbeat",  # one bad heartbeat must not cost the others their leases
    }
)
"""Messages that the general check passes over."""

_NUL: Final = "holds a NUL character"


def refuse_faults(request: Message, encoded: bytes) -> None:
    """Raise FIELD_INVALID naming the first bad field of a request. `encoded` is its wire form: without a zero byte there is no NUL to look for."""
    texts = b"\0" in encoded
    if texts or _has_numbers(request.DESCRIPTOR):
        fault = _fault(request, texts, "")
        if fault is not None:
            raise fault


def fault_of(message: Message, *, root: str = "") -> Refusal | None:
    """The first fault of a message that the general check passes over (an item of a batch), naming fields under `root`."""
    return _fault(message, True, root and root + ".")


def _fault(message: Message, texts: bool, prefix: str) -> Refusal | None:
    for look in _plan(message.DESCRIPTOR):
        fault = look(message, texts, prefix)
        if fault is not None:
            return fault
    return None


@cache
def _has_numbers(descriptor: Descriptor) -> bool:
    """Whether the check meets an enum in such messages; most requests have none, and batches have many messages."""
    left, seen = [descriptor], {descriptor.full_name}
    while left:
        for field in left.pop().fields:
            if field.enum_type is not None:
                return True
            within = field.message_type
            if within is not None and within.full_name not in PAYLOADS | SERVICES_OWN | seen:
                seen.add(within.full_name)
                left.append(within)
    return False


_Look = Callable[[Any, bool, str], Refusal | None]


@cache
def _plan(descriptor: Descriptor) -> tuple[_Look, ...]:
    return tuple(look for field in descriptor.fields if (look := _look_at(field)) is not None)


def _look_at(field: FieldDescriptor) -> _Look | None:
    name = field.name
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return _look_at_map(name, field.message_type.fields_by_name["value"].message_type)
    if field.type == FieldDescriptor.TYPE_STRING:
        return _look_at_texts(name) if field.is_repeated else _look_at_text(name)
    if field.enum_type is not None:
        known = frozenset(field.enum_type.values_by_number)
        return _look_at_numbers(name, known) if field.is_repeated else _look_at_number(name, known)
    if field.message_type is not None and field.message_type.full_name not in PAYLOADS | SERVICES_OWN:
        return _look_at_messages(name) if field.is_repeated else _look_at_message(name)
    return None


def _look_at_text(name: str) -> _Look:
    def look(message: Any, texts: bool, prefix: str) -> Refusal | None:
        return field_invalid(prefix + name, _NUL) if texts and "\0" in getattr(message, name) else None

    return look


def _look_at_texts(name: str) -> _Look:
    def look(message: Any, texts: bool, prefix: str) -> Refusal | None:
        if texts:
            for index, text in enumerate(getattr(message, name)):
                if "\0" in text:
                    return field_invalid(f"{prefix}{name}[{index}]", _NUL)
        return None

    return look


def _look_at_map(name: str, value_type: Descriptor | None) -> _Look:
    into = value_type is not None and value_type.full_name not in PAYLOADS | SERVICES_OWN

    def look(message: Any, texts: bool, prefix: str) -> Refusal | None:
        for key, value in getattr(message, name).items():
            if texts and any("\0" in text for text in (key, value) if isinstance(text, str)):
                return field_invalid(prefix + name, _NUL)
            if into and (fault := _fault(value, texts, f"{prefix}{name}[{key}].")) is not None:
                return fault
        return None

    return look


def _look_at_number(name: str, known: frozenset[int]) -> _Look:
    def look(message: Any, texts: bool, prefix: str) -> Refusal | None:
        return (
            None
            if getattr(message, name) in known
            else field_invalid(prefix + name, "is a number that the enum does not have")
        )

    return look


def _look_at_numbers(name: str, known: frozenset[int]) -> _Look:
    def look(message: Any, texts: bool, prefix: str) -> Refusal | None:
        for index, number in enumerate(getattr(message, name)):
            if number not in known:
                return field_invalid(f"{prefix}{name}[{index}]", "is a number that the enum does not have")
        return None

    return look


def _look_at_message(name: str) -> _Look:
    def look(message: Any, texts: bool, prefix: str) -> Refusal | None:
        return _fault(getattr(message, name), texts, f"{prefix}{name}.") if message.HasField(name) else None

    return look


def _look_at_messages(name: str) -> _Look:
    def look(message: Any, texts: bool, prefix: str) -> Refusal | None:
        for index, item in enumerate(getattr(message, name)):
            fault = _fault(item, texts, f"{prefix}{name}[{index}].")
            if fault is not None:
                return fault
        return None

    return look
