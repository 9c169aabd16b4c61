"""Callers of the HTTP port that never come to an end (PL-06)."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from ductord.rpc.addresses import Address
from ductord.rpc.operations import HEAD_MAX_BYTES, HttpServer


async def _app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    server = HttpServer(_app, Address(host="127.0.0.1", port=0))
    yield (await server.start()).port
    await server.stop(1)


async def _answer(port: int, *parts: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(60):
            for part in parts:
                writer.write(part)
                await writer.drain()
            return await reader.read(64)
    finally:
        writer.close()


async def test_pl_06_a_head_without_end_is_cut_off(port: int) -> None:
    """The server kept 48 MB of one header in memory, and answered 200."""
    head = b"GET / HTTP/1.1\r\nhost: x\r\nx-a: "
    with_end = [head, *[b"a" * 60_000] * 40, b"\r\n\r\n"]
    try:
        answer = await _answer(port, *with_end)
    except ConnectionError:  # cut while we still wrote
        return
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_pl_06_long_heads_and_long_bodies_pass(port: int) -> None:
    """A head below the limit in as many pieces as the caller likes, and a body that is no head."""
    long = [b"GET / HTTP/1.1\r\nhost: x\r\nx-a: ", *[b"a" * 1_000] * (HEAD_MAX_BYTES // 1_000 - 2), b"\r\n\r\n"]
    assert (await _answer(port, *long)).startswith(b"HTTP/1.1 200 ")
    body = [b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 300000\r\n\r\n", *[b"a" * 50_000] * 6]
    assert (await _answer(port, *body)).startswith(b"HTTP/1.1 200 ")
