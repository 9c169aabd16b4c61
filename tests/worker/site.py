"""A web site for `http:request` to call: a server in the test's own process that writes down what it was asked and answers as its path says."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn


class Site:
    """`requests`: what came, in order."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.port = 0
        self.hold = asyncio.Event()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """The ASGI application."""
        body = b""
        while (message := await receive()).get("more_body") or message.get("body"):
            body += message["body"]
            if not message.get("more_body"):
                break
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        path = scope["path"]
        self.requests.append(
            {
                "method": scope["method"],
                "path": path,
                "query": scope["query_string"].decode(),
                "headers": headers,
                "body": body.decode(),
            }
        )
        await self._answer(path, send)

    async def _answer(self, path: str, send: Any) -> None:
        first, _, rest = path[1:].partition("/")
        if first == "status":
            status, _, retry = rest.partition("/")
            await _sent(send, int(status), [("retry-after", retry)] if retry else [], b"it says no")
        elif first == "to":
            status, _, location = rest.partition("/")
            await _sent(send, int(status), [("location", location)], b"")
        elif first == "round":
            await _sent(send, 302, [("location", "/round")], b"")
        elif first == "text":
            await _sent(send, 200, [("content-type", "text/plain; charset=iso-8859-1")], "é".encode("iso-8859-1"))
        elif first == "bytes":
            await _sent(send, 200, [("content-type", "application/octet-stream")], b"\xff\xfe\x00")
        elif first == "large":
            await _sent(send, 200, [], b"x" * 3_000_000)
        elif first == "nan":
            await _sent(send, 200, [("content-type", "application/json")], b'{"x":NaN}')
        elif first == "hold":
            await self.hold.wait()
            await _sent(send, 204, [], b"")
        else:
            text = json.dumps({"id": 9007199254740993})
            await _sent(send, 200, [("content-type", "application/json; charset=utf-8")], text.encode())


async def _sent(send: Any, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
    encoded = [(name.encode(), value.encode()) for name, value in headers]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving() -> AsyncIterator[Site]:
    """A site on a free loopback port."""
    site = Site()
    config = uvicorn.Config(
        site.app, host="127.0.0.1", port=0, log_level="error", lifespan="off", access_log=False, interface="asgi3"
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:  # noqa: ASYNC110  # the server has no event
            await asyncio.sleep(0.01)
        site.port = server.servers[0].sockets[0].getsockname()[1]
        yield site
    finally:
        site.hold.set()
        server.should_exit = True
        await task
