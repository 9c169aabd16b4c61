"""Processes of the suite, born quickly: a mother has everything imported and forks, instead of two seconds of imports per process.

A child is a process of its own like any other: `python -m <program> <arguments>` with its own environment, log and session, from a fork that had opened
nothing: no socket, no thread, no event loop. What it runs is the product's own entry point. The mother of an older release is started with that release's
tree. Run as a program (without `tests.support` on its path, whose names are not the standard library's) this file is the mother; imported, it is who asks.
When whoever asks is gone, so are all of them.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_READY = "ready"


class Child:
    """One process that a mother bore, as `subprocess.Popen` shows one."""

    def __init__(self) -> None:
        self.pid = 0
        self.returncode: int | None = None
        self._born = threading.Event()
        self._gone = threading.Event()

    def poll(self) -> int | None:
        """Its exit code (negative: the signal that ended it), None while it runs."""
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises `subprocess.TimeoutExpired`."""
        if not self._gone.wait(timeout):
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it is still there."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)


class Mother:
    """A mother process. `tree`: where `services` and `gen` of the release are; `start` is safe in every thread."""

    def __init__(self, tree: Path = _ROOT) -> None:
        path = os.pathsep.join([str(tree / "services"), str(tree / "gen"), str(tree)])
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**_clean(os.environ), "PYTHONPATH": path},
            cwd=tree,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._waiting: list[Child] = []
        self._children: dict[int, Child] = {}
        assert self._process.stdout is not None
        if json.loads(self._process.stdout.readline() or "null") != _READY:
            raise RuntimeError(f"the mother of {tree} did not come up")
        threading.Thread(target=self._listen, daemon=True).start()

    def start(self, arguments: Sequence[str], environment: Mapping[str, str], log: Path) -> Child:
        """A child that runs `python -m *arguments`, with both outputs appended to `log`."""
        child = Child()
        line = json.dumps({"arguments": list(arguments), "environment": dict(environment), "log": str(log)})
        assert self._process.stdin is not None
        with self._lock:  # children are born in the order in which they were asked for
            self._waiting.append(child)
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        if not child._born.wait(60):
            raise RuntimeError("the mother does not answer")
        return child

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            pid, code = json.loads(line)
            if code is None:
                child = self._waiting.pop(0)
                child.pid = pid
                self._children[pid] = child
                child._born.set()
            else:
                child = self._children.pop(pid)
                child.returncode = code
                child._gone.set()


@cache
def mother(tree: Path = _ROOT) -> Mother:
    """The mother of a release's tree: one per test process, gone with it."""
    return Mother(tree)


def _clean(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith("DUCTOR_")}


def bear() -> dict[str, Any]:
    """Be a mother until nobody asks any more. Returns in each child: what it is to run."""
    _import()
    gc.collect()
    gc.freeze()  # what never goes is not copied because the collector counts it
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    _tell(_READY)
    alive: set[int] = set()
    asked = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(woken, 4096)
            _bury(alive)
        if 0 not in ready:
            continue
        data = os.read(0, 1 << 16)
        if not data:
            for pid in alive:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            os._exit(0)
        *lines, asked = (asked + data).split(b"\n")
        for line in lines:
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(woken)
                os.close(wake)
                work: dict[str, Any] = json.loads(line)
                return work
            alive.add(pid)
            _tell([pid, None])


def _bury(alive: set[int]) -> None:
    while alive:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        alive.discard(pid)
        _tell([pid, os.waitstatus_to_exitcode(status)])


def _import() -> None:
    """What every service imports, and what the command line does before it serves."""
    for name in ("uvloop", "ductord.cli.commands", "ductord.cli.ending", "ductord.cli.serving"):
        importlib.import_module(name)
    importlib.import_module("ductord.cli.roster").services(())


def _tell(word: Any) -> None:
    os.write(1, json.dumps(word).encode() + b"\n")


def live(work: dict[str, Any]) -> None:
    """Be what was asked for, as if it had been started alone."""
    os.setsid()
    os.environ.clear()
    os.environ.update(work["environment"])
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, work["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT),
        (2, work["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT),
    ):
        opened = os.open(path, flags, 0o644)
        os.dup2(opened, number)
        os.close(opened)
    program, *arguments = work["arguments"]
    sys.argv = [program, *arguments]
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    live(bear())
