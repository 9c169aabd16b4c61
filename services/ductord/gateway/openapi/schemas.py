"""JSON Schema of the contract's messages and enums in the REST dialect: what the door reads, what it writes.

A message is written with every field that is always there as required, so that a client may rely on it, and read with none. One that is both has two schemas:
`WorkflowStep` as it is answered, `WorkflowStepInput` as it is asked. What is asked is closed, as the door is strict; what is answered is open, as releases add
fields.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, MethodDescriptor

from ductord.gateway.openapi.comments import Comments
from ductord.rpc.vocabulary import MASK, STRUCT, TIME, VALUE, Dialect, EnumWords, payload_of
from ductord.rpc.writing import Writer

Schema = dict[str, Any]

FORMAT_FIELD: Final = "payload_format"
_INTEGERS: Final[dict[int, Schema]] = {
    FieldDescriptor.CPPTYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.CPPTYPE_INT64: {"type": "integer", "format": "int64"},
    FieldDescriptor.CPPTYPE_UINT32: {"type": "integer", "format": "int64", "minimum": 0},
    FieldDescriptor.CPPTYPE_UINT64: {"type": "integer", "minimum": 0},
}
_PLAIN: Final[dict[int, Schema]] = {
    **_INTEGERS,
    FieldDescriptor.CPPTYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.CPPTYPE_DOUBLE: {"type": "number", "format": "double"},
    FieldDescriptor.CPPTYPE_STRING: {"type": "string"},
}
_FREE: Final[dict[str, Schema]] = {
    TIME: {"type": "string", "format": "date-time"},
    MASK: {"type": "string"},
    STRUCT: {"type": "object"},
    VALUE: {},
}
_INPUT: Final = "Input"


class Schemas:
    """The schemas of everything that the given RPCs ask and answer; `components` fills as they are asked for."""

    def __init__(self, rpcs: Iterable[MethodDescriptor], comments: Comments) -> None:
        self.components: dict[str, Schema] = {}
        self._comments = comments
        self._spliced = Writer(Dialect.REST)
        self._twinned = Writer(Dialect.REST, spliced=False)
        rpcs = list(rpcs)
        self._answered = {m.full_name for rpc in rpcs for m in _reached(rpc.output_type)}
        self._twins = {
            m.full_name
            for rpc in rpcs
            if FORMAT_FIELD in rpc.input_type.fields_by_name
            for m in _reached(rpc.output_type)
        }
        """Messages that can be answered with the twins of their payloads, since the caller may ask for these by name."""

    def answer(self, message: Descriptor) -> Schema:
        """A reference to the schema of a message as it is answered."""
        name = message.name
        if name not in self.components:
            self.components[name] = {}
            self.components[name] = self._answer(message)
        return {"$ref": f"#/components/schemas/{name}"}

    def ask(self, message: Descriptor, without: Iterable[str] = ()) -> Schema:
        """The same as it is asked; `without`: fields that the path gives."""
        name = f"{message.name}{_INPUT}" if message.full_name in self._answered else message.name
        if name not in self.components:
            self.components[name] = {}
            left_out = set(without)
            properties = {f.name: self.field(f) for f in message.fields if f.name not in left_out}
            self.components[name] = self._object(message, properties) | {"additionalProperties": False}
        return {"$ref": f"#/components/schemas/{name}"}

    def field(self, field: FieldDescriptor, *, asked: bool = True, null: bool = False) -> Schema:
        """One field with its comment. `null`: it is null where it is absent."""
        message = field.message_type
        if message is not None and message.GetOptions().map_entry:
            value = self._single(message.fields_by_name["value"], asked=asked)
            schema: Schema = {"type": "object", "additionalProperties": value}
        else:
            schema = self._single(field, asked=asked)
            if field.is_repeated:
                schema = {"type": "array", "items": schema}
        if null:
            schema = _or_null(schema)
        return schema | {"description": self._comments.of(field.full_name)}

    def _answer(self, message: Descriptor) -> Schema:
        twins = message.full_name in self._twins
        always = list(self._spliced.of(message).zeros)
        if twins:
            always = [name for name in always if name in self._twinned.of(message).zeros]
        properties = {}
        for field in message.fields:
            if payload_of(field) is None or twins:
                # What is absent is null, but in a choice of several and where absence has its own meaning.
                null = field.message_type is not None and not field.is_repeated and field.containing_oneof is None
                properties[field.name] = self.field(field, asked=False, null=null)
        return self._object(message, properties) | ({"required": always} if always else {})

    def _object(self, message: Descriptor, properties: dict[str, Schema]) -> Schema:
        return {"type": "object", "description": self._comments.of(message.full_name), "properties": properties}

    def _single(self, field: FieldDescriptor, *, asked: bool) -> Schema:
        message = field.message_type
        if message is not None:
            if message.full_name in _FREE:
                return dict(_FREE[message.full_name])
            return self.ask(message) if asked else self.answer(message)
        if field.enum_type is not None:
            return self._enum(field.enum_type)
        return dict(_PLAIN[field.cpp_type])

    def _enum(self, enum: EnumDescriptor) -> Schema:
        words = EnumWords(enum, Dialect.REST).short
        lines = [self._comments.of(enum.full_name), ""]
        lines += [f"- `{words[v.number]}`: {self._comments.of(f'{enum.full_name}.{v.name}')}" for v in enum.values]
        self.components[enum.name] = {"type": "string", "enum": list(words.values()), "description": "\n".join(lines)}
        return {"$ref": f"#/components/schemas/{enum.name}"}


def _or_null(schema: Schema) -> Schema:
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    return schema | {"type": [schema["type"], "null"]} if "type" in schema else schema


def _reached(message: Descriptor) -> Iterator[Descriptor]:
    """The message and every message in it, once each."""
    seen = {message.full_name}
    todo = [message]
    while todo:
        at = todo.pop()
        yield at
        for field in at.fields:
            below = field.message_type
            if below is not None and below.full_name not in seen and below.full_name not in _FREE:
                seen.add(below.full_name)
                todo.append(below)
