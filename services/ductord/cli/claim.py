"""A data directory as one process's own, and what its `dev.json` says about that process.

The lock dies with the process, however that ends; what the file says may be left over from one that was killed.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from ductord.cli.ending import CommandFailed

STATE_FILE: Final = "dev.json"


class Claim:
    """A held data directory."""

    def __init__(self, folder: Path, descriptor: int) -> None:
        self.folder = folder
        self._descriptor = descriptor

    def tell(self, **facts: Any) -> None:
        """Replace what `dev.json` says, for the refusal of a second process and for scripts: `pid`, addresses, `ready`."""
        text = json.dumps({"pid": os.getpid(), **facts}).encode() + b"\n"
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text, 0)


@contextmanager
def claimed(folder: Path) -> Iterator[Claim]:
    """Hold `folder` while the context is open; it is made where it is missing. Raises `CommandFailed` naming the process that holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / STATE_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        way_out = "choose another --data-dir"
        raise CommandFailed(f"{folder} cannot be used: {error.strerror}", way_out=way_out) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            way_out = "use that one, or another --data-dir"
            raise CommandFailed(_held(folder, os.read(descriptor, 4_096)), way_out=way_out) from None
        claim = Claim(folder, descriptor)
        claim.tell()
        yield claim
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


def _held(folder: Path, text: bytes) -> str:
    facts: dict[str, Any] = {}
    with contextlib.suppress(ValueError):
        facts = json.loads(text)
    who = f" (process {facts['pid']})" if "pid" in facts else ""
    where = f"; it listens on gRPC {facts['grpc']}" if facts.get("grpc") else ""
    return f"another `ductor dev`{who} runs on {folder}{where}"
