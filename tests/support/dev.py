"""`ductor dev` as a process under test, and what it leaves behind."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from ductord.cli.commands import app
from ductord.db.embedded import EmbeddedPostgres
from examples.demo.engine import Engine

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE_NAMES = sorted(path.stem for path in EXAMPLES.glob("*.yaml"))
"""The families that they define, in the order of their files."""


@contextmanager
def dev_folder() -> Iterator[Path]:
    """A data directory of its own. Whatever a test does, no server and no file is left."""
    folder = Path(tempfile.mkdtemp(prefix="ductor-dev-"))
    folder.chmod(0o711)
    try:
        yield folder
    finally:
        EmbeddedPostgres(folder).stop(immediate=True)
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_dev(folder: Path) -> Iterator[Engine]:
    """A `ductor dev` that can serve; stopped at the end however the test goes."""
    engine = Engine(folder)
    try:
        engine.start()
        yield engine
    finally:
        engine.stop()


def ductor(*arguments: str, input_: str | None = None, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run `ductor …` with these `DUCTOR_` options and no others."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DUCTOR_")}
    return subprocess.run(
        [sys.executable, "-m", "ductord.cli", *arguments],
        env={**clean, **environment},
        input=input_,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def invoke(*arguments: str, input_: str | None = None, **environment: str) -> tuple[int, str, str]:
    """The same in this process, which spares the imports: exit code, standard output, standard error."""
    without = {name: None for name in os.environ if name.startswith("DUCTOR_")}
    done = CliRunner().invoke(app, arguments, input=input_, env={**without, **environment})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.stdout, done.stderr


def processes_in(folder: Path) -> list[str]:
    """Command lines of all processes that name `folder`, this one aside."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and int(entry.name) != os.getpid():
            found.append(line)
    return found
