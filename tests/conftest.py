"""What all tests share: one embedded Postgres per test process and, per test, a database cloned from a migrated template."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from ductord.db.embedded import EmbeddedPostgres
from ductord.db.ids import new_id
from ductord.db.migrate import migrate


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite`: files that tests compare with are written anew from what the tests see."""
    parser.addoption("--rewrite", action="store_true", help="write scenario transcripts and generated documents anew")


@dataclass(frozen=True, kw_only=True)
class Database:
    """A migrated database of one test. `dsn(role)` logs in as a service's role; `owner` owns the schema and bypasses nothing by accident."""

    server: EmbeddedPostgres
    name: str

    @property
    def owner(self) -> str:
        """Connection string of the superuser."""
        return self.server.dsn(self.name)

    def dsn(self, role: str) -> str:
        """Connection string of the service role `ductor_<role>`."""
        return self.server.dsn(self.name, f"ductor_{role}")


@pytest.fixture(scope="session")
def postgres() -> Iterator[EmbeddedPostgres]:
    """A server for this test process, in a directory of its own; fsync is off (tests that need it start their own)."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-test-"))
    os.chmod(folder, 0o711)
    server = EmbeddedPostgres(
        folder,
        settings={"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_connections": "150"},
    )
    server.start()
    try:
        asyncio.run(migrate(server.dsn("ductor")))
        yield server
    finally:
        server.stop(immediate=True)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def cloned(server: EmbeddedPostgres) -> Iterator[Database]:
    """A fresh migrated database, cloned from the template and dropped afterwards."""
    name = f"t_{new_id().replace('-', '')}"
    server.sql(f'create database "{name}" template ductor strategy file_copy')
    try:
        yield Database(server=server, name=name)
    finally:
        server.sql(f'drop database if exists "{name}" with (force)')


@pytest.fixture
def database(postgres: EmbeddedPostgres) -> Iterator[Database]:
    """A database of this test alone."""
    with cloned(postgres) as fresh:
        yield fresh
