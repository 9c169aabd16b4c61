"""The operations: one per path of the contract and HTTP method, with its parameters, body, answer, errors and the scope that a key must have."""

from collections.abc import Sequence
from typing import Any, Final

from google.protobuf.descriptor import MethodDescriptor

from ductord.gateway.openapi import failures
from ductord.gateway.openapi.comments import Comments
from ductord.gateway.openapi.schemas import Schema, Schemas
from ductord.gateway.reading import Reader
from ductord.gateway.routing import Route
from ductord.rpc.permissions import PERMISSIONS
from ductord.rpc.vocabulary import Dialect

PARAMETERS: Final = {
    "Tenant": ("X-Tenant-Id", {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"},
               "Whose rows are meant. With authentication off it must be given; with a key it may be left out, and must agree with the key's."),
    "RequestId": ("X-Request-Id", {"type": "string"}, "The id of the call in logs and answers; the server makes one where none is given."),
    "Timeout": ("X-Request-Timeout", {"type": "number"}, "The caller's deadline in seconds from now."),
    "LastEventId": ("Last-Event-ID", {"type": "string"}, "The id of the last event that was read: the stream goes on behind it. Browsers send it themselves."),
}  # fmt: skip
HEADERS: Final = {
    "RequestId": {"description": "The id of the call, as in the server's logs.", "schema": {"type": "string"}},
    "RetryAfter": {"description": "Seconds to wait.", "schema": {"type": "integer"}},
    "Authenticate": {"description": "`Bearer`.", "schema": {"type": "string"}},
}
_EVERYWHERE: Final = ("Tenant", "RequestId", "Timeout")
_STREAM: Final = (
    "Server-sent events. The `data` of each is a `{}` as JSON, its `id` goes into `Last-Event-ID` to go on there. An event named `error` is the last one, its "
    "`data` an `Error`. Lines that begin with a colon keep the connection alive."
)


class Paths:
    """Makes the `paths` of the document."""

    def __init__(self, schemas: Schemas, comments: Comments) -> None:
        self._schemas = schemas
        self._comments = comments
        self._reader = Reader(Dialect.REST)

    def of(self, routes: Sequence[Route]) -> dict[str, Any]:
        """All operations by path, in the order of the contract."""
        found: dict[str, Any] = {}
        named: set[str] = set()
        for route in routes:
            item = found.setdefault(route.template, {"parameters": [_parameter(name) for name in _EVERYWHERE]})
            operation = self._operation(route)
            if operation["operationId"] in named:
                raise TypeError(f"{route.rpc.full_name}: a second path of an RPC, or a second RPC of that name")
            named.add(operation["operationId"])
            item[route.http_method.lower()] = operation
        return found

    def _operation(self, route: Route) -> Schema:
        rpc = route.rpc
        service = rpc.containing_service
        assert service is not None
        said = self._comments.of(f"{service.full_name}.{rpc.name}")
        operation: Schema = {
            "operationId": rpc.name,
            "tags": [service.name],
            "summary": _summary(rpc.name, said),
            "description": said,
            "security": [{"key": [_scope(rpc)]}],
            "parameters": self._parameters(route),
        }
        if route.takes_body:
            schema = self._schemas.ask(rpc.input_type, route.variables)
            operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
        return operation | {"responses": {"200": self._answer(rpc), **failures.answers(rpc)}}

    def _parameters(self, route: Route) -> list[Schema]:
        fields = route.rpc.input_type.fields_by_name
        found: list[Schema] = [
            {"name": name, "in": "path", "required": True} | _told(self._schemas.field(fields[name]))
            for name in route.variables
        ]
        if not route.takes_body:
            readers = self._reader.of(route.rpc.input_type).fields
            found += [
                {"name": name, "in": "query"} | _told(self._schemas.field(field))
                for name, field in fields.items()
                if name not in route.variables and readers[name].text is not None
            ]
        return found + ([_parameter("LastEventId")] if route.rpc.server_streaming else [])

    def _answer(self, rpc: MethodDescriptor) -> Schema:
        schema = self._schemas.answer(rpc.output_type)
        headers = {"X-Request-Id": {"$ref": "#/components/headers/RequestId"}}
        said = self._comments.of(rpc.output_type.full_name)
        if rpc.server_streaming:
            stream = {"type": "string", "contentMediaType": "text/event-stream"}
            content = {"text/event-stream": {"schema": stream, "x-event-data": schema}}
            return {"description": _STREAM.format(rpc.output_type.name), "headers": headers, "content": content}
        return {"description": said, "headers": headers, "content": {"application/json": {"schema": schema}}}


def parameters() -> dict[str, Schema]:
    """The components that every operation refers to."""
    return {
        key: {"name": name, "in": "header", "description": text, "schema": schema}
        for key, (name, schema, text) in PARAMETERS.items()
    }


def _scope(rpc: MethodDescriptor) -> str:
    service = rpc.containing_service
    name = f"{service.full_name if service else ''}/{rpc.name}"
    if name not in PERMISSIONS:
        raise TypeError(f"{name} has no scope in ductord.rpc.permissions")
    return PERMISSIONS[name]


def _summary(name: str, said: str) -> str:
    """The first sentence, which begins with the RPC's name in the protos."""
    first = said.removeprefix(f"{name} ").partition(". ")[0].removesuffix(".")
    return first[:1].upper() + first[1:]


def _parameter(name: str) -> Schema:
    return {"$ref": f"#/components/parameters/{name}"}


def _told(schema: Schema) -> Schema:
    """A parameter has its description beside its schema."""
    return {"description": schema.pop("description"), "schema": schema}
