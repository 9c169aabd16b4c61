"""The document as a whole, and the words at its head."""

from typing import Any, Final

from ductord.gateway.backends import BACKENDS
from ductord.gateway.openapi import failures, paths
from ductord.gateway.openapi.comments import Comments
from ductord.gateway.openapi.schemas import Schemas
from ductord.gateway.routing import Routes

_HEAD: Final = """\
Ductor's contract, `ductor.workflow.v1`, on plain HTTP. The same RPCs are served as gRPC, gRPC-Web and Connect; this document is made from their protos.

**Names** are those of the contract, in snake_case. **Enums** are lower-case words without their prefix; a value that a gateway does not know yet is its number.
Requests may also spell an enum as the contract does (`TIER_BULK`). **Times** are RFC 3339, answered in UTC with microseconds. **Integers** are JSON numbers
throughout. **Payloads** (inputs, outputs, variables) are any JSON, and no digit of them is lost; a field that ends in `_json` is the same payload as text, of
which at most one of the two is given, and which is answered where `payload_format` asks for it.

**Requests** are read strictly: an unknown, repeated or ill-typed field is refused by its name. GET and DELETE take fields as query parameters, the others as a
JSON body, which may be empty. null is as good as absent, but for payloads. **Answers** have every field that is `required`, whatever it holds; releases add
fields, so do not refuse those you do not know. HEAD is served wherever GET is.

**Errors** have one shape (AIP-193). Decide by `reason` in the `ErrorInfo`, or by the HTTP status; never by the message.
"""
_KEY: Final = (
    "An API key: `Authorization: Bearer dk_…`. Each operation names the scope that the key must have. "
    "Servers that run with `DUCTOR_AUTH=off` ask for none."
)


def document(image: bytes, version: str) -> dict[str, Any]:
    """The OpenAPI document. `image`: proto/ with its source info, as `buf build` writes it. Raises KeyError or TypeError for what cannot be told."""
    comments = Comments(image)
    services = [backend.service for backend in BACKENDS]
    routes = Routes(services).all
    schemas = Schemas([route.rpc for route in routes], comments)
    operations = paths.Paths(schemas, comments).of(routes)
    served = {route.rpc.containing_service.full_name for route in routes if route.rpc.containing_service is not None}
    if clash := set(failures.schemas()) & set(schemas.components):
        raise TypeError(f"{', '.join(sorted(clash))}: messages of the contract are named as parts of an error")
    return {
        "openapi": "3.1.0",
        "info": {"title": "Ductor", "version": version, "description": _HEAD},
        "servers": [{"url": "/"}],
        "tags": [{"name": s.name, "description": comments.of(s.full_name)} for s in services if s.full_name in served],
        "paths": operations,
        "components": {
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "description": _KEY}},
            "parameters": paths.parameters(),
            "headers": paths.HEADERS,
            "responses": failures.responses(comments),
            "schemas": dict(sorted((schemas.components | failures.schemas()).items())),
        },
    }
