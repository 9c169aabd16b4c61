"""Every field of every request is looked at, by its descriptor: a new field cannot be forgotten (PL-01, AP-02)."""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

import ductor.workflow.v1 as api
from ductord.model.errors import Refusal
from ductord.rpc.hygiene import PAYLOADS, SERVICES_OWN, fault_of, refuse_faults


def requests() -> list[Descriptor]:
    """The request messages of the contract."""
    modules = [
        f"{api.__name__}.{m.name}" for m in pkgutil.iter_modules(api.__path__) if m.name.endswith("_service_pb2")
    ]
    services = [s for m in modules for s in importlib.import_module(m).DESCRIPTOR.services_by_name.values()]
    return [method.input_type for service in services for method in service.methods]


def places(descriptor: Descriptor, path: tuple[FieldDescriptor, ...] = ()) -> Iterator[tuple[FieldDescriptor, ...]]:
    """The ways to every string and enum field, once around a recursion."""
    for field in descriptor.fields:
        if field.type == FieldDescriptor.TYPE_STRING or field.enum_type is not None:
            yield (*path, field)
        elif (
            field.message_type is not None
            and field.message_type.full_name not in PAYLOADS | SERVICES_OWN
            and not field.message_type.GetOptions().map_entry  # below
            and field not in path
        ):
            yield from places(field.message_type, (*path, field))


PLACES = [(request, way) for request in requests() for way in places(request)]


@pytest.mark.parametrize(
    ("descriptor", "way"), PLACES, ids=[f"{r.name}:{'.'.join(f.name for f in w)}" for r, w in PLACES]
)
def test_a_fault_anywhere_is_named(descriptor: Descriptor, way: tuple[FieldDescriptor, ...]) -> None:
    request: Message = GetMessageClass(descriptor)()
    name, at = "", request
    for field in way[:-1]:
        name += field.name + ("[0]." if field.is_repeated else ".")
        at = getattr(at, field.name).add() if field.is_repeated else getattr(at, field.name)
        if not field.is_repeated:
            at.SetInParent()
    last = way[-1]
    bad = "a\0b" if last.enum_type is None else 9_999
    if last.is_repeated:
        getattr(at, last.name).append(bad)
    else:
        setattr(at, last.name, bad)
    with pytest.raises(Refusal) as refused:
        refuse_faults(request, request.SerializeToString())
    assert refused.value.metadata == {"field": name + last.name + ("[0]" if last.is_repeated else "")}


def test_maps_are_looked_into() -> None:
    """Keys and values of maps, and what stands in a value that is a message."""
    file = FileDescriptorProto(name="m.proto", package="m", syntax="proto3")
    inner = file.message_type.add(name="Inner")
    inner.field.add(name="text", number=1, type=FieldDescriptor.TYPE_STRING, label=1)
    outer = file.message_type.add(name="Outer")
    for number, (name, kind, type_name) in enumerate(
        (("texts", FieldDescriptor.TYPE_STRING, ""), ("inners", FieldDescriptor.TYPE_MESSAGE, ".m.Inner")), 1
    ):
        entry = outer.nested_type.add(name=f"{name.title()}Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, type=FieldDescriptor.TYPE_STRING, label=1)
        entry.field.add(name="value", number=2, type=kind, label=1, type_name=type_name or None)
        outer.field.add(
            name=name, number=number, type=FieldDescriptor.TYPE_MESSAGE, label=3, type_name=f".m.Outer.{entry.name}"
        )
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    cls = GetMessageClass(pool.FindMessageTypeByName("m.Outer"))
    for fields, name in (
        ({"texts": {"a": "\0"}}, "texts"),
        ({"texts": {"\0": "a"}}, "texts"),
        ({"inners": {"k": {"text": "\0"}}}, "inners[k].text"),
    ):
        fault = fault_of(cls(**fields), root="items[2]")
        assert fault is not None
        assert fault.metadata == {"field": f"items[2].{name}"}
    assert fault_of(cls(texts={"a": "b"}, inners={"k": {"text": "x"}})) is None
