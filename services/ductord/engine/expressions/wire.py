"""The checked form of a CEL expression as messages: `cel.expr.CheckedExpr`, declared here field by field.

`cel-expr-python` serializes an expression as an `Any` of it but ships no stubs. The field numbers are those of the public cel-spec protos
(`cel/expr/syntax.proto`, `cel/expr/checked.proto`); only what we read is declared, the rest stays as unknown fields. The declarations
live in a pool of their own, so that a process that also loads the real protos sees no conflict.
"""

from typing import Any, Final

from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

_PACKAGE: Final = "cel.expr"
_SCALARS: Final = {
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "double": descriptor_pb2.FieldDescriptorProto.TYPE_DOUBLE,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
}

# message -> fields as «number: name type»; `*` repeated, `|` member of the message's one oneof. Enums travel as int32, maps as entries.
_MESSAGES: Final[dict[str, dict[int, str]]] = {
    "CheckedExpr": {3: "type_map *TypeEntry", 4: "expr Expr", 5: "source_info SourceInfo"},
    "TypeEntry": {1: "key int64", 2: "value Type"},
    "Type": {
        1: "dyn |Part",
        2: "null |int32",
        3: "primitive |int32",
        4: "wrapper |int32",
        5: "well_known |int32",
        6: "list_type |Part",
        7: "map_type |Part",
        8: "function |Part",
        9: "message_type |string",
        10: "type_param |string",
        11: "type |Part",
        12: "error |Part",
        14: "abstract_type |Part",
    },
    "Part": {},
    "SourceInfo": {4: "positions *PositionEntry"},
    "PositionEntry": {1: "key int64", 2: "value int32"},
    "Expr": {
        2: "id int64",
        3: "const_expr |Constant",
        4: "ident_expr |Ident",
        5: "select_expr |Select",
        6: "call_expr |Call",
        7: "list_expr |CreateList",
        8: "struct_expr |CreateStruct",
        9: "comprehension_expr |Comprehension",
    },
    "Constant": {
        1: "null_value |int32",
        2: "bool_value |bool",
        3: "int64_value |int64",
        4: "uint64_value |uint64",
        5: "double_value |double",
        6: "string_value |string",
        7: "bytes_value |bytes",
    },
    "Ident": {1: "name string"},
    "Select": {1: "operand Expr", 2: "field string", 3: "test_only bool"},
    "Call": {1: "target Expr", 2: "function string", 3: "args *Expr"},
    "CreateList": {1: "elements *Expr"},
    "CreateStruct": {1: "message_name string", 2: "entries *Entry"},
    "Entry": {3: "map_key Expr", 4: "value Expr"},
    "Comprehension": {
        1: "iter_var string",
        2: "iter_range Expr",
        3: "accu_var string",
        4: "accu_init Expr",
        5: "loop_condition Expr",
        6: "loop_step Expr",
        7: "result Expr",
        8: "iter_var2 string",
    },
}


def _declared() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="ductor_cel_checked.proto", package=_PACKAGE, syntax="proto3")
    field_proto = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if any("|" in declaration for declaration in fields.values()):
            message.oneof_decl.add(name="type_kind" if name == "Type" else "kind")
        for number, declaration in fields.items():
            field_name, type_name = declaration.split()
            repeated = "*" in type_name
            label = field_proto.LABEL_REPEATED if repeated else field_proto.LABEL_OPTIONAL
            field = message.field.add(name=field_name, number=number, label=label)
            if "|" in type_name:
                field.oneof_index = 0
            type_name = type_name.strip("*|")
            if type_name in _SCALARS:
                field.type = _SCALARS[type_name]
            else:
                field.type = field_proto.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{type_name}"
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _MESSAGES
    }


_classes: Final = _declared()
Expr: Final = _classes["Expr"]


class Nested(Exception):
    """The expression is nested deeper than its checked form can be read."""


def read(serialized: bytes) -> Any:
    """The `CheckedExpr` of `Expression.serialize()`. Raises `Nested`."""
    try:
        return _classes["CheckedExpr"].FromString(any_pb2.Any.FromString(serialized).value)
    except DecodeError:
        raise Nested from None


def write(checked: Any) -> bytes:
    """The form that `Env.deserialize` takes."""
    return any_pb2.Any(
        type_url=f"type.googleapis.com/{_PACKAGE}.CheckedExpr", value=checked.SerializeToString()
    ).SerializeToString()
