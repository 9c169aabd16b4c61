"""The outside world of a chaos run: an HTTP server in the test's own process that writes down every Idempotency-Key it is shown, and never forgets.

Paths say how it answers: `/ok`, `/flaky` (503 to the first call of some keys), `/fail` (400). It is what the books are held against.
"""

import asyncio
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import uvicorn

R = TypeVar("R", bound="Recorder")


class Recorder:
    """`calls`: how often each key was shown. `url`: where it listens."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.url = ""

    async def app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """The ASGI application."""
        if scope["type"] != "http":
            return
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        key = next((value.decode() for name, value in scope["headers"] if name == b"idempotency-key"), "")
        self.calls[key] += 1
        await asyncio.sleep(
            zlib.crc32(key.encode()) % 200 / 1000
        )  # its work takes a while: something is always under way when a process dies
        status, answer = self.answer(scope["path"], key, body)
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"content-type", b"application/json")]}
        )
        await send({"type": "http.response.body", "body": answer})

    def answer(self, path: str, key: str, body: bytes) -> tuple[int, bytes]:
        """Status and body of the answer to one call."""
        status = 200
        if path == "/fail":
            status = 400
        elif path == "/flaky" and zlib.crc32(key.encode()) % 3 == 0:
            status = 503
        return status, b'{"seen":true}'


@asynccontextmanager
async def recording(recorder: R) -> AsyncIterator[R]:
    """This recorder, listening on a free loopback port."""
    config = uvicorn.Config(
        recorder.app, host="127.0.0.1", port=0, log_level="error", lifespan="off", interface="asgi3", access_log=False
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            if task.done():
                task.result()
            await asyncio.sleep(0.01)
        recorder.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        yield recorder
    finally:
        server.should_exit = True
        await task
