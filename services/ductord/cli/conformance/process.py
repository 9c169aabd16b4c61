"""The worker under test as a process: started, told to stop, waited for, and gone at the end whatever it does."""

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ductord.cli.ending import MISUSED, CommandFailed

_GONE_S: Final = 1.0
"""How long what a worker has started may take to end after it."""
_TAIL: Final = 4_000


class Process:
    """One process of the worker, in a group of its own. Everything that it prints is kept."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command = command
        self._environment = environment
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed by `close`
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it. Raises `CommandFailed` where there is no such command."""
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                env=self._environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,
            )
        except OSError as error:
            self.close()
            raise CommandFailed(f"{self._command[0]}: {error.strerror}", code=MISUSED) from None

    @property
    def code(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return None if self._process is None else self._process.returncode

    def terminate(self) -> None:
        """SIGTERM to the process alone, as Kubernetes does; nothing if it has ended."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()

    async def ended(self, within_s: float) -> bool:
        """Wait for its end."""
        assert self._process is not None
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._process.wait()), within_s)
        return self.code is not None

    async def left_behind(self) -> bool:
        """Whether processes that it has started outlive it."""
        for _ in range(int(_GONE_S / 0.05)):
            if not self._signalled(0) or not self._living():
                return False
            await asyncio.sleep(0.05)
        return True

    async def kill(self) -> None:
        """End it and all that it has started, now."""
        if self._process is None:
            return
        self._signalled(signal.SIGKILL)
        await self._process.wait()

    def output(self) -> str:
        """The end of what it printed."""
        size = os.fstat(self._output.fileno()).st_size
        return os.pread(self._output.fileno(), _TAIL, max(size - _TAIL, 0)).decode(errors="replace").strip()

    def close(self) -> None:
        """Forget what it printed."""
        self._output.close()

    def _living(self) -> bool:
        """Whether anybody in the group is more than an entry that nobody has collected yet; where there is no /proc, they all count."""
        assert self._process is not None
        states = []
        for entry in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, _, group = entry.read_text().rpartition(")")[2].split()[:3]
                states += [state] if int(group) == self._process.pid else []
        return not Path("/proc/self/stat").exists() or any(state not in "ZX" for state in states)

    def _signalled(self, number: int) -> bool:
        """Signal the whole group; False when nobody is left in it."""
        assert self._process is not None
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return False
        return True
