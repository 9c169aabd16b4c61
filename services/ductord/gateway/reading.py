"""JSON text to message: a plan per message type, compiled once from its descriptor, that judges every name and type and builds the message in one call.

Envelopes are read strictly: unknown fields, repeated keys, a field in both spellings, unknown enum values and wrong types are faults that name the
field (AP-01, AP-02). The text of a payload (a Struct or Value with its `…_json` twin) goes into the twin as it stands: no digit is lost (ruling L5),
and the service judges it as it judges every other door's. Nothing is coerced or ignored.
"""

import difflib
import json
from collections.abc import Callable
from typing import Any, Final

import msgspec
from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from ductor.workflow.v1.common_pb2 import PAYLOAD_FORMAT_JSON
from ductord.gateway.faults import (
    NOTHING,
    STEP_TYPE_NOT_SUPPORTED,
    Fault,
    Reading,
    malformed,
    named,
)
from ductord.gateway.scalars import Read, ReadText, scalar, wrong
from ductord.model import jsonvalue
from ductord.model.errors import PayloadInvalid
from ductord.rpc.errors import of_payload
from ductord.rpc.vocabulary import MASK, STRUCT, TIME, TWIN, VALUE, Dialect, EnumWords, twin_of

MAX_HINTS: Final = 10

_object: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_array: Final = msgspec.json.Decoder(list[msgspec.Raw])


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """A request as it was read. `spliced`: the answer's payloads are written in place, since the caller did not ask for twins by name."""

    message: Message
    spliced: bool = True
    twins: dict[str, str] = {}
    """See `Reading.twins`."""


class Field:
    """How one field is read. `target` is the field that is set: a payload sets its twin."""

    __slots__ = ("name", "null_counts", "oneof", "read", "repeated", "rival", "spelling", "target", "text")

    def __init__(self, descriptor: FieldDescriptor, dialect: Dialect) -> None:
        self.name = descriptor.name
        self.spelling = descriptor.name if dialect is Dialect.REST else descriptor.json_name
        self.target = descriptor.name
        self.rival = ""
        """Of a payload, its twin."""
        self.null_counts = False
        """Whether a null is a value and not the absence of one."""
        self.repeated = descriptor.is_repeated
        oneof = descriptor.containing_oneof
        self.oneof = "" if oneof is None or oneof.name == f"_{descriptor.name}" else oneof.name
        self.read: Read
        self.text: ReadText | None = None
        """How a query parameter of this field is read; None if it cannot be one."""


