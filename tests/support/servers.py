"""Which Postgres the tests run on: the embedded one, one that is already there, or one in a container.

`DUCTOR_TEST_POSTGRES` is empty (embedded), the URL of a superuser on a server that trusts its clients (`postgresql://postgres@127.0.0.1:5432/`), or
`container[:IMAGE]` where Docker is. Tests that start, stop and kill servers always take the embedded one.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit, urlunsplit

import asyncpg

from ductord.db.embedded import EmbeddedPostgres

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "150"}
"""Settings of a server whose data nobody will miss."""


class Server(Protocol):
    """What a test needs of a server."""

    def dsn(self, database: str, user: str = "postgres") -> str:
        """Connection string of a database, as `user`."""

    def sql(self, statement: str) -> str:
        """Run one administrative statement."""


class ServerAt:
    """A server that somebody else runs, by the URL of its superuser."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)

    def dsn(self, database: str, user: str = "postgres") -> str:
        """The URL with another database and user."""
        host = self._parts.netloc.rpartition("@")[2]
        if user == "postgres":
            return urlunsplit(self._parts._replace(path=f"/{database}"))
        return urlunsplit(self._parts._replace(netloc=f"{quote(user)}@{host}", path=f"/{database}"))

    def sql(self, statement: str) -> str:
        """Run it on a connection of its own; fixtures may be inside an event loop."""
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, self._run(statement)).result()

    async def _run(self, statement: str) -> str:
        connection = await asyncpg.connect(self.dsn("postgres"))
        try:
            return str(await connection.execute(statement))
        finally:
            await connection.close()


@contextmanager
def test_server() -> Iterator[Server]:
    """The server of this test process."""
    wanted = os.environ.get("DUCTOR_TEST_POSTGRES", "")
    if wanted.startswith("container"):
        from testcontainers.postgres import PostgresContainer

        image = wanted.partition(":")[2] or "postgres:17-alpine"
        with PostgresContainer(image, username="postgres", driver=None).with_env(
            "POSTGRES_HOST_AUTH_METHOD", "trust"
        ) as container:
            yield ServerAt(container.get_connection_url())
    elif wanted:
        yield ServerAt(wanted)
    else:
        folder = Path(tempfile.mkdtemp(prefix="ductor-test-"))
        folder.chmod(0o711)
        server = EmbeddedPostgres(folder, settings=FAST)
        server.start()
        try:
            yield server
        finally:
            server.stop(immediate=True)
            shutil.rmtree(folder, ignore_errors=True)
