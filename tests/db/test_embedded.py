"""The embedded server outlives whoever started it, is adopted by whoever comes next, and is gone after a stop.

A start that is killed at any moment leaves a usable directory.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import asyncpg
import pytest

from ductord.db.embedded import EmbeddedPostgres

START = """
import pathlib, sys
from ductord.db.embedded import EmbeddedPostgres
EmbeddedPostgres(pathlib.Path(sys.argv[1])).start()
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A data directory that an unprivileged server may enter."""
    path = Path(tempfile.mkdtemp(prefix="ductor-embedded-"))
    path.chmod(0o711)
    yield path
    EmbeddedPostgres(path).stop(immediate=True)
    shutil.rmtree(path, ignore_errors=True)


def _starter(folder: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", START, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def _when(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        os.sched_yield()


def _initialised(folder: Path) -> bool:
    return (folder / "postgres/PG_VERSION").exists()


MOMENTS: dict[str, Callable[[Path], bool]] = {
    "in initdb": lambda folder: any(folder.glob("postgres.new.*/PG_VERSION")) or _initialised(folder),  # or just missed
    "initialised": lambda folder: _initialised(folder),
    "server starting": lambda folder: (folder / "postgres/postmaster.pid").exists(),
}


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_start_that_is_killed_can_be_repeated(folder: Path, moment: str) -> None:
    """kill -9 in the middle of a first start: the next start works, stop leaves no server (acceptance 8)."""
    with _starter(folder) as starter:
        _when(lambda: MOMENTS[moment](folder))
        starter.kill()
    server = EmbeddedPostgres(folder)
    server.start()
    connection = await asyncpg.connect(server.dsn())
    assert await connection.fetchval("select current_database()") == "ductor"
    await connection.close()
    server.stop()
    assert server.pid() is None
    # An initdb whose parent was killed works on for a moment, in a folder that is gone: it is no server, and ends by itself.
    _when(lambda: not _processes(folder))


async def test_a_server_that_was_left_running_is_adopted_with_its_data(folder: Path) -> None:
    """The process that started it is killed; the next one finds the server and everything in it, and ends it."""
    with _starter(folder) as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == b"up\n"
        connection = await asyncpg.connect(EmbeddedPostgres(folder).dsn())
        await connection.execute("create table kept as select 1 as x")
        starter.kill()
    server = EmbeddedPostgres(folder)
    before = server.pid()
    server.start()
    assert server.adopted
    assert server.pid() == before
    assert await connection.fetchval("select x from kept") == 1
    connection.terminate()
    server.stop()
    assert not _processes(folder)


def _processes(folder: Path) -> list[str]:
    """Command lines of processes that work in `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and "postgres" in line:
            found.append(line)
    return found
