"""`ductor dev` as a process of ours: started, killed, started again, stopped; and its command line."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

START_LIMIT_S = 60.0
STOP_LIMIT_S = 30.0
TENANT = "demo"
LEASE_MS = 3_000
"""How long a worker that was killed may seem alive: attempts that it held are given to another after that."""


class Failed(Exception):
    """The demo cannot go on; the message says why."""


class Engine:
    """One engine on one data directory and two ports, which stay the same over its lives."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.grpc = f"127.0.0.1:{_free_port()}"
        self.http = f"127.0.0.1:{_free_port()}"
        self.log = folder / "dev.out"
        self._process: subprocess.Popen[bytes] | None = None
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("DUCTOR_")},
            "DUCTOR_GRPC_ADDRESS": self.grpc,
            "DUCTOR_HTTP_ADDRESS": self.http,
            "DUCTOR_LEASE_MS": str(LEASE_MS),
            "DUCTOR_HEARTBEAT_MS": str(LEASE_MS // 3),
            "DUCTOR_SWEEP_MS": str(LEASE_MS // 3),
            "DUCTOR_TENANT_ID": TENANT,
            "DUCTOR_TARGET": self.grpc,
        }

    @property
    def pid(self) -> int:
        """The process that runs, or ran last."""
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether it is alive."""
        return self._process is not None and self._process.poll() is None

    def start(self) -> float:
        """Start it and wait until it says that it can serve; the seconds it took. Raises `Failed`."""
        begin = time.monotonic()
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ductord.cli", "dev", "--data-dir", str(self.folder)],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is ours to hear: the demo stops the engine itself
            )
        while not self._ready():
            if not self.running or time.monotonic() - begin > START_LIMIT_S:
                raise Failed(f"the engine did not start:\n{self.tail()}")
            time.sleep(0.05)
        return time.monotonic() - begin

    def kill(self) -> None:
        """kill -9, as a power cut for the engine. Postgres is a process of its own and stays."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def stop(self) -> int:
        """Ctrl-C; the exit code. Kills what does not stop."""
        if self._process is None:
            return 0
        if self.running:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(STOP_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        return self._process.returncode

    def command(self, *arguments: str) -> str:
        """`ductor …` against this engine; what it printed. Raises `Failed`."""
        done = subprocess.run(
            [sys.executable, "-m", "ductord.cli", *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise Failed(f"ductor {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout.strip()

    def tail(self, lines: int = 25) -> str:
        """The end of what it printed and logged."""
        texts = [path.read_text(errors="replace") for path in (self.log, self.folder / "ductor.log") if path.exists()]
        return "\n".join(line for text in texts for line in text.splitlines()[-lines:])

    def _ready(self) -> bool:
        try:
            state = json.loads((self.folder / "dev.json").read_text())
        except (OSError, ValueError):
            return False
        return bool(state.get("ready")) and state.get("pid") == self.pid


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