class MessageReader:
    """Reads one message type in one dialect. Made by `Reader.of`."""

    def __init__(self, descriptor: Descriptor) -> None:
        self.descriptor = descriptor
        self.make: Callable[..., Message] = message_factory.GetMessageClass(descriptor)
        self.fields: dict[str, Field] = {}
        """By either spelling."""
        self.step_types: dict[int, str] = {}
        """Of a message that is a step: the names of the step types."""
        self.unbuilt: frozenset[str] = frozenset()
        """Those of them whose object the message does not have yet."""

    def read(self, raw: bytes, prefix: str, reading: Reading) -> dict[str, Any]:
        """The message's fields as keyword arguments. Raises what `msgspec` raises for a text that is no JSON object."""
        members = _object.decode(raw)
        out: dict[str, Any] = {}
        seen: dict[str, str] = {}
        unknown: list[str] = []
        colons = len(members)
        for key, member in members.items():
            text = bytes(member)
            colons += text.count(b":")
            field = self.fields.get(key)
            if field is None:
                unknown.append(key)
                continue
            path = prefix + field.name
            if field.name in seen:
                reading.duplicate(path, f"is given in both spellings, `{seen[field.name]}` and `{key}`")
                continue
            seen[field.name] = key
            if text == b"null" and not field.null_counts:
                continue
            value = field.read(text, path, reading)
            if value is not NOTHING:
                out[field.target] = value
        if raw.count(b":") != colons:  # one member has one colon: a repeated key, or a colon in a key
            report_repeated(raw, prefix, reading)
        if unknown:
            self._report_unknown(unknown, seen, out, prefix, reading)
        self.judge(seen, prefix, reading)
        return out

    def judge(self, seen: dict[str, str], prefix: str, reading: Reading) -> None:
        """Report fields of which at most one may be given; `seen` holds the names given, with the spelling used."""
        oneofs: dict[str, str] = {}
        for name in seen:
            field = self.fields[name]
            if field.rival and field.rival in seen:
                reading.exclusive(prefix + name, prefix + field.rival)
            if field.oneof and (first := oneofs.setdefault(field.oneof, name)) != name:
                reading.exclusive(prefix + name, prefix + first)

    def report_unknown(self, key: str, prefix: str, reading: Reading) -> None:
        """Report a name that the message does not have, with the name that was probably meant."""
        path = named(prefix, key)
        close: list[str] = []
        if len(key) <= 64 and len(reading.faults) < MAX_HINTS:  # looking for it is dear
            close = difflib.get_close_matches(key, sorted({f.spelling for f in self.fields.values()}), n=1)
        hint = f"; did you mean `{close[0]}`?" if close else ""
        message = f"{path} is not a field of {self.descriptor.name}{hint}"
        reading.faults.append(Fault(reason="FIELD_UNKNOWN", field=path, message=message))

    def _report_unknown(
        self, keys: list[str], seen: dict[str, str], out: dict[str, Any], prefix: str, reading: Reading
    ) -> None:
        step_type = self.step_types.get(out.get("type", 0), "")
        if "type" not in seen:  # an update of a step need not repeat it
            step_type = next((key for key in keys if key in self.unbuilt), "")
        if step_type not in self.unbuilt:
            for key in keys:
                self.report_unknown(key, prefix, reading)
            return
        path = f"{prefix}type"
        message = f"{path}: step type `{step_type}` is not supported yet"
        reading.faults.append(
            Fault(reason=STEP_TYPE_NOT_SUPPORTED, field=path, message=message, step_ref=out.get("ref"))
        )


