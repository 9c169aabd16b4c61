"""Message to JSON text: a plan per message type, compiled once from its descriptor. Payload twins are spliced in as they stand, so that no digit is lost (L5).

REST writes the zero value of what has no presence (`0`, `""`, `[]`, an enum's `unspecified`), null for an absent message or payload, and leaves out an absent
optional scalar. PROTO is canonical proto JSON: what is unset or zero is left out. It trusts its messages: they come from our own services.
"""

from collections.abc import Callable
from typing import Any, Final, cast

import orjson
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from ductord.rpc.vocabulary import MASK, STRUCT, TIME, VALUE, Dialect, EnumWords, payload_of, write_mask, write_time

Write = Callable[[Any], Any]

_LONG: Final = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)
_EXACT: Final = float(1 << 53)


class MessageWriter:
    """Writes one message type. Made by `Writer.of`."""

    __slots__ = ("fields", "order", "zeros")

    def __init__(self) -> None:
        self.fields: dict[int, tuple[str, Write | None]] = {}
        """Field number → (key, conversion or None where the value is written as it is)."""
        self.zeros: dict[str, Any] = {}
        """What an empty message is written as."""
        self.order: list[str] = []
        """Every key, in the order of the contract."""

    def tree(self, message: Message) -> dict[str, Any]:
        """What orjson writes for the message."""
        out = self.zeros.copy()
        fields = self.fields
        for descriptor, value in message.ListFields():
            key, convert = fields[descriptor.number]
            out[key] = value if convert is None else convert(value)
        if len(out) == len(self.zeros) or not self.zeros:
            return out
        return {key: out[key] for key in self.order if key in out}


class Writer:
    """All message types in one dialect. `spliced`: twins stand as JSON under the name of their payload, else as the strings that they are.

    Raises TypeError, at start, for a field of a kind that it was not taught.
    """

    def __init__(self, dialect: Dialect, *, spliced: bool = True) -> None:
        self._dialect = dialect
        self._spliced = spliced
        self._messages: dict[str, MessageWriter] = {}

    def text(self, message: Message) -> bytes:
        """The JSON text of a message."""
        return orjson.dumps(self.of(cast(Descriptor, message.DESCRIPTOR)).tree(message))

    def of(self, descriptor: Descriptor) -> MessageWriter:
        """The writer of a message type."""
        known = self._messages.get(descriptor.full_name)
        if known is not None:
            return known
        writer = self._messages[descriptor.full_name] = MessageWriter()
        for field in descriptor.fields:
            self._add(writer, field)
        return writer

    def _add(self, writer: MessageWriter, field: FieldDescriptor) -> None:
        key = self._key(field)
        payload = payload_of(field)
        if payload is not None and self._spliced:
            writer.fields[field.number] = self._key(payload), orjson.Fragment
            return
        convert, zero = self._kind(field)
        writer.fields[field.number] = key, convert
        writer.order.append(key)
        if self._dialect is Dialect.REST and self._always(field):
            writer.zeros[key] = zero

    def _always(self, field: FieldDescriptor) -> bool:
        """Whether REST writes the field even when it is not set."""
        if field.message_type is None or field.is_repeated:
            return not field.has_presence
        payload = field.message_type.full_name in (STRUCT, VALUE)
        return field.containing_oneof is None and (self._spliced or not payload)

    def _key(self, field: FieldDescriptor) -> str:
        return field.name if self._dialect is Dialect.REST else field.json_name

    def _kind(self, field: FieldDescriptor) -> tuple[Write | None, Any]:
        """(conversion, zero value) of a field."""
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            convert, _ = self._single(message.fields_by_name["value"])
            return (dict if convert is None else _mapped(convert)), {}
        convert, zero = self._single(field)
        if field.is_repeated:
            return (list if convert is None else _listed(convert)), []
        return convert, zero

    def _single(self, field: FieldDescriptor) -> tuple[Write | None, Any]:
        message = field.message_type
        if message is not None:
            if message.full_name == TIME:
                return (write_time if self._dialect is Dialect.REST else _canonical_time), None
            if message.full_name == MASK:
                return (lambda mask: write_mask(mask, self._dialect)), None
            if message.full_name in (STRUCT, VALUE):
                return (_struct if message.full_name == STRUCT else _value), None
            return self.of(message).tree, None
        if field.enum_type is not None:
            words = EnumWords(field.enum_type, self._dialect)
            return words.write, words.write(0)
        if field.type == FieldDescriptor.TYPE_BYTES:
            raise TypeError(f"{field.full_name}: bytes are not spoken here yet")
        if field.cpp_type in _LONG and self._dialect is Dialect.PROTO:
            return str, None
        return None, field.default_value


def _listed(convert: Write) -> Write:
    return lambda values: [convert(value) for value in values]


def _mapped(convert: Write) -> Write:
    return lambda members: {key: convert(value) for key, value in members.items()}


def _canonical_time(time: Any) -> str:
    return str(time.ToJsonString())


def _struct(struct: Any) -> dict[str, Any]:
    return {key: _value(value) for key, value in struct.fields.items()}


def _value(value: Any) -> Any:
    match value.WhichOneof("kind"):
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() and abs(number) < _EXACT else number
        case "struct_value":
            return _struct(value.struct_value)
        case "list_value":
            return [_value(item) for item in value.list_value.values]
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case _:
            return None
