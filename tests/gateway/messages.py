"""Hypothesis strategies over the contract: messages of any type, and JSON that is nearly one."""

import json
from typing import Any

from google.protobuf import message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from hypothesis import strategies as st

from ductord.rpc.vocabulary import MASK, STRUCT, TIME, TWIN, VALUE, payload_of

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
"""Any JSON, and what Python writes that is none (NaN, lone surrogates)."""
_OBJECT = st.dictionaries(TEXT, st.integers(-(1 << 63), (1 << 63) - 1) | TEXT | st.none(), max_size=3).map(json.dumps)
_PATHS = st.from_regex(r"[a-z]{1,4}(_[a-z]{1,4}){0,2}", fullmatch=True)
"""Names of fields, which is what a mask holds: no other text survives its two spellings."""
_SCALARS: dict[int, Any] = {
    FieldDescriptor.CPPTYPE_STRING: TEXT,
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(allow_nan=False, allow_infinity=False),
}


def messages(descriptor: Descriptor, depth: int = 3) -> st.SearchStrategy[Message]:
    """Messages of a type, their payloads given by twins."""
    kind = message_factory.GetMessageClass(descriptor)
    fields = [field for field in descriptor.fields if _speakable(field, depth)]
    chosen = st.lists(st.sampled_from(fields), max_size=6, unique_by=lambda f: f.name) if fields else st.just([])
    trees = chosen.flatmap(lambda some: st.fixed_dictionaries({f.name: _values(f, depth) for f in some}))
    return trees.map(lambda tree: kind(**tree))


def _speakable(field: FieldDescriptor, depth: int) -> bool:
    message = field.message_type
    return message is None or message.full_name == TIME or (depth > 0 and message.full_name not in (STRUCT, VALUE))


def _values(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    message = field.message_type
    if message is not None and message.GetOptions().map_entry:
        return st.dictionaries(TEXT, TEXT, max_size=2)
    single = _single(field, depth)
    return st.lists(single, max_size=2) if field.is_repeated else single


def _single(field: FieldDescriptor, depth: int) -> st.SearchStrategy[Any]:
    if field.message_type is not None:
        if field.message_type.full_name == TIME:
            return st.fixed_dictionaries(
                {
                    "seconds": st.integers(-62135596800, 253402300799),
                    "nanos": st.integers(0, 999_999).map(lambda n: n * 1000),
                }
            )
        if field.message_type.full_name == MASK:
            return st.lists(_PATHS, max_size=3).map(lambda paths: {"paths": paths})
        return messages(field.message_type, depth - 1)
    if field.enum_type is not None:
        return st.sampled_from(sorted(field.enum_type.values_by_number))
    payload = payload_of(field)
    if payload is not None and payload.message_type is not None:
        return (
            _OBJECT
            if payload.message_type.full_name == STRUCT
            else _OBJECT | st.sampled_from(["null", "5", '"x"', "[1.5]"])
        )
    return _SCALARS[field.cpp_type]  # type: ignore[no-any-return]  # a table of strategies


@st.composite
def nearly(draw: st.DrawFn, descriptor: Descriptor, depth: int = 2) -> Any:
    """A JSON tree with many of the message's names and few of its types."""
    tree: dict[str, Any] = {}
    fields = list(descriptor.fields)
    for field in draw(st.lists(st.sampled_from(fields), max_size=5)) if fields else []:
        name = draw(st.sampled_from([field.name, field.json_name, field.name + TWIN, field.name.upper()]))
        message = field.message_type
        if message is not None and depth and draw(st.booleans()):
            value = draw(nearly(message, depth - 1))
            tree[name] = [value] if field.is_repeated and draw(st.booleans()) else value
        else:
            words = [v.name for v in field.enum_type.values] if field.enum_type is not None else []
            tree[name] = draw(JSON | st.sampled_from([*words, "2026-07-11T11:10:00Z"]))
    return tree


@st.composite
def bodies(draw: st.DrawFn, descriptor: Descriptor) -> bytes:
    """The bytes of a body: nearly right, repeated in part, cut, or no JSON at all."""
    text = json.dumps(draw(nearly(descriptor)), ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
    match draw(st.integers(0, 5)):
        case 0:
            return draw(st.binary(max_size=40))
        case 1:
            start, end = sorted((draw(st.integers(0, len(text))), draw(st.integers(0, len(text)))))
            return text[:start] + text[end:]
        case 2:
            return b"{" + text[1:-1] + b"," + text[1:]
        case _:
            return text