class Reader:
    """All message types in one dialect. Raises TypeError, at start, for a field of a kind that it was not taught."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self._messages: dict[str, MessageReader] = {}

    def of(self, descriptor: Descriptor) -> MessageReader:
        """The reader of a message type."""
        known = self._messages.get(descriptor.full_name)
        if known is not None:
            return known
        reader = self._messages[descriptor.full_name] = MessageReader(descriptor)
        for field in descriptor.fields:
            reader.fields[field.name] = reader.fields[field.json_name] = self._field(field)
            if field.name == "type" and field.enum_type is not None and field.enum_type.name == "StepType":
                reader.step_types = EnumWords(field.enum_type, Dialect.REST).short
                objects = set(reader.step_types.values()) - {"unspecified", "action"}
                reader.unbuilt = frozenset(objects - set(descriptor.fields_by_name))
        return reader

    def members(self, reader: MessageReader, body: bytes, reading: Reading) -> dict[str, Any]:
        """The fields of a body as keyword arguments; an empty body is `{}`. Raises `Refusal` for a body that is no JSON object."""
        if not body.strip(b" \t\r\n"):
            return {}
        try:
            return reader.read(body, "", reading)
        except msgspec.ValidationError:
            raise malformed("the body is not a JSON object") from None
        except (msgspec.DecodeError, RecursionError):
            _explain(body)
            raise malformed("the body is not JSON") from None

    def asked(self, reader: MessageReader, fields: dict[str, Any], reading: Reading) -> Asked:
        """The request of these fields. Answers are always asked for by their twins, which are exact. Raises `Refusal` if there are faults."""
        reading.finish()
        spliced = fields.get("payload_format") != PAYLOAD_FORMAT_JSON
        if "payload_format" in reader.fields:
            fields["payload_format"] = PAYLOAD_FORMAT_JSON
        return Asked(message=reader.make(**fields), spliced=spliced, twins=reading.twins)

    def _field(self, descriptor: FieldDescriptor) -> Field:
        field = Field(descriptor, self.dialect)
        message = descriptor.message_type
        if message is None or message.full_name in (TIME, MASK):
            field.read, field.text = scalar(descriptor, self.dialect)
        elif message.full_name in (STRUCT, VALUE):
            twin = twin_of(descriptor)
            field.target = field.rival = twin.name
            field.null_counts = message.full_name == VALUE
            field.read = _payload(any_value=field.null_counts)
        elif message.GetOptions().map_entry:
            if message.fields_by_name["key"].type != FieldDescriptor.TYPE_STRING:
                raise TypeError(f"{descriptor.full_name}: only maps with string keys are spoken here")
            field.read = _map(self._field(message.fields_by_name["value"]).read)
            return field
        else:
            field.read = _message(self.of(message))
        if descriptor.is_repeated:
            field.read = _list(field.read)
        return field


def _explain(body: bytes) -> None:
    """Raise why a text is no JSON, told by the parse that knows places: NaN, lone surrogates, depth (PL-04), or a line and column."""
    try:
        jsonvalue.parse(body, max_bytes=None)
    except PayloadInvalid as error:
        if error.reason == "not_json" or not error.path:
            raise malformed(f"the body {error.message.removeprefix('the value ')}") from None
        raise of_payload(error) from None


def report_repeated(raw: bytes, prefix: str, reading: Reading) -> None:
    """Report the keys that the outermost object of `raw` gives twice; there may be none."""
    pairs: list[tuple[str, Any]] = []

    def keep(members: list[tuple[str, Any]]) -> None:
        pairs[:] = members  # the outermost object is the last to end

    json.loads(
        raw, object_pairs_hook=keep, parse_int=len, parse_float=len
    )  # a long integer would cost much and mean nothing
    seen: set[str] = set()
    for key, _ in pairs:
        if key in seen:
            reading.duplicate(named(prefix, key))
        seen.add(key)


def _payload(*, any_value: bool) -> Read:
    def read(raw: bytes, path: str, reading: Reading) -> Any:
        if not any_value and raw[:1] != b"{":
            return wrong(raw, path, "an object", reading)
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return reading.invalid(path, "holds text that is not UTF-8")
        reading.twins[path + TWIN] = path
        return text

    return read


def _message(reader: MessageReader) -> Read:
    def read(raw: bytes, path: str, reading: Reading) -> Any:
        if raw[:1] != b"{":
            return wrong(raw, path, "an object", reading)
        try:
            return reader.read(raw, f"{path}.", reading)
        except msgspec.DecodeError:
            return reading.invalid(path, "holds text that is not UTF-8")

    return read


def _list(element: Read) -> Read:
    def read(raw: bytes, path: str, reading: Reading) -> Any:
        if raw[:1] != b"[":
            return wrong(raw, path, "a list", reading)
        values = [element(bytes(item), f"{path}[{index}]", reading) for index, item in enumerate(_array.decode(raw))]
        return NOTHING if NOTHING in values else values

    return read


def _map(element: Read) -> Read:
    def read(raw: bytes, path: str, reading: Reading) -> Any:
        if raw[:1] != b"{":
            return wrong(raw, path, "an object", reading)
        try:
            texts = {key: bytes(member) for key, member in _object.decode(raw).items()}
        except msgspec.DecodeError:
            return reading.invalid(path, "holds text that is not UTF-8")
        if raw.count(b":") != len(texts) + sum(text.count(b":") for text in texts.values()):
            report_repeated(raw, f"{path}.", reading)
        values = {key: element(text, named(f"{path}.", key), reading) for key, text in texts.items()}
        return NOTHING if NOTHING in values.values() else values

    return read
