"""Proto → the one JSON tree of a definition (ruling L1), and back into messages of the same fields.

Driven by the descriptors: a field that the contract gains is carried at once, and none can be forgotten. In the tree, as in a definition file,
enums are their short names, absent fields are absent, a payload is the value itself whichever of the two twins carried it, and a number has one
spelling, so that the same definition has the same hash through every door. It never fills in defaults and never judges what a definition means.
"""

from functools import cache
from typing import Any, Final

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import Message

from ductord.model import jsonvalue
from ductord.model.errors import Refusal
from ductord.model.jsonvalue import JSON
from ductord.rpc.errors import field_invalid, not_supported
from ductord.rpc.hygiene import PAYLOADS
from ductord.rpc.payloads import JSON_FORMAT, fill_payload, payload_of

STRUCT: Final = "google.protobuf.Struct"
CLEAR_FIELDS: Final = "clear_fields"


def tree_of(message: Message, *, root: str = "", without: tuple[str, ...] = ()) -> dict[str, JSON]:
    """The JSON tree of a message of the definition vocabulary; `without` names fields of a request that are not part of it.

    A payload that is null counts as not given. Raises FIELD_INVALID, FIELDS_EXCLUSIVE and `PayloadInvalid`, naming the field under `root`.
    """
    tree: dict[str, JSON] = {}
    for field, value in message.ListFields():
        name = field.name
        if name in without:
            continue
        path = f"{root}.{name}" if root else name
        payload = _payload_name(field)
        if payload is not None:
            if payload not in tree:
                _put_payload(tree, message, payload, root)
        elif _is_map(field):
            tree[name] = dict(sorted(value.items()))
        elif field.message_type is not None:
            tree[name] = (
                [tree_of(item, root=f"{path}[{i}]") for i, item in enumerate(value)]
                if field.is_repeated
                else tree_of(value, root=path)
            )
        elif field.enum_type is not None:
            tree[name] = _short_name(field.enum_type, value, path)
        elif field.is_repeated:
            tree[name] = list(value)
        elif field.type == FieldDescriptor.TYPE_DOUBLE:
            tree[name] = jsonvalue.normalise(value, root=path)
        else:
            tree[name] = value
    return tree


def fill(
    message: Message,
    tree: dict[str, JSON],
    payload_format: int = JSON_FORMAT,
    *,
    root: str = "",
    max_bytes: int | None = None,
) -> None:
    """Put a tree into a message. Payloads go as `payload_format` says; one whose Struct would be more than `max_bytes` goes as its twin.

    Raises FEATURE_NOT_SUPPORTED for a field that the contract does not have yet and FIELD_INVALID for a value that its field cannot hold: a tree
    that came through `tree_of` has neither, a file may.
    """
    fields = message.DESCRIPTOR.fields_by_name
    for name, value in tree.items():
        if value is None:
            continue
        path = f"{root}.{name}" if root else name
        field = fields.get(name)
        if field is None or name == CLEAR_FIELDS:
            raise not_supported(path, f"{path} is not part of the contract yet")
        try:
            _put(message, field, value, payload_format, path, max_bytes)
        except (TypeError, ValueError, AttributeError):
            raise field_invalid(path, "has a value that its field cannot hold") from None


def short_name(enum: EnumDescriptor, number: int) -> str:
    """`STEP_TYPE_ACTION` → `action`; the zero value is the empty text."""
    return _short_names(enum)[number] if number else ""


def number_of(enum: EnumDescriptor, name: str) -> int | None:
    """`action` → the number of `STEP_TYPE_ACTION`, None for a name that the enum does not have."""
    return _numbers(enum).get(name)


def _put_payload(tree: dict[str, JSON], message: Message, name: str, root: str) -> None:
    payload = payload_of(message, name, root=root)
    if payload is None or payload.value is None:
        return
    if _is_struct(message.DESCRIPTOR, name) and not isinstance(payload.value, dict):
        path = f"{root}.{name}_json" if root else f"{name}_json"
        raise field_invalid(path, "is not a JSON object")
    tree[name] = payload.value


def _put(message: Message, field: Any, value: Any, payload_format: int, path: str, max_bytes: int | None) -> None:
    name = field.name
    if field.message_type is not None and field.message_type.full_name in PAYLOADS:
        if field.message_type.full_name == STRUCT and not isinstance(value, dict):
            raise TypeError
        fill_payload(message, name, jsonvalue.dumps(value), payload_format, max_bytes=max_bytes)
    elif _is_map(field):
        getattr(message, name).update(value)
    elif field.message_type is not None and field.is_repeated:
        items = getattr(message, name)
        for i, item in enumerate(value):
            fill(items.add(), item, payload_format, root=f"{path}[{i}]", max_bytes=max_bytes)
    elif field.message_type is not None:
        part = getattr(message, name)
        part.SetInParent()
        fill(part, value, payload_format, root=path, max_bytes=max_bytes)
    elif field.enum_type is not None:
        number = number_of(field.enum_type, value)
        if number is None:
            raise ValueError
        setattr(message, name, number)
    elif field.is_repeated:
        getattr(message, name).extend(value)
    else:
        setattr(message, name, value)


def _payload_name(field: FieldDescriptor) -> str | None:
    """The payload that a field carries, itself or as its twin; None for any other field."""
    if field.message_type is not None:
        return field.name if field.message_type.full_name in PAYLOADS else None
    base = field.name.removesuffix("_json")
    siblings = field.containing_type.fields_by_name if field.containing_type is not None else {}
    return base if base != field.name and base in siblings else None


def _is_struct(descriptor: Any, name: str) -> bool:
    payload = descriptor.fields_by_name[name].message_type
    return payload is not None and payload.full_name == STRUCT


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


def _short_name(enum: EnumDescriptor, number: int, path: str) -> str:
    name = _short_names(enum).get(number)
    if name is None:
        raise field_invalid(path, "is a number that the enum does not have")
    return name


@cache
def _short_names(enum: EnumDescriptor) -> dict[int, str]:
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return {v.number: v.name.removeprefix(prefix).lower() for v in enum.values if v.number}


@cache
def _numbers(enum: EnumDescriptor) -> dict[str, int]:
    return {name: number for number, name in _short_names(enum).items()}


__all__ = ["Refusal", "fill", "number_of", "short_name", "tree_of"]
