"""A definition's JSON tree as the contract's message: the way from a file to a request.

Payloads travel in their exact `_json` twins, enum words are written short in files (`success`) and in full on the wire. What the message cannot say is an
error here, though the language refuses it first.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from google.protobuf.message import Message

from ductord.cli.ending import CommandFailed
from ductord.cli.words import TWIN, prefix

M = TypeVar("M", bound=Message)


def filled(message: M, tree: Mapping[str, Any], path: str = "") -> M:
    """`message` with the fields of `tree`; a null counts as not written. Raises `CommandFailed` naming the field that does not fit."""
    fields = message.DESCRIPTOR.fields_by_name
    for key, value in tree.items():
        if value is None:
            continue
        where = f"{path}.{key}" if path else key
        field = fields.get(key)
        if field is None:
            raise CommandFailed(f"{where}: this cannot be sent to a server of this release")
        if key + TWIN in fields:
            setattr(message, key + TWIN, json.dumps(value, ensure_ascii=False))
        elif field.is_repeated and field.message_type is not None:
            for number, item in enumerate(value):
                filled(getattr(message, key).add(), item, f"{where}[{number}]")
        elif field.is_repeated:
            getattr(message, key).extend(value)
        elif field.message_type is not None:
            child = getattr(message, key)
            child.SetInParent()
            filled(child, value, where)
        else:
            setattr(message, key, _number(field.enum_type, value, where) if field.enum_type is not None else value)
    return message


def _number(descriptor: Any, value: str, where: str) -> int:
    found = descriptor.values_by_name.get(prefix(descriptor) + value.upper())
    if found is None:
        raise CommandFailed(f"{where}: {value!r} is not one of the contract's words")
    return int(found.number)
