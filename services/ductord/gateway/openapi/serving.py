"""`GET /openapi.json`: the document that was made with the release, to anybody, key or no key. It holds nothing of any tenant, so that caches may keep it."""

import hashlib
from importlib import resources
from typing import Final

import orjson
from google.rpc import status_pb2

import ductor.workflow.v1
from ductord.gateway.bodies import Event, Headers, Send, respond
from ductord.gateway.exchange import Exchange
from ductord.gateway.statuses import as_rest, name_of, reason_of
from ductord.rpc import errors

PATH: Final = "/openapi.json"
_CACHE: Final = b"public, max-age=300"


class Document:
    """The document of this release, read once."""

    def __init__(self) -> None:
        tree = orjson.loads(resources.files(ductor.workflow.v1).joinpath("openapi.json").read_bytes())
        self.version: str = tree["info"]["version"]
        self._text = orjson.dumps(tree)
        self._tag = f'"{hashlib.sha256(self._text).hexdigest()[:32]}"'.encode()

    async def serve(self, scope: Event, send: Send, exchange: Exchange) -> None:
        """Answer one request: the document, or 304 to who has it already."""
        exchange.method = "openapi"
        if scope["method"] not in ("GET", "HEAD"):
            status = _not_allowed(exchange)
            exchange.ended(name_of(status), reason_of(status))
            await respond(send, exchange, *as_rest(status))
            return
        exchange.ended("OK", "")
        asked = exchange.headers.get(b"if-none-match", b"")
        known = {tag.strip().removeprefix(b"W/") for tag in asked.split(b",")}
        headers: Headers = [
            (b"etag", self._tag),
            (b"cache-control", _CACHE),
            (b"x-content-type-options", b"nosniff"),
            (b"x-request-id", exchange.request_id.encode()),
        ]
        if self._tag in known or b"*" in known:
            await send({"type": "http.response.start", "status": 304, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(self._text)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": self._text})


def _not_allowed(exchange: Exchange) -> status_pb2.Status:
    refusal = errors.refused("METHOD_NOT_ALLOWED", "this path is served with GET, HEAD", allow="GET, HEAD")
    return errors.to_status(refusal, request_id=exchange.request_id, budget=errors.LARGEST_BUDGET)
