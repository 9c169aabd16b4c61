"""A Unix socket in front of Postgres that can lose what passes through it: answers to a COMMIT, requests, or everything from now on.

It speaks no SQL: it reads frames of the wire protocol, knows a connection by its application name and breaks it at the one moment that a test of unknown
outcomes is about (PG-01), or goes silent without closing (PG-02). It runs in a thread with an event loop of its own, for as long as its stack.
"""

import asyncio
import random
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvloop

from ductord.db.embedded import EmbeddedPostgres

SOCKET = ".s.PGSQL.5432"

IN_A_ROW = 3


class Wire:
    """`cut`: application name → share of its commits that are lost in the middle, at most `IN_A_ROW` of one application in a row: more than a service
    repeats is another story. `silent`: applications whose connections swallow everything."""

    def __init__(self, server: EmbeddedPostgres, folder: Path) -> None:
        self._server = server
        self._folder = folder
        self._links: set[_Link] = set()
        self.chance = random.Random(7)
        self.cut: dict[str, float] = {}
        self.silent: frozenset[str] = frozenset()
        self.row: Counter[str] = Counter()
        self.cuts: Counter[tuple[str, str]] = Counter()
        """(application, what was lost: `answer` or `request`) → how often."""
        self.opened: Counter[str] = Counter()
        """Connections per application so far."""

    def dsn(self, database: str = "ductor") -> str:
        """The connection string of the owner, through the wire."""
        return f"postgresql://postgres@/{database}?host={self._folder}"

    def loses(self, name: str) -> bool:
        """Whether the commit of this application that is just passing is lost."""
        lost = self.row[name] < IN_A_ROW and self.chance.random() < self.cut.get(name, 0)
        self.row[name] = self.row[name] + 1 if lost else 0
        return lost

    def calm(self) -> None:
        """Pass everything again. What was swallowed stays swallowed: connections that were silent are closed."""
        self.cut = {}
        self.silent = frozenset()
        for link in list(self._links):
            if link.swallowing:
                link.loop.call_soon_threadsafe(link.abort)

    @contextmanager
    def running(self) -> Iterator["Wire"]:
        """Serve in a thread."""
        loop = uvloop.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="wire", daemon=True)
        thread.start()
        server = asyncio.run_coroutine_threadsafe(
            asyncio.start_unix_server(self._serve, self._folder / SOCKET), loop
        ).result(10)
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._end(server), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()

    async def _end(self, server: asyncio.Server) -> None:
        server.close()
        for link in list(self._links):
            link.abort()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = _Link(self, reader, writer)
        self._links.add(link)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await link.run(f"{self._server.socket_dir}/{SOCKET}")
        finally:
            self._links.discard(link)
            link.abort()


class _Link:
    """One connection and the one behind it."""

    def __init__(self, wire: Wire, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.loop = asyncio.get_running_loop()
        self._wire = wire
        self._reader, self._writer = reader, writer
        self._behind: asyncio.StreamWriter | None = None
        self._name = ""
        self._status = b""
        self._catalog: set[bytes] = set()
        """Statements by which the client only asks for the types of others."""
        self._bound = b""
        self._losing = False
        """The answer that is on its way goes nowhere, and the connection ends with it."""
        self._quiet = asyncio.Event()

    @property
    def swallowing(self) -> bool:
        """Whether it went silent."""
        return self._quiet.is_set()

    def abort(self) -> None:
        """Break both sides at once, saying nothing."""
        self._writer.transport.abort()
        if self._behind is not None:
            self._behind.transport.abort()

    async def run(self, path: str) -> None:
        length = await self._reader.readexactly(4)
        hello = await self._reader.readexactly(int.from_bytes(length) - 4)
        words = hello[4:].split(b"\0")
        named = dict(zip(words[::2], words[1::2], strict=False))
        self._name = named.get(b"application_name", b"").decode()
        self._wire.opened[self._name] += 1
        if not await self._audible():
            return
        reader, self._behind = await asyncio.open_unix_connection(path)
        self._behind.write(length + hello)
        pumps = [asyncio.ensure_future(self._requests(self._behind)), asyncio.ensure_future(self._answers(reader))]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            # An end is passed on after what was said before it: the server's last words too.
            await self._writer.drain()
            self._writer.close()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _audible(self) -> bool:
        """False after a silence: the connection stays open and nothing passes, until it is broken."""
        if self._name in self._wire.silent:
            self._quiet.set()
            while await self._reader.read(65536):
                pass
            return False
        return True

    async def _requests(self, behind: asyncio.StreamWriter) -> None:
        while True:
            kind, frame = await _frame(self._reader)
            if not await self._audible():
                return
            if self._commits(kind, frame) and self._wire.loses(self._name):
                lost = (
                    "request"
                    if self._wire.cuts[self._name, "request"] < self._wire.cuts[self._name, "answer"]
                    else "answer"
                )
                self._wire.cuts[self._name, lost] += 1
                if lost == "request":
                    self.abort()
                    return
                self._losing = True
            behind.write(frame)
            await behind.drain()

    def _commits(self, kind: bytes, frame: bytes) -> bool:
        """Whether the frame ends a transaction: COMMIT itself, or a statement of a service that is its own transaction."""
        match kind:
            case b"Q":
                return frame[5:].rstrip(b"\0;").upper().endswith(b"COMMIT")
            case b"P":
                name, query, _ = frame[5:].split(b"\0", 2)
                if b"pg_catalog.pg_type" in query:
                    self._catalog.add(name)
            case b"B":
                _, self._bound, _ = frame[5:].split(b"\0", 2)
            case b"E":
                return self._status == b"I" and self._bound not in self._catalog
        return False

    async def _answers(self, reader: asyncio.StreamReader) -> None:
        while True:
            kind, frame = await _frame(reader)
            if kind == b"Z":
                self._status = frame[5:6]
                if self._losing:
                    self.abort()
                    return
            if self._quiet.is_set() or self._name in self._wire.silent:
                self._quiet.set()
            elif not self._losing:
                self._writer.write(frame)
                await self._writer.drain()


async def _frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(int.from_bytes(head[1:]) - 4)


@contextmanager
def wired(server: EmbeddedPostgres) -> Iterator[Wire]:
    """A wire in front of a server, in a folder of its own."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-wire-"))
    try:
        with Wire(server, folder).running() as wire:
            yield wire
    finally:
        shutil.rmtree(folder, ignore_errors=True)
