"""The comments of proto/, by full name. They are in no descriptor of a running process, only in an image that `buf build` makes."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from google.protobuf import descriptor_pb2

_MEMBERS: Final = {
    "FileDescriptorProto": {4: "message_type", 5: "enum_type", 6: "service"},
    "DescriptorProto": {2: "field", 3: "nested_type", 4: "enum_type"},
    "EnumDescriptorProto": {2: "value"},
    "ServiceDescriptorProto": {2: "method"},
}
"""Field numbers of what can have a comment, by the message that it stands in (descriptor.proto)."""


class Comments:
    """What an image (a serialized FileDescriptorSet with its source info) says of each thing."""

    def __init__(self, image: bytes) -> None:
        self._texts: dict[str, str] = {}
        for file in descriptor_pb2.FileDescriptorSet.FromString(image).file:
            self._texts.update(_of(file))

    def of(self, full_name: str) -> str:
        """The comment in one line per paragraph; a value of an enum is named `package.Enum.VALUE`. Raises KeyError where there is none."""
        return self._texts[full_name]


def _of(file: descriptor_pb2.FileDescriptorProto) -> Iterator[tuple[str, str]]:
    for location in file.source_code_info.location:
        if location.leading_comments and (name := _name(file, location.path)):
            paragraphs = location.leading_comments.strip().split("\n\n")
            yield name, "\n\n".join(" ".join(line.strip() for line in each.splitlines()) for each in paragraphs)


def _name(file: descriptor_pb2.FileDescriptorProto, path: Sequence[int]) -> str:
    """The full name of what a path of numbers leads to; empty for what has none."""
    at: Any = file
    names = [file.package]
    for number, index in zip(path[::2], path[1::2], strict=False):
        member = _MEMBERS.get(type(at).__name__, {}).get(number)
        if member is None:
            return ""
        at = getattr(at, member)[index]
        names.append(at.name)
    return ".".join(names) if len(path) % 2 == 0 and len(names) > 1 else ""
